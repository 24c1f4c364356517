"""Images in memory: every form in which they may be given becomes the same .npz file, and what cannot be used is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset
from torchvision.datasets import ImageFolder

from helpers import make_folder
from smallvit.data.arrays import npz_source
from smallvit.data.images import square_of_array
from smallvit.data.kept import hold, lent
from smallvit.data.sources import open_source
from smallvit.errors import DataError, UsageError

X = np.random.default_rng(0).integers(0, 256, (12, 8, 10, 3), dtype=np.uint8)
Y = np.arange(12) % 3
NAMES = [("ant", "bee", "cow")[label] for label in Y]


class ClassLabel:
    names = ("ant", "bee", "cow")


class Rows:
    """The interface of a Hugging Face Dataset, which is not installed here: rows with columns, and what the columns are."""

    def __init__(self, columns: dict[str, Any], **features: Any) -> None:
        self.columns, self.features = columns, features

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {name: values[row] for name, values in self.columns.items()}


PICTURES = [Image.fromarray(image) for image in X]


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y.tolist()],
        (X, Y[:, None].astype(np.uint8)),
        (torch.tensor(X), torch.tensor(Y)),
        (torch.tensor(X).permute(0, 3, 1, 2), Y),
        (PICTURES, Y),
        (list(X), Y),
        (list(torch.tensor(X).permute(0, 3, 1, 2)), Y),
        TensorDataset(torch.tensor(X).permute(0, 3, 1, 2), torch.tensor(Y)),
        {"train": (X, Y)},
        {"training": TensorDataset(torch.tensor(X), torch.tensor(Y))},
        Rows({"image": PICTURES, "label": Y.tolist()}, image="any", label="whole numbers"),
    ],
)
def test_every_form_is_the_same_file(data: Any, tmp_path: Path) -> None:
    expected = hold((X, Y), tmp_path / "run")
    held = hold(data, tmp_path / "run")
    assert held.source == expected.source
    assert Path(str(held.source)).parent == tmp_path
    held.write()
    images = npz_source(Path(str(held.source))).load(8, "crop", 3)
    np.savez(tmp_path / "by-hand.npz", x_train=X, y_train=Y)
    assert images.fingerprint == npz_source(tmp_path / "by-hand.npz").load(8, "crop", 3).fingerprint
    assert images.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    "data",
    [
        (X, NAMES),
        (X, np.array(NAMES, dtype=object)),
        Rows({"img": PICTURES, "kind": Y.tolist(), "file": NAMES}, img="any", kind=ClassLabel(), file="text"),
    ],
)
def test_class_names(data: Any, tmp_path: Path) -> None:
    with lent(data) as source:
        images = npz_source(Path(str(source))).load(8, "crop", 3)
    assert images.class_names == ("ant", "bee", "cow")
    assert images.labels_N.tolist() == Y.tolist()
    assert not Path(str(source)).exists()


def test_a_torchvision_data_set_keeps_its_names_and_pixels(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "photos", {"cat": 3, "dog": 2})
    with lent(ImageFolder(made)) as source:
        images = npz_source(Path(str(source))).load(12, "crop", 3)
    assert images.class_names == ("cat", "dog")
    assert images.labels_N.tolist() == [0, 0, 0, 1, 1]
    expected = np.asarray(Image.open(made / "dog" / "001.png"))
    assert np.array_equal(images.images_NCSS[torch.tensor([4])][0].permute(1, 2, 0).numpy(), expected)


def test_parts(tmp_path: Path) -> None:
    held = hold({"train": (X[:6], NAMES[:6]), "validation": (X[6:8], NAMES[6:8]), "test": (X[8:], NAMES[8:])}, tmp_path)
    held.write()
    images = npz_source(Path(str(held.source))).load(8, "crop", 3)
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 6, "val": 2, "test": 4}
    assert [images.class_names[label] for label in images.labels_N] == NAMES


def test_other_content_has_another_name_and_the_same_is_written_once(tmp_path: Path) -> None:
    held = hold((X, Y), tmp_path / "run")
    held.write()
    written = Path(str(held.source)).stat().st_mtime_ns
    hold((X, Y), tmp_path / "other").write()
    assert Path(str(held.source)).stat().st_mtime_ns == written
    changed = X.copy()
    changed[0, 0, 0, 0] ^= 1
    sources = {hold(data, tmp_path).source for data in ((X, Y), (changed, Y), (X, Y[::-1]), (X, NAMES), X)}
    assert len(sources) == 5


def test_grey_and_coloured_pictures_together() -> None:
    held = hold(([PICTURES[0].convert("L"), PICTURES[1]], [0, 1]))
    assert held.arrays is not None and held.arrays["x_train"].shape == (2, 8, 10, 3)


def test_images_of_several_sizes_are_files(tmp_path: Path) -> None:
    """As a data set of photos has them."""
    tall = [image.crop((0, 0, 6 + row % 2, 8)) for row, image in enumerate(PICTURES)]
    held = hold({"train": (tall[:9], NAMES[:9]), "test": (tall[9:], NAMES[9:])}, tmp_path / "run")
    held.write()
    images = open_source(str(held.source)).load(6, "crop", 3)
    assert {part: len(rows) for part, rows in images.parts.items()} == {"train": 9, "test": 3}
    assert [images.class_names[label] for label in images.labels_N] == NAMES
    for row, picture in enumerate(tall):
        square = square_of_array(np.array(picture), 6, "crop", 3)
        assert torch.equal(images.images_NCSS[torch.tensor([row])][0], square)
    assert hold({"train": (tall[:9], NAMES[1:10]), "test": (tall[9:], NAMES[9:])}, tmp_path).source != held.source
    with lent(Rows({"image": tall, "label": Y.tolist()}, image="any", label=ClassLabel())) as source:
        assert open_source(str(source)).load(6, "crop", 3).class_names == ClassLabel.names


def test_paths_and_names_are_left_alone(tmp_path: Path) -> None:
    assert [hold(source).source for source in (None, "digits", tmp_path)] == [None, "digits", tmp_path]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ((X / 255, Y), DataError, r"x_train is float64 .* must be uint8.* where white is 1, that is \(255 \* x\)"),
        ((X[:, :, 0, 0], Y), DataError, "must be uint8, N x H x W"),
        ((X.transpose(0, 3, 1, 2), Y), DataError, "looks like N x C x H x W"),
        ((X, Y[:5]), DataError, "train has 12 images and 5 labels"),
        ((X, Y / 2), DataError, "the labels of train are float64 .* one whole number or class name for each"),
        ((X, [[0, 1]] * 12), DataError, "the labels of train are int64"),
        ((X, Y - 1), DataError, "label -1 is negative"),
        ((X, Y, Y), UsageError, "data is a tuple of 3: it may be a path"),
        (7, UsageError, "data is int: it may be a path"),
        ((Path("a.png"), [0]), UsageError, "the images of train are a PosixPath"),
        ((["a.png"], [0]), UsageError, "image 0 of train is a path; files are given as a folder"),
        (([], []), DataError, "train holds no images"),
        (([X[0], X[1, :4] / 255], [0, 1]), DataError, r"image 1 of train is float64 \(4, 10, 3\); it must be uint8"),
        (([Image.fromarray(X[0, :, :, 0].astype(np.uint16))], [0]), DataError, "image 0 of train: it has 16 bits"),
        ({"test": (X, Y)}, UsageError, "it needs the part train"),
        ({"train": (X, Y), "extra": (X, Y)}, UsageError, "has the part 'extra': its parts are train, val and test"),
        ({"val": (X, Y), "valid": (X, Y), "train": (X, Y)}, UsageError, "two of them are the same part"),
        ({"train": (X, Y), "test": (X, NAMES)}, DataError, "some labels are numbers and others are class names"),
        ({"train": (X, Y), "test": X}, DataError, "test has no labels; only images alone, without parts"),
        ({"train": X, "test": X}, DataError, "train has no labels; only images alone, without parts"),
        ({"train": (X, Y), "test": (X[:, :4], Y)}, DataError, "the parts differ in size"),
        (TensorDataset(torch.tensor(X)), UsageError, r"item 0 of train is a tuple; a Dataset must give \(image, label\)"),
        (Rows({}, image="any", fine=ClassLabel(), coarse=ClassLabel()), UsageError, "which of them is the label"),
    ],
)  # fmt: skip
def test_what_is_refused(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        hold(data)


@pytest.mark.parametrize(("number", "message"), [(-1, "label -1 is negative"), (3, "label 3 has no name")])
def test_labels_without_a_name_are_refused_in_images_of_several_sizes_too(number: int, message: str) -> None:
    """As a test part of Hugging Face without labels has them: they were taken for the last class."""
    tall = [image.crop((0, 0, 6 + row % 2, 8)) for row, image in enumerate(PICTURES)]
    labels = [*Y.tolist()[:-1], number]
    with (
        pytest.raises(DataError, match=message),
        lent(Rows({"image": tall, "label": labels}, image="any", label=ClassLabel())),
    ):
        pass
