"""Folders that are no runs, runs that are unfinished or damaged: what each command says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import fails, run_here


@pytest.mark.parametrize("command", ["evaluate", "resume", "report", "predict"])
def test_folder_that_is_no_run(tmp_path: Path, command: str) -> None:
    more = ["x.png"] if command == "predict" else []
    for folder, why in ((tmp_path, "it has no recipe.json"), (tmp_path / "nowhere", "there is no such folder")):
        fails(run_here(command, folder, *more), 1, f"{folder} is not a run folder: {why}")


@pytest.mark.parametrize("command", ["evaluate", "report", "predict"])
def test_unfinished_run_says_how_to_go_on(run_copy: Path, command: str) -> None:
    (run_copy / "results.json").unlink()
    (run_copy / "model.safetensors").unlink()
    more = ["x.png"] if command == "predict" else []
    fails(run_here(command, run_copy, *more), 1, f"smallvit resume {run_copy}")


@pytest.mark.parametrize(
    ("name", "content", "phrase"),
    [
        ("model.safetensors", b"", "cannot read"),
        ("model.safetensors", b"not safetensors at all", "cannot read"),
        ("recipe.json", b"{", "cannot read"),
        ("recipe.json", b"[]", "does not hold a JSON object"),
        ("recipe.json", b"{}", "recipe.json"),
        ("split.json", b"{}", "split.json"),
        ("recipe.json", b'{"resolved": {"epochs": 0}, "choices": []}', "epochs = 0: should be at least 1"),
    ],
)
def test_damaged_run(run_copy: Path, name: str, content: bytes, phrase: str) -> None:
    (run_copy / name).write_bytes(content)
    outcome = run_here("evaluate", run_copy)
    fails(outcome, outcome.status, phrase, name)
    assert outcome.status in (1, 2)
