"""`--lists train.txt,val.txt,test.txt`: lists of images with a path and a label a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import QUICK, ends_well, fails, make_folder, run_here
from smallvit import Run
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import Where, open_source
from smallvit.errors import DataError, UsageError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Classes in folders, and lists in the manner of GEM: no endings, numbers as labels."""
    folder = make_folder(tmp_path / "photos", {"Forest": 6, "AnnualCrop": 6})
    for part, rows in (("train1", range(3)), ("val1", range(3, 4)), ("test1", range(4, 6))):
        lines = [f"{klass}/{row:03d} {label}\n" for label, klass in enumerate(("Forest", "AnnualCrop")) for row in rows]
        (tmp_path / f"{part}.txt").write_text("".join(lines))
    return folder


def load(photos: Path, lists: str, labelled: bool = True) -> ImageSet:
    return open_source(Where(str(photos), lists=lists), labelled).load(8, "crop", 3)


def write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_parts_and_classes(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    images = load(photos, "train1.txt,val1.txt,test1.txt")
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 6, "val": 2, "test": 4}
    assert images.class_names == ("Forest", "AnnualCrop"), "in the order of the numbers, called as the folders"
    assert images.files[0] == "Forest/000.png"
    assert images.labels_N[images.parts["test"]].tolist() == [0, 0, 1, 1]
    again = load(photos, "train=train1.txt,test=test1.txt")
    assert {part: len(rows) for part, rows in again.parts.items()} == {"train": 6, "test": 4}
    assert load(photos, "train1.txt").parts == {}, "train alone is divided as any other set is"


def test_names_that_say_nothing_are_taken_in_order(photos: Path, tmp_path: Path) -> None:
    names = [write(tmp_path / name, *(f"{klass}/00{row}.png,{klass}" for klass in ("Forest", "AnnualCrop"))) for row, name in enumerate("abc")]  # fmt: skip
    images = load(photos, ",".join(names))
    assert [images.files[int(images.parts[part][0])] for part in ("train", "val", "test")] == ["Forest/000.png", "Forest/001.png", "Forest/002.png"]  # fmt: skip
    with pytest.raises(UsageError, match="which part is it"):
        load(photos, ",".join(names[:2]))


def test_numbers_without_folders_of_their_own_stay_numbers(photos: Path, tmp_path: Path) -> None:
    rows = [
        f"{'Forest' if label % 2 else 'AnnualCrop'}/00{row}.png\t{label}"
        for label in (10, 9, 2, 1)
        for row in [label % 5]
    ]
    source = open_source(Where(str(photos), lists=write(tmp_path / "train.txt", *rows)))
    assert source.load(8, "crop", 3).class_names == ("1", "2", "9", "10")
    assert source.mirrors, "numbers that nobody gave as names say nothing"


def test_images_alone_for_pretraining(photos: Path, tmp_path: Path) -> None:
    name = write(tmp_path / "train.txt", "Forest/000", "Forest/001.png")
    assert len(load(photos, name, labelled=False)) == 2
    with pytest.raises(DataError, match=r"train\.txt, line 1: a path and a label are wanted"):
        load(photos, name)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["Forest/009 0"], r"train\.txt, line 1: no such image: .*Forest/009"),
        (
            ["Forest/000 0", "Forest/000.png 1"],
            r"line 2: 000\.png has the label '0' elsewhere in the lists, and '1' here",
        ),
        ([""], "they name no images"),
        (["Forest/double 0"], r"may be double\.jpg or double\.png"),
    ],
)
def test_bad_lines(lines: list[str], message: str, photos: Path, tmp_path: Path) -> None:
    for ending in (".jpg", ".png"):
        (photos / "Forest" / f"double{ending}").write_bytes(b"x")
    with pytest.raises(DataError, match=message):
        load(photos, write(tmp_path / "train.txt", *lines))


def test_an_image_in_two_parts(photos: Path, tmp_path: Path) -> None:
    write(tmp_path / "train.txt", "Forest/000 0", "AnnualCrop/000 1")
    write(tmp_path / "test.txt", "Forest/000.png 0")
    with pytest.raises(DataError, match="has the part 'train' elsewhere in the lists, and 'test' here"):
        load(photos, f"{tmp_path / 'train.txt'},{tmp_path / 'test.txt'}")


def test_wrong_use(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fails(run_here("train", photos, "--lists", "val1.txt"), 2, "it needs one list for train")
    fails(run_here("train", photos, "--lists", "train9.txt"), 1, "no such file: train9.txt")
    fails(run_here("train", "digits", "--lists", "train1.txt"), 2, "digits is a named set")
    fails(run_here("train", tmp_path / "none", "--lists", "train1.txt"), 1, "data is the folder")


def test_trained_and_evaluated_from_elsewhere(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = ("--lists", "train1.txt,val1.txt,test1.txt", *QUICK, "--img-size", "12", "--out", "run")
    ends_well(run_here("train", "photos", *words))
    monkeypatch.chdir(photos)
    ends_well(run_here("evaluate", tmp_path / "run"))
    ends_well(run_here("check", ".", "--lists", str(tmp_path / "train1.txt"), "--fast", "--img-size", "12"))
    assert "stale" not in ends_well(run_here("cache", "list")).out
    assert Run(tmp_path / "run").recipe.data.lists.startswith(f"train={tmp_path / 'train1.txt'},val=")
