"""A run whose images were moved, and evaluation on other images: which is which, and how many of them are not new."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import smallvit
from helpers import PROJECT, fails, make_folder, noise_image, run_here
from smallvit.errors import DataError, RunError, UsageError

QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "model": "vit_pico", "show_progress": False, "val": 0.2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """home/photos and home/run."""
    home = tmp_path_factory.mktemp("home")
    make_folder(home / "photos", {"cat": 20, "dog": 20})
    smallvit.train(home / "photos", out=home / "run", **QUICK)
    return home


@pytest.fixture
def moved(trained: Path, tmp_path: Path) -> tuple[smallvit.Run, Path]:
    """A run whose images are no longer where they were, and where they are."""
    place = shutil.copytree(trained, tmp_path / "home")
    record = json.loads((place / "run" / "recipe.json").read_text())
    record["resolved"]["data"]["source"] = str(tmp_path / "gone")
    (place / "run" / "recipe.json").write_text(json.dumps(record))
    return smallvit.Run(place / "run"), place / "photos"


def test_every_command_is_told_where_they_are(moved: tuple[smallvit.Run, Path]) -> None:
    run, place = moved
    for act in (run.evaluate, lambda: smallvit.probe(run.path), lambda: smallvit.diagnose(run.path, images=8)):
        with pytest.raises(RunError, match=r"cannot be read: no such folder or file: .*gone.*say where to: --data NEW"):
            act()
    worth = smallvit.probe(run.path, linear=False, data=place)
    assert worth["part"] == "test"
    assert json.loads((run.path / "moved.json").read_text()) == {"source": str(place)}
    assert smallvit.probe(run.path, linear=False) == worth, "it is remembered"
    assert run.evaluate("val")["n"] == run.read("split.json")["parts"]["val"]["n"]
    (run.path / "results.json").unlink()
    assert smallvit.resume(run.path, show_progress=False)[0].finished


@pytest.mark.parametrize("command", ["probe", "diagnose", "resume"])
def test_other_images_are_refused_with_what_differs(moved: tuple[smallvit.Run, Path], command: str) -> None:
    run, place = moved
    (place / "cat" / "000.png").unlink()
    fails(run_here(command, run.path, "--data", place), 1, "it has 39 images instead of 40 (19 instead of 20 of cat)")
    noise_image("another").save(place / "cat" / "000.png")
    fails(run_here(command, run.path, "--data", place), 1, "as many images of each class, but other pixels")
    (place / "cat").rename(place / "owl")
    fails(run_here(command, run.path, "--data", place), 1, "it lacks the class cat, and it also has the class owl")
    fails(run_here(command, run.path, "--data", "digits"), 2, "a named set is never moved")
    assert not (run.path / "moved.json").exists()


def test_the_images_of_the_run_are_judged_by_its_own_parts(moved: tuple[smallvit.Run, Path], trained: Path) -> None:
    run, place = moved
    for part in ("test", "train", None):
        found = smallvit.evaluate(run.path, part, data=place)
        stored = smallvit.evaluate(trained / "run", part)
        about = found.pop("judged")
        if part == "train":  # told where the images were not moved, too
            assert stored.pop("judged")["trained_on"] == stored["n"]
        assert found == stored
        assert (about["of_the_run"], about["part"]) == (True, part or "test")
        assert about["trained_on"] == (stored["n"] if part == "train" else 0)
    assert smallvit.evaluate(run.path, "all", data=place)["n"] == 40
    with pytest.raises(UsageError, match=r"part 'dev' of .* holds no images: choices: train, val, test, all"):
        smallvit.evaluate(run.path, "dev", data=place)


def test_other_images_and_how_many_of_them_it_has_seen(trained: Path, tmp_path: Path) -> None:
    run = smallvit.Run(trained / "run")
    train = run.read("split.json")["parts"]["train"]["rows"]
    seen = [sorted((trained / "photos").rglob("*.png"))[row] for row in train[:3]]
    for number, file in enumerate(seen):
        (tmp_path / "other" / file.parent.name).mkdir(parents=True, exist_ok=True)
        Image.open(file).save(
            tmp_path / "other" / file.parent.name / f"again-{number}.bmp"
        )  # other bytes, the same pixels
    make_folder(tmp_path / "other", {"cat": 0, "dog": 0})
    for number in range(5):
        noise_image(f"new {number}").save(tmp_path / "other" / "dog" / f"{number}.png")
    about = smallvit.evaluate(run.path, data=tmp_path / "other")["judged"]
    assert about["trained_on"] == 3 and about["not_trained_on"]["n"] == 5 and about["part"] == "all"
    done = run_here("evaluate", run.path, "--data", tmp_path / "other")
    assert "judged: all of them, 8 images" in done.out
    assert "3 of 8 images are among those that it was trained on, pixel for pixel" in done.out
    assert not (run.path / "moved.json").exists()
    with pytest.raises(UsageError, match="it has no part 'test': choices: all"):
        smallvit.evaluate(run.path, "test", data=tmp_path / "other")
    (tmp_path / "other" / "dog").rename(tmp_path / "other" / "owl")
    with pytest.raises(DataError, match="has classes the model does not know: owl"):
        smallvit.evaluate(run.path, data=tmp_path / "other")


def test_of_a_set_with_parts_one_is_judged(trained: Path, tmp_path: Path) -> None:
    make_folder(tmp_path / "parts", {"train/cat": 3, "train/dog": 3, "test/cat": 2, "test/dog": 2})
    found = smallvit.evaluate(trained / "run", data=tmp_path / "parts")
    assert (found["n"], found["judged"]["part"]) == (4, "test")
    assert smallvit.evaluate(trained / "run", "train", data=tmp_path / "parts")["n"] == 6


def test_what_it_has_seen_is_not_known_where_its_images_are_gone(
    moved: tuple[smallvit.Run, Path], tmp_path: Path
) -> None:
    run, _ = moved
    make_folder(tmp_path / "other", {"cat": 3, "dog": 2})
    done = run_here("evaluate", run.path, "--data", tmp_path / "other")
    assert done.status == 0 and "how many of them it was trained on cannot be said" in done.out


def test_a_place_that_is_none_is_named(tmp_path: Path) -> None:
    run = shutil.copytree(PROJECT / "tests" / "runs_0_1" / "finished", tmp_path / "run")
    (run / "moved.json").write_text('{"source": 3}')
    fails(run_here("diagnose", run, "--images", "8"), 1, "moved.json", "source = 3")
