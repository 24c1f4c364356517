"""`smallvit check`: what it reports as a whole, of every kind of source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checked_sets import checked, codes, only
from textures import texture

from helpers import shared_data, write_npz
from smallvit.checking.rules import RULES
from smallvit.errors import DataError, UsageError


def test_clean_sets_have_no_problems(clean: Path, parted: Path) -> None:
    report = checked(clean, fast=False)
    assert report.problems == ()
    assert report.ok
    assert report.facts["images"] == 500
    assert report.facts["classes"]["a"] == {"all": 250, "train": 200, "test": 50}
    assert report.recipe is not None
    assert report.seconds is not None and report.seconds > 0
    assert codes(checked(parted)) == set()


def test_the_recipe_is_the_one_that_train_would_use(parted: Path) -> None:
    from smallvit.api import make_recipe
    from smallvit.planning.plan import make_plan

    report = checked(parted, img_size=24, settings={"optimizer.weight_decay": 0.2})
    planned = make_plan(
        make_recipe(data=parted, model="vit_pico", img_size=24, settings={"optimizer.weight_decay": 0.2})
    )
    assert report.recipe == planned.recipe
    assert list(report.choices) == planned.choices


def test_every_rule_is_tested_here() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [code for code in RULES if f'"{code}"' not in text] == []


def test_npz(tmp_path: Path) -> None:
    images = np.stack([np.asarray(texture(f"npz {number}", (32, 32))) for number in range(160)])
    images[-1] = images[0]
    path = tmp_path / "set.npz"
    labels = np.arange(160) % 2
    labels[-1] = labels[0]
    np.savez(path, x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:])
    report = checked(path)
    assert only(report, "leak").files == ("set.npz:test[99] = set.npz:train[0]",)
    assert codes(checked(path, img_size=64)) >= {"enlarged"}


def test_table(parted: Path, tmp_path: Path) -> None:
    lines = [f"{path},{path.parent.name},{path.parent.parent.name}" for path in sorted(parted.rglob("*.png"))]
    table = tmp_path / "set.csv"
    table.write_text("\n".join(["path,label,split", *lines]))
    report = checked(table)
    assert codes(report) == set()
    assert report.facts["parts"] == {"train": 60, "val": 20, "test": 100}


def test_named_sets_are_clean() -> None:
    digits = checked("digits", fast=False)
    assert [problem.code for problem in digits.problems] == ["near-not-searched"]
    assert "8 px" in digits.problems[0].message
    assert digits.duplicates == ()


def test_digits_look_alike() -> None:
    report = checked("mnist5k", fast=False, per_class=20)
    assert codes(report) == {"look-alikes"}
    assert report.duplicates == ()


def test_what_cannot_be_looked_at_is_an_exception(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        checked(tmp_path / "nothing")
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="no images"):
        checked(tmp_path)
    with pytest.raises(UsageError, match="unknown model"):
        checked(write_npz(tmp_path / "x.npz"), model="vit_gigantic_typo")


@pytest.mark.slow
def test_clothing_has_one_picture_under_two_labels() -> None:
    """Hundreds of trousers on the same floor, and one true copy among 3,781 images."""
    report = checked(shared_data("clothing10_cc0_64"), fast=False)
    assert [len(group) for group in report.duplicates] == [2]
    assert {name.split("/")[1] for name in report.duplicates[0]} == {"shorts", "skirt"}
    assert report.ok


@pytest.mark.slow
def test_flowers_leak_between_their_official_parts() -> None:
    report = checked(shared_data("flowers102_64"), fast=False)
    assert not report.ok
    assert ("test/049/image_06244.jpg", "train/049/image_06213.jpg") in report.duplicates
    assert 20 <= len(report.duplicates) <= 35


@pytest.mark.slow
def test_house_numbers_have_no_copies() -> None:
    assert checked(shared_data("svhn_1000_400_32.npz"), fast=False).duplicates == ()
