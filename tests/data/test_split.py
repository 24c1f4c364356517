"""Stratified, seeded, disjoint, exhaustive, nested; and the test part never selects anything."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch

from helpers import shared_data
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.data.split import Split, make_split
from smallvit.errors import DataError, UsageError
from smallvit.recipe import DataSpec


def image_set(*counts: int, **parts: tuple[int, ...]) -> ImageSet:
    """`counts` images of each class in one heap, or the counts of each class in each part."""
    heaps = parts or {"": counts}
    labels = [klass for heap in heaps.values() for klass, count in enumerate(heap) for _ in range(count)]
    rows: dict[str, torch.Tensor] = {}
    start = 0
    for part, heap in heaps.items():
        rows[part] = torch.arange(start, start + sum(heap))
        start += sum(heap)
    names = tuple("abcdefghij"[: max(len(heap) for heap in heaps.values())])
    return ImageSet(
        images_NCSS=torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8),
        labels_N=torch.tensor(labels),
        class_names=names,
        parts=rows if parts else {},
        files=tuple(map(str, range(len(labels)))),
        source="photos",
        fingerprint="",
    )


def split(images: ImageSet, **spec: Any) -> Split:
    return make_split(images, DataSpec(**spec))


def sizes(found: Split) -> tuple[int, int, int]:
    return len(found.train), len(found.val), len(found.test)


def per_class(images: ImageSet, rows: torch.Tensor) -> list[int]:
    return torch.bincount(images.labels_N[rows], minlength=len(images.class_names)).tolist()


PARTED = {"train": (10, 20), "val": (4, 6), "test": (5, 5)}


# ---- a source without parts --------------------------------------------------------------------------


def test_shares_of_every_class() -> None:
    images = image_set(100, 50, 20)
    found = split(images, val=0.15)
    assert per_class(images, found.test) == [20, 10, 4]
    assert per_class(images, found.val) == [12, 6, 2]  # 15 % of what the test part left
    assert per_class(images, found.train) == [68, 34, 14]


def test_nothing_is_held_out_for_validation_unless_asked_for() -> None:
    images = image_set(100, 50, 20)
    found = split(images)
    assert per_class(images, found.test) == [20, 10, 4]
    assert per_class(images, found.train) == [80, 40, 16] and not len(found.val)
    assert torch.equal(found.test, split(images, val=0.15).test)


@pytest.mark.parametrize("spec", [{}, {"val": 0.3, "test": 0.1}, {"val": "none"}, {"test": "none"}, {"split_seed": 5}])
def test_disjoint_and_exhaustive(spec: dict[str, Any]) -> None:
    images = image_set(37, 3, 11)
    found = split(images, **spec)
    assert sorted(torch.cat([found.train, found.val, found.test]).tolist()) == list(range(len(images)))


def test_seed_decides_and_nothing_else() -> None:
    images = image_set(40, 40)
    torch.manual_seed(1)
    first = split(images, val=0.15)
    torch.manual_seed(2)
    again = split(images, val=0.15)
    other = split(images, val=0.15, split_seed=1)
    for part in range(3):
        assert torch.equal(first[part], again[part])  # type: ignore[arg-type]
        assert not torch.equal(first[part], other[part])  # type: ignore[arg-type]


def test_images_are_drawn_not_taken_from_the_front() -> None:
    found = split(image_set(100, 100), test=0.5, val="none")
    of_the_first_half = int((found.test < 50).sum())  # 25 expected, deviation 2.5
    assert 12 < of_the_first_half < 38


def test_val_share_does_not_move_the_test_part() -> None:
    images = image_set(40, 40)
    assert torch.equal(split(images, val=0.1).test, split(images, val=0.5).test)


@pytest.mark.parametrize(("val", "expected"), [("none", 0), (0.5, 40)])
def test_val_none_and_share(val: Any, expected: int) -> None:
    found = split(image_set(50, 50), val=val)
    assert sizes(found) == (80 - expected, expected, 20)


def test_two_images_of_a_class_are_one_each() -> None:
    images = image_set(2, 30)
    found = split(images, test=0.1, val="none")
    assert per_class(images, found.test)[0] == 1
    assert per_class(images, found.train)[0] == 1


def test_no_share_takes_the_last_image_of_a_class() -> None:
    images = image_set(3, 30)
    found = split(images, test=0.9, val="none")
    assert per_class(images, found.train) == [1, 3]


# ---- subsets -----------------------------------------------------------------------------------------


def test_per_class_counts_after_validation() -> None:
    images = image_set(100, 100)
    whole, few = split(images, val=0.15), split(images, val=0.15, per_class=5)
    assert per_class(images, few.train) == [5, 5] and len(whole.val) == 24
    assert torch.equal(few.val, whole.val)
    assert torch.equal(few.test, whole.test)
    assert set(few.train.tolist()) <= set(whole.train.tolist())


def test_fraction_is_of_every_class_after_validation() -> None:
    images = image_set(100, 50)
    assert per_class(images, split(images, val=0.15, fraction=0.25).train) == [17, 8]  # of 68 and 34
    assert per_class(images, split(images, fraction=0.001).train) == [1, 1]
    assert torch.equal(split(images, fraction=1.0).train, split(images).train)


def test_subsets_are_nested() -> None:
    images = image_set(60, 60, 60)
    asked: list[dict[str, Any]] = [{"per_class": 5}, {"per_class": 10}, {"fraction": 0.5}, {"per_class": 40}, {}]
    rows = [set(split(images, **spec).train.tolist()) for spec in asked]
    for smaller, larger in combinations(rows, 2):
        assert smaller < larger


def test_too_many_per_class_names_the_class_and_what_it_has() -> None:
    with pytest.raises(UsageError, match="--per-class 30: class 'b' has 27 images left for training"):
        split(image_set(100, 40), val=0.15, per_class=30)


def test_per_class_and_fraction_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        split(image_set(40, 40), per_class=5, fraction=0.5)


# ---- a source with parts -----------------------------------------------------------------------------


def test_given_parts_are_kept() -> None:
    images = image_set(**PARTED)
    found = split(images)
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(found, part), images.parts[part])
    assert found.how == {
        "train": "the rest",
        "val": "the part val of the source",
        "test": "the part test of the source",
    }


def test_val_is_taken_from_train_where_there_is_none() -> None:
    images = image_set(train=(20, 20), test=(5, 5))
    assert sizes(split(images)) == (40, 0, 10)
    found = split(images, val=0.15)
    assert sizes(found) == (34, 6, 10)
    assert set(found.val.tolist()) <= set(images.parts["train"].tolist())


def test_val_share_beside_a_val_part_comes_from_train() -> None:
    images = image_set(**PARTED)
    found = split(images, val=0.5)
    assert sizes(found) == (15, 15, 10)
    assert set(torch.cat([found.train, found.val]).tolist()) == set(images.parts["train"].tolist())


@pytest.mark.parametrize("name", ["val", "validation", "VALID"])
def test_val_by_the_name_of_its_folder(name: str) -> None:
    images = image_set(**PARTED)
    assert torch.equal(split(images, val=name).val, images.parts["val"])


def test_train_on_both() -> None:
    images = image_set(**PARTED)
    found = split(images, train_on="train+val")
    assert sizes(found) == (40, 0, 10)
    assert set(found.train.tolist()) == set(range(40))


def test_train_on_both_may_hold_out_a_share() -> None:
    found = split(image_set(**PARTED), train_on="train+val", val=0.25)
    assert sizes(found) == (30, 10, 10)


def test_test_on_val_leaves_val_out_of_selection() -> None:
    images = image_set(train=(20, 20), val=(5, 5))
    assert sizes(split(images, test="val")) == (40, 0, 10)
    found = split(images, test="val", val=0.15)
    assert torch.equal(found.test, images.parts["val"])
    assert sizes(found) == (34, 6, 10)
    assert not set(found.val.tolist()) & set(found.test.tolist())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"val": "test"}, "the test part never selects anything"),
        ({"val": "testing"}, "the test part never selects anything"),
        ({"val": "test", "test": "none"}, "the test part never selects anything"),
        ({"val": "val", "test": "val"}, "the test part never selects anything"),
        ({"val": "train"}, "--val train: these images are trained on"),
        ({"test": "train"}, "--test train: these images are trained on"),
        ({"val": "val", "train_on": "train+val"}, "--val val: with --train-on train[+]val these images are trained on"),
        ({"test": "val", "train_on": "train+val"}, "--test val: with --train-on"),
        ({"val": "dev"}, r"--val dev: the source has no such part \(it has train, val, test\)"),
        ({"test": "dev"}, "--test dev: the source has no such part"),
    ],
)
def test_parts_that_cannot_be_used(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split(image_set(**PARTED), **spec)


def test_parts_of_a_source_without_any() -> None:
    with pytest.raises(UsageError, match=r"--train-on train[+]val: photos has no validation part"):
        split(image_set(9, 9), train_on="train+val")
    with pytest.raises(UsageError, match=r"--val val: the source has no such part \(it has no parts\)"):
        split(image_set(9, 9), val="val")


# ---- sources that cannot be split --------------------------------------------------------------------


def test_one_class_only_names_it() -> None:
    with pytest.raises(DataError, match=r"photos has one class only \(a\): there is nothing to tell apart"):
        split(image_set(30))
    with pytest.raises(DataError, match=r"one class only \(b\)"):
        split(image_set(0, 30))


def test_class_with_one_image_is_named() -> None:
    with pytest.raises(DataError, match="one image only is left of class 'b', too few to hold out a test part"):
        split(image_set(30, 1, 30))
    with pytest.raises(DataError, match=r"class 'b', 'c', .*val part.* or give --val none"):
        split(image_set(30, 1, 1), test="none", val=0.15)


def test_many_classes_with_one_image_are_not_all_listed() -> None:
    with pytest.raises(DataError, match="'a', 'b', 'c', 'd', 'e' and 2 more"):
        split(image_set(*[1] * 7, 30))


def test_class_with_one_image_can_be_trained_on() -> None:
    images = image_set(30, 1)
    assert sizes(split(images, test="none", val="none")) == (31, 0, 0)


def test_class_without_training_images_is_named() -> None:
    with pytest.raises(DataError, match="photos: no training images for class 'c'"):
        split(image_set(train=(5, 5, 0), test=(2, 2, 2)))


# ---- real sets ---------------------------------------------------------------------------------------


def test_flowers_train_and_val_are_the_2040_of_the_papers() -> None:
    images = open_source(str(shared_data("flowers102_64"))).load(64, "crop", 3)
    found = split(images, train_on="train+val")
    assert sizes(found) == (2040, 0, 1770)
    assert set(per_class(images, found.train)) == {20}
    assert sizes(split(images)) == (1020, 1020, 1770)


def test_digits_subsets() -> None:
    images = open_source("digits").load(8, "crop", 1)
    five, ten = (split(images, per_class=n) for n in (5, 10))
    assert per_class(images, five.train) == [5] * 10
    assert set(five.train.tolist()) < set(ten.train.tolist())
