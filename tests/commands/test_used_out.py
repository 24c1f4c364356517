"""A folder for `--out` that is used already, or cannot be written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import QUICK, ends_well, fails, run_here
from smallvit import Run


def test_used_out_is_refused_at_once_and_left_as_it_is(run_copy: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run_copy.iterdir()}
    outcome = run_here("train", tmp_path / "no data is looked at", "--out", run_copy)
    fails(outcome, 1, f"{run_copy} is already used", "--overwrite", f"smallvit resume {run_copy}")
    assert {path.name: path.stat().st_mtime_ns for path in run_copy.iterdir()} == before


def test_overwrite_replaces_the_run(run_copy: Path) -> None:
    (run_copy / ".results.json.1234.part").touch()  # left by a kill in the middle of a write
    words = ("train", "digits", *QUICK, "--per-class", "5", "--out", run_copy, "--overwrite", "-q")
    ends_well(run_here(*words))
    assert Run(run_copy).recipe.data.source == "digits"
    assert not (run_copy / ".results.json.1234.part").exists()


def test_overwrite_keeps_the_old_run_where_the_new_one_cannot_start(run_copy: Path) -> None:
    before = (run_copy / "model.safetensors").read_bytes()
    fails(run_here("train", "digits", "--model", "nonsense", "--out", run_copy, "--overwrite"), 2, "unknown model")
    assert (run_copy / "model.safetensors").read_bytes() == before


def foreign_file(folder: Path) -> None:
    (folder / "thesis.tex").write_text("mine")


def other_run(folder: Path) -> None:
    """`--out runs --overwrite` must not delete the runs below it."""
    shutil.copytree(folder, folder / "other")


def not_a_run(folder: Path) -> None:
    """Names that a run uses too, but no run wrote them."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "report.html").write_text("mine")
    (folder / "findings").mkdir()


@pytest.mark.parametrize("spoil", [foreign_file, other_run, not_a_run])
def test_overwrite_deletes_nothing_but_a_run(run_copy: Path, spoil: Callable[[Path], None]) -> None:
    spoil(run_copy)
    before = sorted(run_copy.rglob("*"))
    outcome = run_here("train", "digits", *QUICK, "--per-class", "5", "--out", run_copy, "--overwrite")
    fails(outcome, 1, "holds what no run wrote", "nothing was deleted")
    assert sorted(run_copy.rglob("*")) == before


def test_out_that_cannot_be_written(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    fails(run_here("train", photos, *QUICK, "--out", tmp_path / "file"), 1, "file is a file; --out takes a folder")
    below = tmp_path / "file" / "run"
    fails(run_here("train", photos, *QUICK, "--out", below), 1, f"cannot write to {below}: ")
    assert (tmp_path / "file").read_text() == "mine"
