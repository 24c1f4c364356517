"""Images that are already decoded: .npz files, and named sets that are arrays -> ArraySource."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smallvit.data.images import FULL_WHITE, Fit, cannot_convert, convert, convertible, fit_square
from smallvit.data.imageset import ImageSet, fingerprint, may_mirror, pixel_digest
from smallvit.data.listed import PART_NAMES, UNLABELLED
from smallvit.data.rasters import MOST_CHANNELS, looks_channels_first
from smallvit.errors import DataError, UsageError

MOST_NPZ_BYTES = 8 << 30
ALONE = ("x", "images", "x_train")  # names of images that may come without labels
WANTED = {name: name for name in (*ALONE, "class_names")}
WANTED |= {f"{axis}_{part}": f"{axis}_{usual}" for axis in "xy" for part, usual in PART_NAMES.items()}


class ArraySource:
    """Images that are already decoded and of one size. images_NHWC: uint8."""

    def __init__(
        self, name: str, images_NHWC: np.ndarray, labels: np.ndarray, class_names: tuple[str, ...],
        parts: dict[str, np.ndarray] | None = None, files: tuple[str, ...] | None = None, mirrors: bool = True,
    ) -> None:  # fmt: skip
        self.name = name
        self.images_NHWC = images_NHWC
        self.labels = labels.astype(np.int64)
        self.class_names = class_names
        self.parts = parts or {}
        self.files = files or tuple(f"{name}[{row}]" for row in range(len(labels)))
        self.side = min(images_NHWC.shape[1:3])
        self.channels = images_NHWC.shape[3]
        self.mirrors = mirrors
        self.white = FULL_WHITE
        self.wide: list[str] = []

    def load(self, size: int, fit: Fit, channels: int, white: int | None = None, limit_gb: float = 0.0) -> ImageSet:
        """All in memory and of 8 bits: neither a limit nor a white changes anything."""
        if not convertible(self.channels, channels):
            raise UsageError(cannot_convert(self.name, self.channels, channels))
        images = torch.from_numpy(self.images_NHWC).permute(0, 3, 1, 2)
        if images.shape[1:] == (channels, size, size):
            images = images.contiguous()
        else:
            images = torch.stack([convert(fit_square(image, size, fit), channels) for image in images])
        return ImageSet(
            images_NCSS=images,
            labels_N=torch.from_numpy(self.labels),
            class_names=self.class_names,
            parts={part: torch.from_numpy(rows) for part, rows in self.parts.items()},
            files=self.files,
            source=self.name,
            fingerprint=fingerprint(pixel_digest(images.numpy()), self.labels),
        )


# ---- .npz --------------------------------------------------------------------------------------------


def npz_source(path: Path, labelled: bool = True) -> ArraySource:
    """`x_train, y_train` and, where present, `x_val, y_val, x_test, y_test, class_names`.

    Where no labels are needed (`labelled` is off), images alone will do: `x`, `images` or `x_train`.
    """
    return source_of_arrays(path, _read_npz(path), labelled)


def source_of_arrays(path: Path, arrays: dict[str, np.ndarray], labelled: bool = True) -> ArraySource:
    """The arrays of a file, checked; `path` is what they are called."""
    if "y_train" not in arrays:
        return _unlabelled(path, arrays, labelled)
    images, labels, parts, files, start = [], [], {}, [], 0
    for part in ("train", "val", "test"):
        if f"x_{part}" not in arrays:
            continue
        x, y = _checked_pair(path, part, arrays)
        images.append(x)
        labels.append(y)
        parts[part] = np.arange(start, start + len(y))
        files += [f"{path.name}:{part}[{row}]" for row in range(len(y))]
        start += len(y)
    if len({x.shape[1:] for x in images}) > 1:
        raise DataError(f"{path}: the parts differ in size: {', '.join(str(x.shape[1:]) for x in images)}")
    label_N, names = named_labels(path, np.concatenate(labels), arrays.get("class_names"))
    mirrors = "class_names" not in arrays or may_mirror(names)  # numbers that nobody gave as names say nothing
    return ArraySource(
        str(path), np.concatenate(images), label_N, names, parts if len(parts) > 1 else {}, tuple(files), mirrors
    )


def _unlabelled(path: Path, arrays: dict[str, np.ndarray], labelled: bool) -> ArraySource:
    name = next(name for name in ALONE if name in arrays)
    if labelled:
        raise DataError(
            f"{path} has {name} but no labels: it has no y_train beside x_train; only `smallvit pretrain` does without"
        )
    images = _checked_images(path, name, arrays[name])
    files = tuple(f"{path.name}:{name}[{row}]" for row in range(len(images)))
    return ArraySource(str(path), images, np.zeros(len(images)), (UNLABELLED,), files=files)


def named_labels(path: Path, label_N: np.ndarray, given: np.ndarray | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels from 0, and a name for each: the number itself where the file names no classes."""
    if label_N.min() < 0:
        raise DataError(f"{path}: label {label_N.min()} is negative; leave images without a class out")
    if given is None:
        numbers, label_N = np.unique(label_N, return_inverse=True)
        return label_N, tuple(str(number) for number in numbers)
    names = tuple(map(str, np.char.decode(given, "utf-8", "replace").flat if given.dtype.kind == "S" else given.flat))
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise DataError(f"{path}: class_names has {twice} more than once; give every class a name of its own")
    if label_N.max() >= len(names):
        raise DataError(f"{path}: label {label_N.max()} has no name: class_names holds {len(names)}, for 0 and up")
    return label_N, names


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MOST_NPZ_BYTES:
            raise DataError(f"{path} unpacks to {unpacked / 2**30:.1f} GiB, more than {MOST_NPZ_BYTES >> 30}")
        with np.load(path, allow_pickle=False) as archive:
            found = {WANTED[key]: key for key in archive.files if key in WANTED}  # x_valid is x_val
            if twice := next((key for key in archive.files if found.get(WANTED.get(key, ""), key) != key), None):
                raise DataError(f"{path} has {twice} and {found[WANTED[twice]]}: two names for one part")
            alone = "y_train" not in found and any(name in found for name in ALONE)
            if not alone and (missing := {"x_train", "y_train"} - set(found)):
                holds = ", ".join(archive.files) or "nothing"
                raise DataError(f"{path} has no {' and no '.join(sorted(missing))}; it holds {holds}")
            return {usual: _member(path, archive, key) for usual, key in found.items()}
    except DataError:
        raise
    except Exception as error:  # headers of any bytes make zipfile, zlib and NumPy fail in any way
        says = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(f"cannot read {path}: {says[:200]}") from None


def _member(path: Path, archive: Any, key: str) -> np.ndarray:
    """An array of an archive, if it is as large as its header claims."""
    zipped, name = archive.zip, f"{key}.npy"
    if name not in zipped.namelist():
        raise DataError(f"{path}: {key} is no array")
    with zipped.open(name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    claimed, holds = math.prod(shape) * dtype.itemsize, zipped.getinfo(name).file_size
    if min(shape, default=1) < 0 or claimed > holds:
        raise DataError(f"{path}: {key} claims {claimed:,} bytes and holds {holds:,}")
    array = archive[key]
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: {key} is no array")
    return array


def _checked_pair(path: Path, part: str, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    y = arrays.get(f"y_{part}")
    if y is None:
        raise DataError(f"{path} has x_{part} but no y_{part}")
    x, y = _checked_images(path, f"x_{part}", arrays[f"x_{part}"]), y.reshape(-1)
    if len(y) != len(x) or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{path}: y_{part} must hold {len(x)} whole numbers, it is {y.dtype} {y.shape}")
    return x, y.astype(np.int64)


def _checked_images(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim != 4 or x.shape[3] > MOST_CHANNELS or x.dtype != np.uint8 or 0 in x.shape:
        scale = "; where white is 1, that is (255 * x).round()" if x.dtype.kind == "f" else ""
        raise DataError(f"{path}: {name} is {x.dtype} {x.shape}; it must be uint8, N x H x W or N x H x W x C{scale}")
    if looks_channels_first(x.shape[1:]):
        raise DataError(f"{path}: {name} is {x.shape}, which looks like N x C x H x W; save it as N x H x W x C")
    return x
