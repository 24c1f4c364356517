"""`evaluate` as it is typed, on the run's own images and on others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers import QUICK, ends_well, fails, make_folder, noise_image, run_here
from smallvit import Run


def test_evaluate(place: Path) -> None:
    run = Run(place / "runs" / "a")
    shown = ends_well(run_here("evaluate", run.path)).out
    assert "accuracy on test (12 images)" in shown
    assert "majority class" in shown
    assert f"{run.results['parts']['test']['accuracy']:.1%}" in shown
    found = json.loads(ends_well(run_here("evaluate", run.path, "--json")).out)
    assert found["confusion"] == run.results["parts"]["test"]["confusion"]
    on_train = json.loads(ends_well(run_here("evaluate", run.path, "--part", "train", "--json")).out)
    assert on_train["n"] == 42


def test_evaluate_other_images_by_class_name(place: Path, tmp_path: Path) -> None:
    run = place / "runs" / "a"
    make_folder(tmp_path / "more", {"dog": 2, "cat": 3})
    found = json.loads(ends_well(run_here("evaluate", run, "--data", tmp_path / "more", "--json")).out)
    assert {row["name"]: row["n"] for row in found["per_class"]} == {"cat": 3, "dog": 2, "owl [x]": 0}
    make_folder(tmp_path / "more", {"zebra": 1})
    fails(run_here("evaluate", run, "--data", tmp_path / "more"), 1, "classes the model does not know: zebra")
    fails(run_here("evaluate", run, "--data", tmp_path / "none"), 1, "no such folder or file")
    fails(run_here("evaluate", run, "--part", "tset"), 2, "part 'tset'", "choices: train, val, test")


def test_images_that_changed_since_training(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "photos", {"cat": 10, "dog": 10})
    ends_well(run_here("train", "photos", *QUICK, "--out", "a", "-q"))
    noise_image("another").save(tmp_path / "photos" / "cat" / "000.png")
    fails(run_here("evaluate", "a"), 1, "are not those that a was trained on", "Put them back")
    shutil.rmtree("photos")
    fails(run_here("evaluate", "a"), 1, "no such folder or file")
    ends_well(run_here("predict", "a", place / "photos" / "cat" / "000.png"))  # needs the images no more
