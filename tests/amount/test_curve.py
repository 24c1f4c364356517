"""`smallvit curve` as it is typed: nested shares, equal steps, a sentence, a page; resumed where it was stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import smallvit
from helpers import ends_well, fails, make_folder, run_here
from smallvit import Run
from smallvit.amount.shares import read_curve
from smallvit.data.sources import open_source
from smallvit.data.split import make_split
from smallvit.planning.elsewhere import at_share
from smallvit.planning.plan import make_plan
from smallvit.recipe import DataSpec


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("curve")
    make_folder(root / "photos", {"cat": 40, "dog": 40})
    smallvit.curve(
        root / "photos", model="vit_pico", epochs=2, batch_size=8, threads=1, shares=(0.25, 0.5, 1), seeds=1, jobs=2,
        out=root / "curve", show_progress=False,
    )  # fmt: skip
    return root / "curve"


def test_shares_are_nested_and_have_as_many_steps(folder: Path) -> None:
    runs = [Run(folder / f"share-{share}-seed-0") for share in ("0.25", "0.5", "1")]
    parts = [run.read("split.json")["parts"] for run in runs]
    rows = [set(part["train"]["rows"]) for part in parts]
    assert [len(own) for own in rows] == [16, 32, 64] and rows[0] < rows[1] < rows[2]
    assert len({tuple(part["test"]["rows"]) for part in parts}) == 1
    assert [run.recipe.steps for run in runs] == [16, 16, 16] and [run.recipe.epochs for run in runs] == [8, 4, 2]
    assert [run.metrics[-1]["step"] for run in runs] == [16, 16, 16]
    assert runs[0].recipe.data.mean != runs[2].recipe.data.mean, "measured on its own images"


def test_shares_are_of_what_was_asked_for(folder: Path) -> None:
    asked = smallvit.make_recipe(data=folder.parent / "photos", model="vit_pico", epochs=1, fraction=0.5, threads=1)
    plan = make_plan(asked, with_floors=False)
    assert [len(at_share(plan, share, 0).split.train) for share in (0.25, 0.5, 1.0)] == [8, 16, 32]


def test_it_says_what_it_found(folder: Path) -> None:
    found = read_curve(folder)
    assert [point.images for point in found.points] == [16, 32, 64]
    stored = json.loads((folder / "curve.json").read_text())["found"]
    assert (
        stored["sentence"] == found.sentence and "Twice the images" in found.sentence
    ) or "cannot be told" in found.sentence
    assert stored["interval"][0] <= stored["gain_of_twice_the_images"] <= stored["interval"][1] or not stored["telling"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "How many images" in page and "Accuracy against training images. 16 images" in page
    ends_well(run_here("report", folder))
    fails(run_here("evaluate", folder), 2, "several ways to train")


def test_it_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "curve")
    before = read_curve(copy).as_dict()
    for name in ("results.json", "model.safetensors", "predictions.safetensors"):
        (copy / "share-0.5-seed-0" / name).unlink()
    shutil.rmtree(copy / "share-0.5-seed-0" / "state")
    (copy / "share-0.5-seed-0" / "metrics.jsonl").unlink()
    fails(run_here("report", copy), 1, "is not finished: go on with `smallvit resume")
    ends_well(run_here("resume", copy, "-q"))
    assert read_curve(copy).as_dict() == before


@pytest.mark.parametrize("shares", [["x", 1], [], [0.5], [0.5, float("nan")], [0.5, 2], 3])
def test_a_curve_that_was_tampered_with(folder: Path, tmp_path: Path, shares: object) -> None:
    copy = shutil.copytree(folder, tmp_path / "curve")
    (copy / "curve.json").write_text(json.dumps({"shares": shares, "seeds": 1}))
    fails(run_here("report", copy), 1, "curve.json")


def test_shares_of_other_numbers_of_seeds(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "curve")
    group = json.loads((copy / "group.json").read_text())
    shutil.copytree(copy / "share-1-seed-0", copy / "more")
    group["members"].append("more")
    group["axes"]["more"] = {**group["axes"]["share-1-seed-0"], "seed": 1}
    (copy / "group.json").write_text(json.dumps(group))
    fails(run_here("report", copy), 1, "not the same number of seeds")


def test_what_cannot_be(tmp_path: Path) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 10, "dog": 10})
    fails(run_here("curve", photos, "--shares", "0.5,x"), 2, "--shares 0.5,x", "give numbers")
    fails(run_here("curve", photos, "--shares", "0.5,2"), 2, "--shares 2", "up to 1")
    fails(run_here("curve", photos, "--shares", "0.25,0.5"), 2, "give 1 and smaller ones")
    fails(run_here("curve", photos, "--test", "none", "--epochs", "1", "--model", "vit_pico"), 2, "needs a test part")


def test_epochs_may_come_as_a_setting(tmp_path: Path) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 20, "dog": 20})
    found = smallvit.curve(
        photos, model="vit_pico", settings={"epochs": 1}, batch_size=8, threads=1, shares=(0.5, 1), seeds=1,
        out=tmp_path / "c", show_progress=False,
    )  # fmt: skip
    runs = [Run(tmp_path / "c" / f"share-{share}-seed-0").recipe for share in ("0.5", "1")]
    assert len(found.points) == 2 and all(recipe.budget is None for recipe in runs) and runs[1].epochs == 1


def test_the_images_may_be_a_named_set_or_come_by_lists(tmp_path: Path) -> None:
    fails(run_here("curve", "cifar10", "--data-dir", tmp_path), 1, str(tmp_path), "--download")
    photos = make_folder(tmp_path / "photos", {"cat": 4, "dog": 4})
    fails(run_here("curve", photos, "--lists", "absent.txt"), 2, "absent.txt")


def test_two_shares_are_told_before_the_start_to_be_too_few(tmp_path: Path) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 10, "dog": 10})
    words = ("--shares", "0.5,1", "--test", "none", "--epochs", "1", "--model", "vit_pico", "--threads", "1")
    fails(run_here("curve", photos, *words), 2, "2 shares cannot tell what more images would bring: it takes 3")


def test_a_log_is_of_a_single_run(folder: Path) -> None:
    fails(run_here("resume", folder, "--log", "tensorboard"), 2, "--log works with a single run")


def test_another_subset_of_the_same_training_part(tmp_path: Path) -> None:
    images = open_source(str(make_folder(tmp_path / "photos", {"cat": 20, "dog": 20}))).load(12, "crop", 3, 255)
    first, same, other = (
        make_split(images, DataSpec(test=0.2, fraction=0.5, subset_seed=seed)) for seed in (None, 0, 7)
    )
    assert first.train.equal(same.train), "without a seed of its own it is that of the split"
    assert first.test.equal(other.test) and not first.train.equal(other.train) and len(first.train) == len(other.train)
