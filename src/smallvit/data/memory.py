"""What a caller has in memory -> parts of images and labels: arrays, tensors, pictures, data sets of others.

What becomes of them stands in data/kept.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from smallvit.console import bar
from smallvit.data.images import Unreadable, pixels_of_picture
from smallvit.data.listed import PART_NAMES
from smallvit.data.rasters import looks_channels_first
from smallvit.errors import DataError, UsageError

FORMS = (
    "a path or the name of a set; (images, labels); a Dataset of (image, label); or a dictionary of these for the parts "
    "train, val and test"
)
IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "labels")


class Part(NamedTuple):
    """Some images as the caller gave them."""

    images: np.ndarray | list[np.ndarray]  # N x H x W [x C]; a list, each H x W x C, where they differ in size
    labels: np.ndarray | None  # whole numbers or class names
    class_names: tuple[str, ...] | None = None  # of the numbers, where a Dataset says them


def parts_of(data: Any) -> dict[str, Part]:
    """By their names, train first."""
    return {name: _part(name, given) for name, given in _by_part(data).items()}


def _by_part(data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        return {"train": data}
    parts = {str(name): PART_NAMES.get(str(name).lower()) for name in data}
    if unknown := [name for name, part in parts.items() if part is None]:
        raise UsageError(f"data has the part {unknown[0]!r}: its parts are train, val and test")
    if "train" not in parts.values():
        raise UsageError(f"data has the parts {', '.join(parts) or 'none'}: it needs the part train, too")
    if len(set(parts.values())) < len(parts):
        raise UsageError(f"data has the parts {', '.join(parts)}: two of them are the same part")
    return {part: data[name] for name, part in parts.items() if part is not None}


def _part(name: str, given: Any) -> Part:
    if isinstance(given, np.ndarray | Tensor):
        return Part(_images(name, given), None)
    if isinstance(given, tuple | list) and len(given) == 2:
        return Part(_images(name, given[0]), _labels(name, given[1]))
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, str | tuple | list):
        return _of_dataset(name, given)
    what = f"a {type(given).__name__} of {len(given)}" if isinstance(given, tuple | list) else type(given).__name__
    raise UsageError(f"data is {what}: it may be {FORMS}")


def _images(name: str, given: Any) -> np.ndarray | list[np.ndarray]:
    if isinstance(given, np.ndarray) and given.dtype != object:
        return given
    if isinstance(given, Tensor):
        pixels = given.detach().cpu().numpy()
        first = pixels.ndim == 4 and looks_channels_first(pixels.shape[1:])
        return pixels.transpose(0, 2, 3, 1) if first else pixels
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
        raise UsageError(f"data: the images of {name} are a {type(given).__name__}; give an array, a tensor or a list")
    return _stacked(name, [_pixels(name, row, image) for row, image in enumerate(given)])


def _pixels(name: str, row: int, image: Any) -> np.ndarray:
    """One image, H x W x C."""
    if isinstance(image, Image.Image):
        try:
            return pixels_of_picture(image)
        except Unreadable as error:
            raise DataError(f"data: image {row} of {name}: {error}") from None
    if isinstance(image, str | Path):
        raise UsageError(f"data: image {row} of {name} is a path; files are given as a folder, or a CSV of path,label")
    pixels = image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    if isinstance(image, Tensor) and pixels.ndim == 3 and looks_channels_first(pixels.shape):
        pixels = pixels.transpose(1, 2, 0)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _stacked(name: str, images: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """In one array where all are of one size; where some are grey and others have colours, all have."""
    if not images:
        raise DataError(f"data: {name} holds no images")
    for row, image in enumerate(images):
        if image.ndim != 3 or image.dtype != np.uint8:
            raise DataError(f"data: image {row} of {name} is {image.dtype} {image.shape}; it must be uint8, H x W x C")
    if {image.shape[2] for image in images} == {1, 3}:
        images = [image.repeat(3, axis=2) if image.shape[2] == 1 else image for image in images]
    return images if len({image.shape for image in images}) > 1 else np.stack(images)


def _labels(name: str, given: Any) -> np.ndarray:
    labels = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.flat):
        labels = labels.astype(str)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind not in "iuU" or labels.ndim != 1:
        raise DataError(
            f"data: the labels of {name} are {labels.dtype} {labels.shape}; give one whole number or class name for each image"
        )
    return labels if labels.dtype.kind == "U" else labels.astype(np.int64)


# ---- data sets of others -----------------------------------------------------------------------------


def _of_dataset(name: str, dataset: Any) -> Part:
    """Anything with a length whose items are (image, label), as torch has it, or rows with columns, as Hugging Face has it."""
    features = getattr(dataset, "features", None)
    columns = columns_of(features) if isinstance(features, Mapping) else None
    images: list[np.ndarray] = []
    labels: list[Any] = []
    with bar("reading the images", len(dataset)) as advance:
        for row in range(len(dataset)):
            image, label = _item(name, row, dataset[row], columns)
            images.append(_pixels(name, row, image))
            labels.append(label.item() if hasattr(label, "item") else label)
            advance()
    if isinstance(features, Mapping) and columns:
        names = getattr(features[columns[1]], "names", None)
    else:
        names = getattr(dataset, "classes", None)
    found = _labels(name, labels)
    known = tuple(map(str, names)) if names is not None and found.dtype.kind in "iu" else None
    return Part(_stacked(name, images), found, known)


def _item(name: str, row: int, item: Any, columns: tuple[str, str] | None) -> tuple[Any, Any]:
    if columns:
        return item[columns[0]], item[columns[1]]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise UsageError(f"data: item {row} of {name} is a {type(item).__name__}; a Dataset must give (image, label)")
    return item[0], item[1]


def columns_of(
    features: Mapping[str, Any], label: str = "", labelled: bool = True, source: str = "data"
) -> tuple[str, str]:
    """Which columns hold the image and its label: the only ones of their kind, or the ones so called.

    The label is "" where there is none and none is needed.
    """
    if label and label not in features:
        raise UsageError(f"{source} has no column {label!r}: it has {', '.join(features)}")
    found = []
    for kind, usual in (("Image", IMAGE_COLUMNS), ("ClassLabel", LABEL_COLUMNS)):
        alike = [column for column, feature in features.items() if type(feature).__name__ == kind]
        named = [column for column in usual if column in features]
        chosen = [label] if label and kind == "ClassLabel" else alike if len(alike) == 1 else named
        if not chosen and not alike and kind == "ClassLabel" and not labelled:
            chosen = [""]
        if len(chosen) != 1:
            raise UsageError(
                f"{source} has the columns {', '.join(features)}: which of them is the {usual[0]}? Rename it to {usual[0]!r}"
            )
        found.append(chosen[0])
    return found[0], found[1]
