"""Folders, .npz files and named sets become an ImageSet, or an error that names the file and the reason."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import forged_png, make_folder, noise_image, shared_data, truncate, write_npz
from smallvit.data.imageset import ImageSet
from smallvit.data.named.declared import named_sets
from smallvit.data.sources import open_source
from smallvit.errors import DataError


def load(path: str | Path, size: int = 12, channels: int = 3) -> ImageSet:
    return open_source(str(path)).load(size, "crop", channels)


def counts(images: ImageSet) -> dict[str, int]:
    found = torch.bincount(images.labels_N, minlength=len(images.class_names))
    return dict(zip(images.class_names, found.tolist(), strict=True))


# ---- a folder of class folders -----------------------------------------------------------------------


def test_folder_of_class_folders(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 3, "ant": 2, "dog": 4})
    images = load(tmp_path)
    assert images.class_names == ("ant", "cat", "dog")
    assert counts(images) == {"ant": 2, "cat": 3, "dog": 4}
    assert images.parts == {}
    assert images.images_NCSS.shape == (9, 3, 12, 12)
    assert images.skipped == ()


def test_row_label_name_and_pixels_belong_together(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 3, "ant": 2})
    images = load(tmp_path)
    for row, file in enumerate(images.files):
        klass, name = Path(file).parts
        assert images.class_names[images.labels_N[row]] == klass
        expected = np.asarray(noise_image(f"{klass}/{int(Path(name).stem)}"))
        assert np.array_equal(images.images_NCSS[row].permute(1, 2, 0).numpy(), expected)


def test_images_deeper_below_belong_to_the_class_folder(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat/2023/may": 2, "cat/2024": 1, "dog": 2})
    assert counts(load(tmp_path)) == {"cat": 3, "dog": 2}


def test_hidden_and_other_files_are_left_out(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 2, "dog": 2, ".trash": 2, "__MACOSX": 2, "cat/.thumbnails": 2})
    for name in ("._000.png", ".DS_Store", "notes.txt", "000.json", "000.png.bak", "Thumbs.db"):
        (tmp_path / "cat" / name).write_bytes(b"not an image")
    (tmp_path / "labels.csv").write_text("000.png,cat\n")
    images = load(tmp_path)
    assert counts(images) == {"cat": 2, "dog": 2}
    assert images.skipped == ()


def test_images_outside_of_the_class_folders_are_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_folder(tmp_path / "set", {"cat": 3, "dog": 3})
    (folder / "cat" / "002.png").rename(folder / "loose.png")
    (folder / "dog" / "more").symlink_to(make_folder(tmp_path / "more", {"a": 2}), target_is_directory=True)
    assert counts(load(folder)) == {"cat": 2, "dog": 3}
    said = capsys.readouterr().err
    assert f"1 image is beside the class folders, as {folder / 'loose.png'}: left out" in said
    assert f"1 folder is only linked from {folder / 'dog'}, as {folder / 'dog' / 'more'}: left out" in said


def test_suffix_in_capitals_and_several_formats(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 2}, suffix=".PNG")
    make_folder(tmp_path, {"dog": 2}, suffix=".jpeg")
    make_folder(tmp_path, {"dog": 2}, suffix=".bmp")
    assert counts(load(tmp_path)) == {"cat": 2, "dog": 4}


def test_empty_class_folder_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path, {"cat": 2, "dog": 2, "owl": 0})
    assert load(tmp_path).class_names == ("cat", "dog")
    assert f"note: {tmp_path / 'owl'} holds no images: left out" in capsys.readouterr().err


def test_grey_only_where_all_files_are(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 2, "dog": 2}, mode="L")
    assert open_source(str(tmp_path)).channels == 1
    noise_image("x").save(tmp_path / "dog" / "colour.png")
    assert open_source(str(tmp_path)).channels == 3


def test_side_is_the_typical_shorter_side(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 3}, size=(50, 20))
    make_folder(tmp_path, {"dog": 1}, size=(400, 300))
    assert open_source(str(tmp_path)).side == 20


def test_links_to_folders_and_files_are_followed(tmp_path: Path) -> None:
    real = make_folder(tmp_path / "elsewhere", {"cat": 2, "dog": 2})
    folder = make_folder(tmp_path / "set", {"owl": 2})
    (folder / "cat").symlink_to(real / "cat", target_is_directory=True)
    (folder / "dog").mkdir()
    (folder / "dog" / "a.png").symlink_to(real / "dog" / "000.png")
    assert counts(load(folder)) == {"cat": 2, "dog": 1, "owl": 2}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes any bytes as a file name")
def test_names_that_are_not_utf8_can_be_read_stored_and_told_apart(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 2})
    for name in (b"caf\xe9", b"caf\xe8"):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        shutil.copytree(tmp_path / "cat", folder)
    images = load(tmp_path)
    assert images.class_names == ("caf\\xe8", "caf\\xe9", "cat")
    "".join([*images.class_names, *images.files]).encode()  # raises where a name cannot be stored


# ---- parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [("train", "val", "test"), ("training", "valid", "testing"), ("Train", "validation", "TEST")],
)
def test_part_folders(tmp_path: Path, train: str, val: str, test: str) -> None:
    sizes = {train: 4, val: 2, test: 3}
    make_folder(tmp_path, {f"{part}/{klass}": n for part, n in sizes.items() for klass in ("cat", "dog")})
    images = load(tmp_path)
    assert images.class_names == ("cat", "dog")
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 8, "val": 4, "test": 6}
    for part, folder in (("train", train), ("val", val), ("test", test)):
        assert all(images.files[row].startswith(folder + os.sep) for row in images.parts[part])


def test_train_and_test_only(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2, "test/a": 1, "test/b": 1})
    assert sorted(load(tmp_path).parts) == ["test", "train"]


def test_a_lone_train_folder_is_no_split(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2})
    images = load(tmp_path)
    assert images.parts == {}
    assert images.class_names == ("a", "b")


def test_unlabelled_test_folder_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2, "test": 3})
    assert len(load(tmp_path)) == 4
    assert "left out: test" in capsys.readouterr().err


def test_folder_beside_parts_is_no_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2, "val/a": 2, "val/b": 2, "docs": 1})
    images = load(tmp_path)
    assert images.class_names == ("a", "b")
    assert "left out: docs" in capsys.readouterr().err


def test_a_part_beside_the_classes_is_no_class(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 2, "dog": 2, "test/cat": 2, "test/dog": 2})
    with pytest.raises(
        DataError, match=r"test holds folders that are named like the classes .* put the others into .*/train/"
    ):
        open_source(str(tmp_path))
    make_folder(tmp_path / "other", {"cat": 2, "test": 2, "val/inner": 2})
    assert load(tmp_path / "other").class_names == ("cat", "test", "val")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train": 2, "bus": 2, "car": 2})
    assert load(tmp_path).class_names == ("bus", "car", "train")


def test_parts_without_train(tmp_path: Path) -> None:
    make_folder(tmp_path, {"val/a": 2, "test/a": 2})
    with pytest.raises(DataError, match="holds test, val but no train folder"):
        open_source(str(tmp_path))


def test_train_folder_without_class_folders(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train": 2, "test": 2})
    with pytest.raises(DataError, match=r"train folder of .* holds no class folders"):
        open_source(str(tmp_path))


# ---- what cannot be read -----------------------------------------------------------------------------


def test_missing_folder_and_near_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such folder or file: .*nowhere"):
        open_source(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="did you mean mnist5k"):
        open_source("mnist5")


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no folders and no images"):
        open_source(str(tmp_path))


def test_images_without_class_folders(tmp_path: Path) -> None:
    make_folder(tmp_path, {".": 3})
    with pytest.raises(DataError, match="images, but no class folders: put the images of each class into a folder"):
        open_source(str(tmp_path))


def test_class_folders_without_images(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 0, "dog": 0})
    (tmp_path / "cat" / "a.txt").write_text("a")
    with pytest.raises(DataError, match=r"no images below .* \(looked for .*\.png"):
        open_source(str(tmp_path))


def test_a_file_that_is_no_set(tmp_path: Path) -> None:
    (tmp_path / "photos.zip").write_bytes(b"PK")
    with pytest.raises(
        DataError,
        match=r"data is a folder of class folders, a \.csv file of path,label, an \.npz file, hf:NAME, or a named set",
    ):
        open_source(str(tmp_path / "photos.zip"))


def damaged_folder(tmp_path: Path, good: int) -> Path:
    """Four files that fail in four ways, two of them only when they are decoded, among `good` whole ones."""
    make_folder(tmp_path, {"cat": good // 2, "dog": good - good // 2})
    (tmp_path / "cat" / "empty.png").touch()
    (tmp_path / "cat" / "text.jpg").write_text("hello")
    forged_png(tmp_path / "dog" / "bomb.png", 40_000, 40_000)
    noise_image("x", (64, 64)).save(tmp_path / "dog" / "cut.png")
    truncate(tmp_path / "dog" / "cut.png")
    return tmp_path


def test_a_few_damaged_files_are_skipped_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = damaged_folder(tmp_path, good=76)  # 4 of 80 are 5 %
    for _ in range(2):  # decoded, then from the cache
        images = load(folder)
        assert len(images) == 76
        assert counts(images) == {"cat": 38, "dog": 38}
        assert {Path(item.file).name for item in images.skipped} == {"empty.png", "text.jpg", "bomb.png", "cut.png"}
        assert "skipped 4 of 80 files, the first: " in capsys.readouterr().err
    for row, file in enumerate(images.files):  # no row has slipped
        klass, name = Path(file).parts
        expected = np.asarray(noise_image(f"{klass}/{int(Path(name).stem)}"))
        assert np.array_equal(images.images_NCSS[row].permute(1, 2, 0).numpy(), expected)


def test_many_damaged_files_stop_with_a_list(tmp_path: Path) -> None:
    folder = damaged_folder(tmp_path, good=75)
    with pytest.raises(DataError) as error:
        load(folder)
    first, *listed = str(error.value).splitlines()
    assert first == f"4 of 79 images of {folder} cannot be read:"
    assert f"  {folder / 'cat' / 'empty.png'}: the file is empty" in listed
    assert len(listed) == 4


def test_a_long_list_of_damaged_files_is_cut(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 1, "dog": 1})
    for number in range(50):
        (tmp_path / "cat" / f"x{number}.png").touch()
    with pytest.raises(DataError, match=r"and 30 more$"):
        load(tmp_path)


def test_dangling_link_is_an_unreadable_file(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 20, "dog": 20})
    (tmp_path / "cat" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    images = load(tmp_path)
    assert [(item.file, item.why) for item in images.skipped] == [
        (str(Path("cat", "gone.png")), "No such file or directory")
    ]


def test_a_class_of_which_nothing_can_be_read_is_not_dropped_silently(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 20, "dog": 20, "owl": 0})
    (tmp_path / "owl" / "x.png").touch()
    with pytest.raises(DataError, match="no image of class 'owl'"):
        load(tmp_path)


# ---- .npz --------------------------------------------------------------------------------------------


def test_npz_with_train_alone_has_no_parts(tmp_path: Path) -> None:
    images = load(write_npz(tmp_path / "a.npz"), size=8)
    assert images.parts == {}
    assert images.class_names == ("0", "1", "2", "3")
    assert images.files[3] == "a.npz:train[3]"
    with np.load(tmp_path / "a.npz") as arrays:
        assert np.array_equal(images.images_NCSS.permute(0, 2, 3, 1).numpy(), arrays["x_train"])
        assert np.array_equal(images.labels_N.numpy(), arrays["y_train"])


def test_npz_with_all_parts_and_names(tmp_path: Path) -> None:
    x, y = np.zeros((4, 8, 8, 3), np.uint8), np.arange(4).reshape(4, 1)  # CIFAR's labels are a column
    path = write_npz(
        tmp_path / "a.npz", x_val=x, y_val=y, x_test=x + 9, y_test=y, class_names=np.array(["a", "b", "c", "d"])
    )
    images = load(path, size=8)
    assert images.class_names == ("a", "b", "c", "d")
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 20, "val": 4, "test": 4}
    assert images.images_NCSS[images.parts["test"]].unique().tolist() == [9]
    assert images.labels_N[images.parts["val"]].tolist() == [0, 1, 2, 3]
    other = write_npz(
        tmp_path / "b.npz", x_valid=x, y_valid=y, class_names=np.array([b"a", "\u00e9".encode(), b"c", b"d"])
    )
    images = load(other, size=8)
    assert images.class_names == ("a", "\u00e9", "c", "d") and len(images.parts["val"]) == 4


@pytest.mark.parametrize("channels", [0, 1])
def test_grey_npz(tmp_path: Path, channels: int) -> None:
    source = open_source(str(write_npz(tmp_path / "a.npz", channels=channels)))
    assert (source.side, source.channels) == (8, 1)
    colour = source.load(8, "crop", 3).images_NCSS
    assert colour.shape == (20, 3, 8, 8)
    assert torch.equal(colour[:, 0], colour[:, 2])


def test_npz_colour_to_grey_is_luma(tmp_path: Path) -> None:
    red = np.zeros((4, 8, 8, 3), np.uint8)
    red[..., 0] = 255
    images = load(write_npz(tmp_path / "a.npz", n=4, x_train=red), size=8, channels=1)
    assert images.images_NCSS.shape == (4, 1, 8, 8)
    assert images.images_NCSS.unique().tolist() == [76]


def test_npz_labels_need_not_start_at_zero(tmp_path: Path) -> None:
    images = load(write_npz(tmp_path / "a.npz", y_train=np.array([1, 10] * 10)), size=8)
    assert images.class_names == ("1", "10")
    assert images.labels_N.tolist() == [0, 1] * 10


@pytest.mark.parametrize("name", ["x", "images", "x_train"])
def test_npz_of_images_alone_where_no_labels_are_needed(tmp_path: Path, name: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    path = write_npz(tmp_path / "a.npz", **{"x_train": None, "y_train": None, name: pixels})
    images = open_source(str(path), labelled=False).load(8, "crop", 3)
    assert images.class_names == ("unlabelled",) and images.labels_N.tolist() == [0] * 5 and images.parts == {}
    assert images.files[3] == f"a.npz:{name}[3]"
    assert torch.equal(images.images_NCSS[torch.tensor([2])][0], torch.from_numpy(pixels[2]).permute(2, 0, 1))
    with pytest.raises(DataError, match=rf"a\.npz has {name} but no labels: .*only `smallvit pretrain` does without"):
        open_source(str(path))
    named = open_source(str(write_npz(tmp_path / "b.npz")), labelled=False).load(8, "crop", 3)
    assert len(named.class_names) == 4  # labels that are there are used


def test_npz_of_another_size_is_fitted(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", n=2, classes=2, x_train=np.full((2, 10, 20, 3), 50, np.uint8))
    images = open_source(str(path)).load(6, "pad", 3).images_NCSS
    assert images.shape == (2, 3, 6, 6)
    assert images[:, :, 0].max() == 0
    assert images[:, :, 3].unique().tolist() == [50]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": None, "images": np.zeros(3)}, "has no x_train; it holds y_train, images"),
        ({"y_train": None}, "has x_train but no labels: it has no y_train"),
        ({"x_train": None, "y_train": None, "z": np.zeros(3)}, "has no x_train and no y_train; it holds z"),
        ({"x_test": np.zeros((2, 8, 8, 3), np.uint8)}, "has x_test but no y_test"),
        ({"x_train": np.zeros((20, 8, 8, 3), np.float32)}, "x_train is float32 .* must be uint8"),
        ({"x_train": np.zeros((20, 3, 8, 8), np.uint8)}, r"looks like N x C x H x W; save it as N x H x W x C"),
        ({"x_train": np.zeros((20, 8, 8, 65), np.uint8)}, "must be uint8, N x H x W or N x H x W x C"),
        ({"x_train": np.zeros((0, 8, 8, 3), np.uint8), "y_train": np.zeros(0, int)}, "x_train is uint8"),
        ({"y_train": np.arange(19)}, "y_train must hold 20 whole numbers"),
        ({"y_train": np.linspace(0, 1, 20)}, "y_train must hold 20 whole numbers"),
        ({"y_train": np.arange(20) - 1}, "label -1 is negative"),
        ({"class_names": np.array(["a", "b"])}, "label 3 has no name: class_names holds 2"),
        ({"class_names": np.array(["a", "b", "b", "c"])}, "class_names has b more than once"),
        ({"x_val": np.zeros((1, 8, 8, 3), np.uint8), "x_valid": np.zeros((1, 8, 8, 3), np.uint8)}, "has x_val and x_valid: two"),
        (
            {"x_val": np.zeros((1, 9, 9, 3), np.uint8), "y_val": np.zeros(1, int)},
            r"the parts differ in size: \(8, 8, 3\), \(9, 9, 3\)",
        ),
        ({"y_train": np.array([object()] * 20)}, "cannot read .*allow_pickle"),
    ],
)  # fmt: skip
def test_npz_that_is_no_image_set(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_source(str(write_npz(tmp_path / "a.npz", **arrays)))


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "text", "empty"])
def test_damaged_npz(tmp_path: Path, damage: str) -> None:
    path = write_npz(tmp_path / "a.npz")
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "truncated": content[:middle],
            "overwritten": content[: middle - 50] + b"\xff" * 100 + content[middle + 50 :],
            "text": b"hello",
            "empty": b"",
        }[damage]
    )
    with pytest.raises(DataError, match=r"cannot read .*a\.npz"):
        open_source(str(path))


# ---- mirrored images ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "mirrors"),
    [
        ("01", True),
        ("01234", True),
        ("0123456789", False),
        ("38", False),
        ("abc", False),
        ("12", True),
        ("12345", True),
        ("123456789", False),
        (("cat", "d"), True),
        ([f"{number:02d}" for number in range(10)], False),
        (("01", "02", "03"), True),
        (("007", "42"), True),
        (("left", "right"), False),
        (("turn_left", "Turn Right", "turn_right", "stop"), False),
        (("Hand-Left", "Hand-Right"), False),
        (("leftover", "rightover"), True),
        (("left", "straight"), True),
    ],
)
def test_signs_are_not_mirrored_but_numbers_for_something_else_are(
    names: Sequence[str], mirrors: bool, tmp_path: Path
) -> None:
    assert open_source(str(make_folder(tmp_path, dict.fromkeys(names, 2)))).mirrors is mirrors


# ---- named sets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n", "side"), [("mnist5k", 5_000, 28), ("digits", 1_797, 8)])
def test_named_sets(name: str, n: int, side: int) -> None:
    source = open_source(name)
    assert (source.side, source.channels, source.mirrors) == (side, 1, False)
    images = source.load(side, "crop", 1)
    assert len(images) == n
    assert images.class_names == tuple("0123456789")
    assert images.images_NCSS.max() == 255
    assert images.images_NCSS.min() == 0
    assert named_sets()[name].line.startswith(f"{n:,} ")


def test_named_set_wins_over_a_folder_of_its_name_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(Path("digits"), {"a": 2, "b": 2})
    assert len(load("digits", 8, 1)) == 1_797
    assert "for the folder of that name write ./digits" in capsys.readouterr().err
    assert len(load("./digits")) == 4


# ---- the fingerprint ---------------------------------------------------------------------------------


def test_fingerprint_is_of_content_not_of_place(tmp_path: Path) -> None:
    one, two = (load(make_folder(tmp_path / name, {"cat": 2, "dog": 2})) for name in ("one", "two"))
    assert one.fingerprint == two.fingerprint
    assert len(one.fingerprint) == 32


def test_fingerprint_changes_with_one_pixel(tmp_path: Path) -> None:
    before = load(make_folder(tmp_path, {"cat": 2, "dog": 2})).fingerprint
    with Image.open(tmp_path / "dog" / "001.png") as opened:
        image = opened.copy()
    red, green, blue = image.getpixel((3, 3))  # type: ignore[misc]
    image.putpixel((3, 3), (red ^ 1, green, blue))
    image.save(tmp_path / "dog" / "001.png")
    assert load(tmp_path).fingerprint != before


def test_fingerprint_changes_with_one_label(tmp_path: Path) -> None:
    labels = np.arange(20) % 4
    before = load(write_npz(tmp_path / "a.npz", y_train=labels), 8).fingerprint
    labels[7] = 0
    assert load(write_npz(tmp_path / "a.npz", y_train=labels), 8).fingerprint != before


# ---- real sets ---------------------------------------------------------------------------------------


def test_clothing() -> None:
    images = load(shared_data("clothing10_cc0_64"), size=64)
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 3068, "val": 341, "test": 372}
    assert len(images.class_names) == 10
    assert "t-shirt" in images.class_names
    assert images.skipped == ()


def test_flowers() -> None:
    images = load(shared_data("flowers102_64"), size=64)
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 1020, "val": 1020, "test": 1770}
    assert images.class_names == tuple(f"{number:03d}" for number in range(1, 103))
    assert torch.bincount(images.labels_N[images.parts["train"]]).unique().tolist() == [10]


def test_cifar() -> None:
    source = open_source(str(shared_data("cifar10_10k2k_32.npz")))
    assert (source.side, source.channels) == (32, 3)
    images = source.load(32, "crop", 3)
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 10_000, "test": 2_000}
    assert images.class_names[3] == "cat"
    assert torch.bincount(images.labels_N).unique().tolist() == [1_200]


def test_training_images_alone_are_no_split(tmp_path: Path) -> None:
    """Where nothing of the test part can be read, a part of the training images is held out, as it is of a table."""
    folder = make_folder(tmp_path / "photos", {"train/a": 12, "train/b": 12})
    for name in ("a", "b"):
        (folder / "test" / name).mkdir(parents=True)
    images = open_source(str(folder)).load(8, "crop", 3)
    assert images.parts == {}
