"""Copies are leaks between parts, conflicts of labels or mere duplicates; each is there when it is planted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checked_sets import checked, codes, only
from PIL import Image
from textures import crop, jpeg


@pytest.mark.parametrize(("one", "other"), [("train", "test"), ("train", "val"), ("val", "test")])
def test_the_same_file_in_two_parts_is_a_leak(own: Path, one: str, other: str) -> None:
    shutil.copy(own / one / "cat" / "004.png", own / other / "cat" / "x.png")
    report = checked(own)
    leak = only(report, "leak")
    assert not report.ok
    assert leak.files == (f"{other}/cat/x.png = {one}/cat/004.png",)
    total = {"val": 21, "test": 101}[other]
    assert leak.message.startswith(f"1 of {total} {'validation' if other == 'val' else 'test'} images is")
    assert "1 identical, 0 nearly" in leak.message


def test_a_near_copy_in_two_parts_is_a_leak(own: Path) -> None:
    image = Image.open(own / "train" / "cat" / "004.png")
    jpeg(50)(crop(0.05, 0.0, 0.05, 0.0)(image)).save(own / "test" / "cat" / "x.jpg")
    leak = only(checked(own, fast=False), "leak")
    assert leak.files == ("test/cat/x.jpg ~ train/cat/004.png",)
    assert "0 identical, 1 nearly" in leak.message
    assert "Remove" in leak.advice
    assert codes(checked(own)) == set()  # what --fast leaves out


def test_copies_leak_from_fold_to_fold(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    for number in range(40):
        shutil.copy(root / "a" / f"{number:03d}.png", root / "a" / f"copy{number}.png")
    report = checked(root, folds=3)
    assert "left-out images" in only(report, "leak").message and not report.ok
    assert "no-test" not in codes(report), "every image is judged by the fold that left it out"


def test_copies_leak_through_a_split_that_smallvit_makes(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    for number in range(40):
        shutil.copy(root / "a" / f"{number:03d}.png", root / "a" / f"copy{number}.png")
    report = checked(root)
    leaks = [problem for problem in report.problems if problem.code == "leak"]
    assert leaks
    assert "smallvit divides this set itself" in leaks[0].advice
    assert "bursts" in leaks[0].advice
    assert len(report.duplicates) == 40


def test_copies_within_a_part_are_a_warning(own: Path) -> None:
    for number in range(3):
        shutil.copy(own / "train" / "cat" / f"{number:03d}.png", own / "train" / "cat" / f"x{number}.png")
    Image.open(own / "train" / "dog" / "001.png").save(own / "train" / "dog" / "same.bmp")
    report = checked(own)
    found = only(report, "duplicates")
    assert report.ok
    assert found.files[0] == "train/cat/000.png = train/cat/x0.png"
    assert found.message.startswith("4 images are")
    assert "3 files are byte for byte the same" in found.message


def test_one_picture_under_two_labels(own: Path) -> None:
    shutil.copy(own / "train" / "cat" / "004.png", own / "train" / "dog" / "x.png")
    report = checked(own)
    assert only(report, "many-conflicts").files == ("train/cat/004.png = train/dog/x.png",)
    assert not report.ok
    assert "duplicates" not in codes(report)  # once is enough


def test_a_copy_beside_a_conflict(own: Path) -> None:
    shutil.copy(own / "train" / "cat" / "004.png", own / "train" / "dog" / "x.png")
    shutil.copy(own / "train" / "cat" / "005.png", own / "train" / "cat" / "y.png")
    report = checked(own)
    assert only(report, "many-conflicts").files == ("train/cat/004.png = train/dog/x.png",)
    assert only(report, "duplicates").files == ("train/cat/005.png = train/cat/y.png",)
    assert "1 file is byte for byte the same" in only(report, "duplicates").message


def test_one_picture_under_two_labels_in_a_large_set_is_a_warning(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    shutil.copy(root / "a" / "004.png", root / "b" / "x.png")
    found = only(checked(root), "conflicts")
    assert "1 picture is there under different labels (2 images" in found.message
