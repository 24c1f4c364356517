"""The command `check`: what it prints, and its exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from helpers import run_here


def test_command_on_a_clean_set(clean: Path) -> None:
    outcome = run_here("check", clean, "--model", "vit_pico")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0] == f"{clean}: fit for training."
    assert "500 images, 2 classes: 400 train, 100 test" in outcome.out
    assert "  data.img_size = " in outcome.out and "batch_size" not in outcome.out
    assert " usual choices (all with their reasons: `smallvit train ... --explain`, or the report)" in outcome.out
    assert "training takes about" in outcome.out


def test_command_on_a_leak(own: Path) -> None:
    name = "[bold]x\x1b[31m.png"
    for number in range(8):
        shutil.copy(own / "train" / "cat" / f"{number:03d}.png", own / "test" / "cat" / f"{number}{name}")
    outcome = run_here("check", own, "--fast")
    assert outcome.status == 1
    assert "1 error" in outcome.out.splitlines()[0]
    assert "error leak: 8 of 108 test images are" in outcome.out
    assert r"test/cat/0[bold]x\x1b[31m.png = train/cat/000.png" in outcome.out
    assert "\x1b" not in outcome.out
    assert "and 3 more" in outcome.out


def test_command_with_json(own: Path) -> None:
    shutil.copy(own / "train" / "cat" / "000.png", own / "test" / "cat" / "x.png")
    outcome = run_here("check", own, "--json", "--set", "optimizer.weight_decay=0.3", "--fast")
    found = json.loads(outcome.out)
    assert outcome.status == 1
    assert found["ok"] is False
    assert [problem["code"] for problem in found["problems"]] == ["leak", "near-not-searched"]
    assert found["problems"][0]["severity"] == "error"
    assert found["recipe"]["optimizer"]["weight_decay"] == 0.3
    assert found["facts"]["classes"]["cat"] == {"all": 91, "train": 30, "val": 10, "test": 51}
    assert found["duplicates"] == [["test/cat/x.png", "train/cat/000.png"]]


def test_command_misused(own: Path) -> None:
    assert run_here("check").status == 2
    assert run_here("check", own, "--model", "no_such_model").status == 2
    assert run_here("check", own, "--per-class", "1000").status == 2
    missing = run_here("check", own / "nothing")
    assert missing.status == 1
    assert "no such folder" in missing.err


def test_command_can_be_quiet(parted: Path) -> None:
    outcome = run_here("check", parted, "--quiet", "--fast")
    assert outcome == (0, "", "")
