"""Images that the caller has in memory -> an .npz file named by its content, which a run can go back to.

What was trained on arrays is then resumed, evaluated and diagnosed like any other run, and by other processes: the file
is the source. It goes through the checks of `data/arrays.py`, as every .npz file does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from smallvit.console import bar
from smallvit.data.arrays import MOST_NPZ_BYTES, source_of_arrays
from smallvit.data.files import PART_NAMES
from smallvit.data.images import Unreadable, pixels_of_picture
from smallvit.data.rasters import looks_channels_first
from smallvit.errors import DataError, UsageError
from smallvit.runs.atomic import replacing

Data = Any  # what `data` may be in Python: see FORMS
FORMS = (
    "a path or the name of a set; (images, labels); a Dataset of (image, label); or a dictionary of these for the parts "
    "train, val and test"
)
IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "labels")


class Part(NamedTuple):
    """Some images as the caller gave them, in one array."""

    images: np.ndarray  # N x H x W [x C]
    labels: np.ndarray | None  # whole numbers or class names
    class_names: tuple[str, ...] | None = None  # of the numbers, where a Dataset says them


class Held(NamedTuple):
    """What `data` is for a recipe: a path or name as it was given, or the file that is to hold the arrays."""

    source: str | Path | None
    arrays: dict[str, np.ndarray] | None = None

    def write(self) -> None:
        """Nothing where the same arrays were written before: the name says so."""
        if self.arrays is None or self.source is None or (path := Path(self.source)).is_file():
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}") from None
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **self.arrays)


def is_source(data: Any) -> bool:
    return data is None or isinstance(data, str | Path)


def hold(data: Any, beside: str | Path | None = None) -> Held:
    """`data` as it may be given in Python; arrays will be written to images-DIGEST.npz beside the run `beside`."""
    if is_source(data):
        return Held(data)
    parts = {name: _part(name, given) for name, given in _by_part(data).items()}
    arrays = _as_in_a_file(parts)
    source_of_arrays(Path("data"), arrays, labelled=False)  # refuses what no run could use
    if (size := sum(array.nbytes for array in arrays.values())) > MOST_NPZ_BYTES:
        raise DataError(f"data: {size / 2**30:.1f} GiB of images; above {MOST_NPZ_BYTES >> 30} give a folder of files")
    folder = Path("runs") if beside is None else Path(beside).parent
    return Held(folder.resolve() / f"images-{_digest(arrays)[:12]}.npz", arrays)


@contextmanager
def lent(data: Any) -> Iterator[str | Path | None]:
    """A source for what leaves no run behind: the file of arrays is removed in the end."""
    if is_source(data):
        yield data
        return
    with TemporaryDirectory(prefix="smallvit-") as folder:
        held = hold(data, Path(folder) / "run")
        held.write()
        yield held.source


# ---- what was given ----------------------------------------------------------------------------------


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


def _images(name: str, given: Any) -> np.ndarray:
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


def _stacked(name: str, images: list[np.ndarray]) -> np.ndarray:
    """All of one size; where some are grey and others have colours, all have."""
    if not images:
        raise DataError(f"data: {name} holds no images")
    if {image.shape[2:] for image in images} == {(1,), (3,)}:
        images = [image.repeat(3, axis=2) if image.shape[2] == 1 else image for image in images]
    for row, image in enumerate(images):
        if image.shape != images[0].shape:
            raise DataError(
                f"data: image {row} of {name} is {_size(image)}, image 0 is {_size(images[0])}: images in memory are of one "
                "size. Resize them, or save them as files and give the folder"
            )
    return np.stack(images)


def _size(image: np.ndarray) -> str:
    return " x ".join(map(str, image.shape))


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
    columns = _columns(features) if isinstance(features, Mapping) else None
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


def _columns(features: Mapping[str, Any]) -> tuple[str, str]:
    """Which columns hold the image and its label: the only ones of their kind, or the ones so called."""
    found = []
    for kind, usual in (("Image", IMAGE_COLUMNS), ("ClassLabel", LABEL_COLUMNS)):
        alike = [column for column, feature in features.items() if type(feature).__name__ == kind]
        named = [column for column in usual if column in features]
        chosen = alike if len(alike) == 1 else named
        if len(chosen) != 1:
            raise UsageError(
                f"data has the columns {', '.join(features)}: which of them is the {usual[0]}? Rename it to {usual[0]!r}"
            )
        found.append(chosen[0])
    return found[0], found[1]


# ---- as a file has it --------------------------------------------------------------------------------


def _as_in_a_file(parts: Mapping[str, Part]) -> dict[str, np.ndarray]:
    """x_train, y_train and so on, with class_names where labels have names."""
    if all(part.labels is None for part in parts.values()):
        return {"x" if name == "train" else f"x_{name}": part.images for name, part in parts.items()}
    arrays = {f"x_{name}": part.images for name, part in parts.items()}
    labels = {name: part.labels for name, part in parts.items() if part.labels is not None}
    if len({array.dtype.kind == "U" for array in labels.values()}) > 1:
        raise DataError("data: some labels are numbers and others are class names; give all in one way")
    if next(iter(labels.values())).dtype.kind == "U":
        names = np.unique(np.concatenate(list(labels.values())))
        labels = {name: np.searchsorted(names, array) for name, array in labels.items()}
        return {**arrays, **{f"y_{name}": array for name, array in labels.items()}, "class_names": names}
    arrays |= {f"y_{name}": array for name, array in labels.items()}
    known = {part.class_names for part in parts.values()}
    if len(known) > 1:
        raise DataError("data: the parts differ in the names of their classes")
    (names_of_all,) = known
    return arrays if names_of_all is None else {**arrays, "class_names": np.array(names_of_all)}


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
