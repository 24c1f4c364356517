"""The plan as a table: of what was asked, chosen and measured; before a run, in its folder and in its report."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import smallvit
from helpers import PROJECT, ends_well, fails, run_here
from smallvit.commands import train as train_command
from smallvit.planning.choices import Choice
from smallvit.planning.evidence import Lever
from smallvit.planning.explanation import GIVEN, Line, explained

QUICK: dict[str, Any] = {"per_class": 4, "epochs": 1, "threads": 1, "show_progress": False}
MEASURED = {"points": 2.0, "seeds": 1, "images": "CIFAR-10", "seconds": 40, "source": "docs/results/contest.json"}


def lever(**more: Any) -> Lever:
    entry = {"name": "averaged weights", "setting": "ema", "unused": [0.0], "off": "--set ema=0", "on": "--set ema=0.9"}
    return Lever.model_validate(entry | {"measured": [MEASURED]} | more)


def test_a_lever_is_a_row_where_it_is_in_use_and_where_it_is_not() -> None:
    used = explained({}, {"ema": 0.9}, [Choice("ema", 0.9, "it pays")], [lever()])
    assert used.chosen == [Line("ema", "0.9", "it pays", "+2.0 points (one seed; CIFAR-10, 40 s)", "--set ema=0")]
    assert used.left_out == []
    unused = explained({}, {"ema": 0.0}, [], [lever(why_not="it does not pay")])
    assert unused.chosen == []
    assert unused.left_out == [
        Line("averaged weights", "", "it does not pay", "+2.0 points (one seed; CIFAR-10, 40 s)", "--set ema=0.9")
    ]


@pytest.mark.parametrize(
    ("asked", "choices", "why_not", "why"),
    [
        ({"ema": 0.0}, [], "it does not pay", GIVEN),
        ({}, [Choice("ema", 0.0, "few steps")], "", "few steps"),
        ({}, [Choice("ema", 0.0, "few steps")], "it does not pay", "it does not pay"),
        ({"ema": "auto"}, [], "", "not asked for"),
    ],
)
def test_why_something_is_left_out(asked: dict[str, Any], choices: list[Choice], why_not: str, why: str) -> None:
    (line,) = explained(asked, {"ema": 0.0}, choices, [lever(why_not=why_not)]).left_out
    assert line.why == why


def test_a_lever_without_what_it_needs_is_not_told_of() -> None:
    needy = lever(needs={"optimizer.name": ["muon"]})
    assert explained({}, {"ema": 0.0, "optimizer.name": "adamw"}, [], [needy]) == ([], [])
    assert explained({}, {}, [], [lever()]) == ([], []), "nor one whose setting the recipe does not have"
    assert explained({}, {}, [], [lever(default=0.0)]).left_out, "unless it has a value by itself"


def test_what_has_no_lever_says_how_to_change_it() -> None:
    choices = [Choice("epochs", 20, "a guess"), Choice("epochs", 30, "measured"), Choice("eval_every", 2, "40 looks")]
    lines = explained({"data.fit": "pad", "data.mean": [0.5]}, {}, choices, []).chosen
    assert lines == [
        Line("data.fit", "pad", GIVEN, "", "--fit ..."),
        Line("epochs", "30", "measured", "", "--epochs ..."),
        Line("eval_every", "2", "40 looks", "", "--set eval_every=..."),
    ]


# ---- before a run --------------------------------------------------------------------------------------


def test_explain_writes_nothing_and_says_what_train_then_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = smallvit.explain("digits", **QUICK)
    assert list(tmp_path.iterdir()) == []
    by_key = {line.what: line for line in found.chosen}
    assert by_key["model.name"].value == "conv_nano" and by_key["epochs"].why == GIVEN
    assert found.expected.epochs == 1 and found.expected.seconds > 0 and found.expected.step_seconds > 0
    run = smallvit.train("digits", out=tmp_path / "run", **QUICK)
    stored = json.loads((run.path / "recipe.json").read_text())["explained"]
    # Only what the clock decides may differ.
    assert [line["what"] for line in stored["chosen"]] == list(by_key)
    assert [line["what"] for line in stored["left_out"]] == [line.what for line in found.left_out]
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "The plan: what was chosen, and why" in page and "What was left out" in page
    assert "attention on the last grid" in page and "--model hybrid" in page


def test_a_budget_is_counted_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("digits", "--per-class", "4", "--model", "vit_pico", "--threads", "1", "--budget", "5m", "--explain")
    told = []
    for more in ((), ("--seeds", "2")):
        monkeypatch.setattr(train_command, "STARTED", time.monotonic())  # this process is older than the command
        told.append(ends_well(run_here("train", *words, *more)).out)
    found = [
        re.findall(r"expected: 5 min 00 s for the whole command, ([\d,]+) steps of (\d+) ms", text)[0] for text in told
    ]
    # A step is timed for each by itself, and on a busy machine takes longer now and then.
    alone, shared = (int(steps.replace(",", "")) * int(each) for steps, each in found)
    assert shared < 0.8 * alone, "seeds share it"
    assert "a budget of 300 s: " in " ".join(told[0].split())
    assert list(tmp_path.iterdir()) == []


def test_a_narrow_terminal_gets_lines_and_a_wide_one_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("train", "digits", "--per-class", "4", "--epochs", "1", "--threads", "1", "--explain", "--quiet")
    monkeypatch.setenv("COLUMNS", "60")
    narrow = ends_well(run_here(*words))
    assert max(map(len, narrow.out.splitlines()[1:-3])) <= 60 and narrow.err == ""
    assert "model.name = conv_nano\n  why: the best we know" in narrow.out
    monkeypatch.setenv("COLUMNS", "160")
    wide = ends_well(run_here(*words)).out
    (row,) = [line for line in wide.splitlines() if "model.name = conv_nano" in line]
    assert "the best we know" in row and row.rstrip().endswith("--model vit_nano")


def test_nothing_is_claimed_of_pretraining(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "digits",
        "--method",
        "simclr",
        "--model",
        "vit_pico",
        "--epochs",
        "1",
        "--per-class",
        "8",
        "--threads",
        "1",
    )
    told = ends_well(run_here("pretrain", *words, "--explain")).out
    assert "objective.name = simclr" in told and "expected: about" in told
    assert "left out" not in told and " points" not in told


def test_explain_takes_what_train_takes() -> None:
    fails(run_here("train", "digits", "--explain", "--model", "vit_nanno"), 2, "vit_nanno", "vit_nano")
    fails(run_here("train", "digits", "--explain", "--seeds", "1"), 2, "--seeds 1: give at least 2")


# ---- in the report -------------------------------------------------------------------------------------


def test_a_folder_of_version_0_1_shows_its_choices_without_evidence(tmp_path: Path) -> None:
    old = shutil.copytree(PROJECT / "tests" / "runs_0_1" / "finished", tmp_path / "old")
    ends_well(run_here("report", old))
    page = (old / "report.html").read_text(encoding="utf-8")
    assert "The plan: what was chosen, and why" in page and "--set optimizer.weight_decay=..." in page
    assert "What was left out" not in page and "expected to bring" not in page


@pytest.mark.parametrize("broken", [[], {"chosen": []}, {"chosen": [{"what": "a"}], "left_out": []}])
def test_a_damaged_plan_is_told_with_its_file(tmp_path: Path, broken: object) -> None:
    old = shutil.copytree(PROJECT / "tests" / "runs_0_1" / "finished", tmp_path / "old")
    record = json.loads((old / "recipe.json").read_text()) | {"explained": broken}
    (old / "recipe.json").write_text(json.dumps(record))
    fails(run_here("report", old), 1, "recipe.json is damaged", "explained")
