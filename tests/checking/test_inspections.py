"""Every other finding is there when its cause is planted, and not on a clean set."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checked_sets import checked, codes, only
from PIL import Image
from textures import fill, texture

from helpers import forged_png, truncate
from smallvit.checking.rules import FEW_IMAGES


def test_one_class(tmp_path: Path) -> None:
    report = checked(fill(tmp_path, {"cat": 12}))
    assert "cat" in only(report, "one-class").message
    assert "unusable" not in codes(report)
    assert report.recipe is None
    assert not report.ok


def test_a_class_without_training_images(own: Path) -> None:
    fill(own, {"test/bird": 3})
    report = checked(own)
    assert "bird" in only(report, "untrained-class").message
    assert not report.ok


def test_groups_in_two_parts_are_an_error(own: Path) -> None:
    rows = [(path, path.parent.name, path.parents[1].name) for path in sorted(own.rglob("*.png"))]
    lines = [f"{path},{label},{part},{path.stem}" for path, label, part in rows]
    table = own / "set.csv"
    table.write_text("\n".join(["path,label,split,group", *lines]) + "\n")
    report = checked(table)
    torn = only(report, "torn-groups")
    assert not report.ok and "of the groups in the test part have training images, too" in torn.message
    assert torn.advice.startswith("Put each into one part")
    table.write_text(
        "\n".join(["path,label,split,group", *(f"{line}-{number}" for number, line in enumerate(lines))]) + "\n"
    )
    assert "torn-groups" not in codes(checked(table))


def test_images_outside_of_the_class_folders(own: Path, tmp_path: Path) -> None:
    elsewhere = fill(tmp_path / "elsewhere", {"more": 3})
    shutil.copy(own / "train" / "cat" / "004.png", own / "train" / "loose.png")
    (own / "train" / "cat" / "linked").symlink_to(elsewhere / "more", target_is_directory=True)
    (own / "train" / "owl").symlink_to(elsewhere / "more", target_is_directory=True)  # a class: it is followed
    report = checked(own)
    assert only(report, "outside-classes").files == ("train/cat/linked", "train/loose.png")
    assert report.facts["classes"]["owl"]["all"] == 3


def test_whatever_stops_training_is_an_error(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    fill(root, {"lonely": 1})
    report = checked(root)
    assert "'lonely'" in only(report, "unusable").message
    assert report.facts["images"] == 501  # the rest of the report is there


def test_a_few_broken_files_are_a_warning(own: Path) -> None:
    (own / "train" / "cat" / "empty.png").write_bytes(b"")
    truncate(own / "test" / "dog" / "003.png")
    forged_png(own / "train" / "dog" / "huge.png", 60_000, 60_000)
    report = checked(own)
    found = only(report, "unreadable")
    assert report.ok
    assert "3 of 182 files are not readable" in found.message
    assert all(kind in found.message for kind in ("1 empty", "1 damaged", "1 too large"))
    assert {line.split(":")[0] for line in found.files} == {
        "train/cat/empty.png",
        "test/dog/003.png",
        "train/dog/huge.png",
    }


@pytest.mark.parametrize("damage", [truncate, lambda path: path.write_bytes(b"")])
def test_many_broken_files_are_an_error(own: Path, damage: Callable[[Path], object]) -> None:
    """Empty files show in their headers, truncated ones when they are decoded."""
    for number in range(12):
        damage(own / "train" / "cat" / f"{number:03d}.png")
    report = checked(own)
    found = only(report, "many-unreadable")
    assert len(found.files) == 12
    assert "unusable" not in codes(report)
    assert not report.ok


def test_few_images_and_imbalance(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    fill(root, {"rare": 8})
    report = checked(root)
    assert "rare (6)" in only(report, "few-images").message
    assert "a has 200 training images, 33 times as many as rare (6)" in only(report, "imbalance").message
    assert report.ok
    assert codes(checked(clean, per_class=FEW_IMAGES)) == set()


def test_the_part_that_judges(clean: Path, tmp_path: Path) -> None:
    small = only(checked(fill(tmp_path, {"a": 100, "b": 100})), "small-test")
    assert "the test part has 40 images" in small.message
    assert "15 points" in small.message
    assert codes(checked(clean, test="none", val="none")) == {"no-test"}


def test_a_budget_that_is_too_short_is_one_finding_among_others(tmp_path: Path) -> None:
    report = checked(fill(tmp_path, {"a": 200, "b": 20}), budget=0.05)
    assert "the budget of 0 s leaves" in only(report, "unusable").message and report.recipe is None and not report.ok
    assert "imbalance" in codes(report)


def test_sizes_shapes_and_enlarging(tmp_path: Path) -> None:
    root = fill(tmp_path, {"a": 30, "b": 30}, size=(200, 80))
    fill(root, {"c": 30}, size=(16, 16))
    report = checked(root, img_size=64)
    assert "from 16 to 80 px" in only(report, "sizes").message
    assert "60 of 90 images are at least 2 times as long as wide (67 %)" in only(report, "shapes").message
    assert "30 of 90 images" in only(report, "enlarged").message
    assert (
        "Most are large enough" in only(report, "enlarged").advice
        and "loses nothing" not in only(report, "enlarged").advice
    )
    assert {"sizes", "shapes", "enlarged"} & codes(checked(root, fit="pad", img_size=16)) == {"sizes"}


def test_grey_among_colour(own: Path) -> None:
    for number in range(4):
        path = own / "train" / "cat" / f"{number:03d}.png"
        Image.open(path).convert("L").save(path)
    found = only(checked(own), "some-grey")
    assert "4 of 180 files are grey" in found.message
    assert "4 in cat" in found.message
    assert codes(checked(own, in_chans=1)) == set()


def test_grey_stored_as_colour(own: Path) -> None:
    for path in own.rglob("*.png"):
        Image.open(path).convert("L").convert("RGB").save(path)
    assert codes(checked(own)) == {"stored-colour"}


def test_blank_images(own: Path) -> None:
    for part in ("train", "test"):
        Image.new("RGB", (32, 32), "black").save(own / part / "dog" / "black.png")
    report = checked(own)
    assert codes(report) == {"blank"}
    assert only(report, "blank").files == ("test/dog/black.png", "train/dog/black.png")


def test_patches_that_are_too_large(parted: Path) -> None:
    report = checked(parted, settings={"model.kwargs.patch_size": 16})
    assert "32 px images as 2 x 2 cells" in only(report, "few-tokens").message
    assert codes(checked(parted, model="resnet18")) == {"few-tokens"}
    assert codes(checked(parted, model="resnet18_32")) == set()


def test_a_batch_larger_than_the_set(parted: Path) -> None:
    report = checked(parted, batch_size=512)
    assert "batch size 512 is larger than the 60 training images" in only(report, "large-batch").message
    assert not report.ok
    assert report.recipe is not None
    assert codes(checked(parted, batch_size=32)) == set()


def test_files_that_are_not_looked_at(own: Path) -> None:
    (own / "notes.txt").write_text("x")
    report = checked(own)
    assert only(report, "other-files").severity == "note"
    for number in range(20):
        (own / "train" / "cat" / f"{number}.HEIC").write_bytes(b"x")
    (own / "train" / "fox").mkdir()
    report = checked(own)
    assert "20 .heic" in only(report, "ignored-files").message
    assert "train/fox" in only(report, "empty-class").message


def test_large_files_are_a_note(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smallvit.checking.rules.HUGE_PIXELS", 5_000)
    texture("large", (100, 90)).save(own / "train" / "cat" / "large.png")
    assert only(checked(own), "huge-files").files == ("train/cat/large.png: 100 x 90",)
