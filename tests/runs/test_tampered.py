"""Run folders that somebody has changed: one message that names the file, no traceback, and nothing is believed silently."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import smallvit
from helpers import PROJECT, fails, run_here
from smallvit.errors import RunError

OLD = PROJECT / "tests" / "runs_0_1"
DEEP = json.loads("[" * 150 + "]" * 150)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return shutil.copytree(OLD, tmp_path / "old")


def change(file: Path, key: str, value: Any) -> None:
    """`key` is dotted; numbers are places in lists."""
    tree: Any = json.loads(file.read_text(encoding="utf-8"))
    *outer, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    inner = tree
    for part in outer:
        inner = inner[part]
    inner[last] = value
    file.write_text(json.dumps(tree), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("results.json", "parts.test.accuracy", "high"),
        ("results.json", "parts.test.accuracy", 1.5),
        ("results.json", "parts.test.interval", [0.5]),
        ("results.json", "parts.test.n", 0),
        ("results.json", "parts.test.confusion", [[1, 2], [3]]),
        ("results.json", "parts.test.confusion", [[1]]),
        ("results.json", "parts.test.per_class.0.n", None),
        ("results.json", "parts", []),
        ("results.json", "parts", {}),
        ("results.json", "evaluated_part", "nowhere"),
        ("results.json", "floors.knn", 3),
        ("results.json", "floors.knn.interval", "wide"),
        ("results.json", "calibration.before.bins", []),
        ("results.json", "calibration.temperature", 0),
        ("results.json", "calibration.fitted_on", None),
        ("results.json", "weights", None),
        ("results.json", "timing.train_seconds", "long"),
        ("results.json", "timing.train_seconds", float("nan")),
        ("results.json", "model.parameters", [1]),
        ("results.json", "mistakes.0", "x"),
        ("results.json", "examples", {"a": 1}),
        ("results.json", "shown", {"title": "t", "words": "w", "columns": []}),
        ("recipe.json", "choices", [1]),
        ("recipe.json", "choices.0", {"key": "a"}),
        ("recipe.json", "resolved.seed", "x"),
        ("recipe.json", "resolved.threads", "auto"),
        ("recipe.json", "resolved.model", 7),
        ("recipe.json", "resolved.model.kwargs", DEEP),
        ("recipe.json", "resolved", []),
        ("recipe.json", "resolved.model", {}),
        ("recipe.json", "asked", "all"),
        ("recipe.json", "explained", {"chosen": [{}], "left_out": []}),
        ("recipe.json", "cautions", [1]),
        ("recipe.json", "curves", {"objective": [{}], "aux": []}),
        ("env.json", "smallvit", ["0.1"]),
        ("split.json", "class_names", "cats"),
        ("split.json", "parts.train.rows", [1, "2"]),
        ("split.json", "parts.train.n", 10**30),
        ("split.json", "skipped", [["a", "b"]]),
    ],
)
def test_a_value_of_another_shape_is_named(old: Path, name: str, key: str, value: Any) -> None:
    change(old / "finished" / name, key, value)
    fails(run_here("report", old / "finished"), 1, name)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a":' * 100_000, '{"resolved": NaN}', "\x00", '{"a": 1' + "0" * 5000 + "}"]
)
@pytest.mark.parametrize("name", ["recipe.json", "results.json", "split.json"])
def test_any_bytes_in_place_of_a_file(old: Path, name: str, content: str) -> None:
    (old / "finished" / name).write_text(content, encoding="utf-8")
    fails(run_here("report", old / "finished"), 1, name)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "train"}',
        '{"kind": "train", "step": "one", "seconds": 1}',
        "[]",
        "null",
        "{",
        '{"kind": "epoch", "step": 0, "seconds": 0}',
    ],
)
def test_a_damaged_record_in_the_middle_is_named(old: Path, line: str) -> None:
    file = old / "finished" / "metrics.jsonl"
    first, *rest = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([first, line, *rest]) + "\n", encoding="utf-8")
    fails(run_here("report", old / "finished"), 1, "metrics.jsonl", "line 2")


def test_a_last_record_that_a_kill_cut_short_is_left_out(old: Path) -> None:
    run = smallvit.Run(old / "finished")
    before = run.metrics
    with (run.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind": "train", "st')
    assert run.metrics == before


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("parts.test.rows", "train", "row"),  # test images that were trained on
        ("parts.train.rows.0", 10**6, "rows are not those"),
        ("parts.train.rows.0", -1, "rows"),
        ("parts.val", None, "val"),
        ("class_names.0", "another", "class"),
    ],
)
def test_rows_that_cannot_be_those_of_a_split(old: Path, key: str, value: Any, says: str) -> None:
    file = old / "finished" / "split.json"
    parts = json.loads(file.read_text(encoding="utf-8"))["parts"]
    if value == "train":
        value = parts["train"]["rows"][: parts["test"]["n"]]
    change(file, key, value)
    fails(run_here("evaluate", old / "finished"), 1, "split.json", says)


def test_an_objective_that_nobody_knows(old: Path) -> None:
    for name, command in (("finished", "evaluate"), ("stopped", "resume"), ("finished", "report")):
        change(old / name / "recipe.json", "resolved.objective.name", "telepathy")
        fails(run_here(command, old / name), 1, "telepathy")


@pytest.mark.parametrize("file", ["model.safetensors", "state/latest.safetensors"])
def test_weights_that_are_no_numbers(old: Path, tmp_path: Path, file: str) -> None:
    folder = old / ("finished" if file.startswith("model") else "stopped")
    with safe_open(folder / file, "pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(folder / file)
    name = next(name for name, tensor in tensors.items() if tensor.ndim > 1)
    tensors[name] = torch.full_like(tensors[name], float("nan"))
    save_file(tensors, folder / file, metadata=metadata)
    words = ("evaluate", folder) if folder.name == "finished" else ("resume", folder)
    fails(run_here(*words), 1, Path(file).name, "no numbers")


@pytest.mark.parametrize(
    "change_to", [{"done": "x"}, {"done": 10**9}, {"best": {}}, {"log": {"window": 3}}, {"total": None}]
)
def test_a_state_whose_header_says_nonsense(old: Path, change_to: dict[str, Any]) -> None:
    file = old / "stopped" / "state" / "latest.safetensors"
    with safe_open(file, "pt") as opened:
        header = json.loads(opened.metadata()["smallvit"])
    save_file(load_file(file), file, metadata={"smallvit": json.dumps(header | change_to)})
    fails(run_here("resume", old / "stopped"), 1, "latest.safetensors")


@pytest.mark.parametrize(
    "members", [[], ["/etc"], ["../finished"], [".."], [3], "seed-0", ["seed-0", "seed-0"], ["."], [""], ["a\0b"]]
)
def test_a_group_holds_runs_of_its_own(old: Path, members: Any) -> None:
    change(old / "seeds" / "group.json", "members", members)
    for command in ("report", "resume"):
        fails(run_here(command, old / "seeds"), 1, str(old / "seeds"))


def test_predictions_that_are_none(old: Path, tmp_path: Path) -> None:
    other = shutil.copytree(old / "finished", tmp_path / "other")
    good = load_file(other / "predictions.safetensors")
    n, k = good["probabilities"].shape
    for changed in (
        {"rows": good["rows"][:-1]},
        {"rows": torch.zeros(n, dtype=torch.int64)},
        {"labels": torch.full((n,), k)},
        {"labels": good["labels"].float()},
        {"probabilities": torch.full((n, k), float("nan"))},
        {"probabilities": torch.zeros(n)},
    ):
        save_file(good | changed, other / "predictions.safetensors")
        fails(run_here("compare", old / "finished", other), 1, "predictions.safetensors")


def test_findings_that_cannot_be_drawn(place_of_findings: Path) -> None:
    for name in ("fit", "rank", "tokens"):
        file = place_of_findings / "findings" / f"{name}.json"
        if file.is_file():
            before = file.read_text(encoding="utf-8")
            change(file, "numbers", {"a": "b"})
            fails(run_here("report", place_of_findings), 1, f"{name}.json")
            file.write_text(before, encoding="utf-8")


@pytest.fixture
def place_of_findings(old: Path) -> Path:
    """A diagnosis whose version is ours: made up, for one of 0.1 is left out of the page."""
    folder = old / "finished" / "findings"
    shutil.rmtree(folder)
    folder.mkdir()
    from smallvit.runs.stored_findings import VERSION

    about = {"version": VERSION, "name": "rank", "verdict": "", "weight": 0.0, "numbers": {}, "labels": {}}
    (folder / "rank.json").write_text(json.dumps(about))
    save_file({"nothing": torch.zeros(1)}, folder / "rank.safetensors")
    return old / "finished"


def test_a_finding_that_lacks_what_is_drawn_of_it(place_of_findings: Path) -> None:
    fails(run_here("report", place_of_findings), 1, "finding rank", "smallvit diagnose")


def test_pictures_of_no_size_are_left_out(old: Path) -> None:
    from safetensors.numpy import save_file as save_arrays

    save_arrays({"mistakes": np.zeros((2, 1, 0, 0), np.uint8)}, old / "finished" / "images.safetensors")
    assert run_here("report", old / "finished").status == 0


def test_a_recipe_that_lacks_what_was_resolved(old: Path) -> None:
    file = old / "finished" / "recipe.json"
    tree = json.loads(file.read_text(encoding="utf-8"))
    del tree["resolved"]["threads"]
    file.write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RunError, match="not resolved"):
        smallvit.Run(old / "finished").evaluate()
