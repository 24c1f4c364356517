"""Images that were in memory, as files that a run can go back to: named by their content, beside the run.

Images of one size are an .npz file, others .npy files with a CSV that lists them. What was trained on arrays is then resumed,
evaluated and diagnosed like any other run, and by other processes.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from smallvit.console import several
from smallvit.data.arrays import MOST_NPZ_BYTES, named_labels, source_of_arrays
from smallvit.data.memory import Part, parts_of
from smallvit.errors import DataError
from smallvit.runs.atomic import replacing

Data = Any  # what `data` may be in Python: a path, a name, or one of the forms of data/memory.py


class Held(NamedTuple):
    """What `data` is for a recipe: a path or name as it was given, or the file that is to hold what was in memory."""

    source: str | Path | None
    arrays: Mapping[str, np.ndarray] | None = None  # of the .npz file; or the .npy files by name, which `table` lists
    table: list[tuple[str, ...]] | None = None

    def write(self) -> None:
        """Nothing where the same was written before: the name says so, and it is there when all is."""
        if self.arrays is None or self.source is None or (path := Path(self.source)).is_file():
            return
        try:
            (path.with_suffix("") if self.table else path.parent).mkdir(parents=True, exist_ok=True)
            for name, image in self.arrays.items() if self.table else ():
                np.save(path.parent / name, image, allow_pickle=False)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}") from None
        with replacing(path) as part:
            if self.table:
                with part.open("w", newline="", encoding="utf-8") as text:
                    csv.writer(text).writerows(self.table)
            else:
                with part.open("wb") as file:
                    np.savez(file, allow_pickle=False, **self.arrays)


def is_source(data: Data) -> bool:
    return data is None or isinstance(data, str | Path)


def hold(data: Data, beside: str | Path | None = None) -> Held:
    """`data` as it may be given in Python; what is in memory will be written beside the run `beside`."""
    if is_source(data):
        return Held(data)
    parts = parts_of(data)
    labels, names = _numbered(parts)
    folder = (Path("runs") if beside is None else Path(beside).parent).resolve()
    arrays = {name: part.images for name, part in parts.items() if isinstance(part.images, np.ndarray)}
    if len(arrays) < len(parts):
        return _of_many_sizes(parts, labels, names, folder)
    return _of_one_size(arrays, labels, names, folder)


@contextmanager
def lent(data: Data) -> Iterator[str | Path | None]:
    """A source for what leaves no run behind: the files are removed in the end."""
    if is_source(data):
        yield data
        return
    with TemporaryDirectory(prefix="smallvit-") as folder:
        held = hold(data, Path(folder) / "run")
        held.write()
        yield held.source


def _numbered(parts: Mapping[str, Part]) -> tuple[dict[str, np.ndarray], tuple[str, ...] | None]:
    """The labels of each part as whole numbers, and the names of these where they have some. Nothing where there are no labels."""
    labels = {name: part.labels for name, part in parts.items() if part.labels is not None}
    if len(labels) < len(parts) and (labels or len(parts) > 1):
        bare = next(name for name in parts if name not in labels)
        raise DataError(
            f"data: {bare} has no labels; only images alone, without parts, may do without (for pretraining)"
        )
    if len({array.dtype.kind for array in labels.values()}) > 1:
        raise DataError("data: some labels are numbers and others are class names; give all in one way")
    for name, array in labels.items():
        if len(array) != (count := len(parts[name].images)):
            raise DataError(f"data: {name} has {several(count, 'image')} and {several(len(array), 'label')}")
    if any(array.dtype.kind == "U" for array in labels.values()):
        found = np.unique(np.concatenate(list(labels.values())))
        return {name: np.searchsorted(found, array) for name, array in labels.items()}, tuple(map(str, found))
    known = {part.class_names for part in parts.values()}
    if len(known) > 1:
        raise DataError("data: the parts differ in the names of their classes")
    return labels, next(iter(known))


def _of_one_size(
    images: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], names: tuple[str, ...] | None, folder: Path
) -> Held:
    arrays = {f"x_{name}" if labels else "x": array for name, array in images.items()}
    arrays |= {f"y_{name}": array for name, array in labels.items()}
    if names:
        arrays["class_names"] = np.array(names)
    source_of_arrays(Path("data"), arrays, labelled=False)  # refuses what no run could use
    if (size := sum(array.nbytes for array in arrays.values())) > MOST_NPZ_BYTES:
        raise DataError(f"data: {size / 2**30:.1f} GiB of images; above {MOST_NPZ_BYTES >> 30} give a folder of files")
    return Held(folder / f"images-{_digest(arrays)}.npz", arrays)


def _of_many_sizes(
    parts: Mapping[str, Part], labels: Mapping[str, np.ndarray], names: tuple[str, ...] | None, folder: Path
) -> Held:
    images = {(name, row): image for name, part in parts.items() for row, image in enumerate(part.images)}
    for numbers in labels.values():
        named_labels(Path("data"), numbers, np.array(names) if names else None)  # refuses what has no name
    called = {
        (name, row): (names[number] if names else str(number),)
        for name, numbers in labels.items()
        for row, number in enumerate(numbers.tolist())
    }
    digest = _digest({f"{name} {row} {called.get((name, row))}": image for (name, row), image in images.items()})
    files = {place: f"images-{digest}/{place[0]}-{place[1]:06d}.npy" for place in images}
    header = ("path", "split", "label") if labels else ("path", "split")
    table = [header, *((files[place], place[0], *called.get(place, ())) for place in images)]
    return Held(folder / f"images-{digest}.csv", {files[place]: image for place, image in images.items()}, table)


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:12]
