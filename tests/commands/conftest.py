"""A folder with images and a finished run, and a group of runs, for all commands to look at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers import QUICK, Outcome, make_folder, run_cli, run_here


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ of three classes, and runs/a trained on it, with all three parts, in a process of its own, both under one folder."""
    root = tmp_path_factory.mktemp("place")
    make_folder(root / "photos", {"cat": 20, "dog": 20, "owl [x]": 20})
    (root / "photos" / "cat" / "broken.png").touch()
    done = run_cli("train", "photos", *QUICK, "--val", "0.15", "--out", "runs/a", cwd=root)
    assert done.returncode == 0, done.stderr
    (root / "train.out").write_text(done.stdout)
    (root / "train.err").write_text(done.stderr)
    return root


@pytest.fixture
def run_copy(place: Path, tmp_path: Path) -> Path:
    """The finished run, to be spoiled."""
    return shutil.copytree(place / "runs" / "a", tmp_path / "copy")


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    path = tmp_path_factory.mktemp("seeds") / "group"
    words = ("train", "digits", *QUICK, "--per-class", "5", "--seeds", "2", "--jobs", "2", "--out", path)
    return path, run_here(*words)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", {"cat": 10, "dog": 10})
