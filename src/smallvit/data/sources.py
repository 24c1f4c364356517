"""Where images come from: a folder of class folders, a table, an .npz file, or a named set -> ImageSet."""

from __future__ import annotations

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Protocol

from smallvit.console import warn
from smallvit.data.arrays import NAMED, describe_named, npz_source
from smallvit.data.files import PART_NAMES, shown
from smallvit.data.folders import folder_source, image_files
from smallvit.data.images import Fit
from smallvit.data.imageset import ImageSet
from smallvit.data.tables import table_source
from smallvit.errors import DataError, nearest

__all__ = ["NAMED", "PART_NAMES", "Source", "describe_named", "image_files", "open_source", "shown"]


class Source(Protocol):
    """Knows sizes and channels without decoding; `load` gives the images at one size."""

    name: str
    side: int  # typical shorter side of the images
    channels: int
    mirrors: bool  # whether a mirrored image keeps its class

    @property
    def wide(self) -> Sized: ...  # what has 16 bits, and so needs a white

    @property
    def white(self) -> int: ...  # what the brightest of these could be: 4095 for 12 bits

    def load(self, size: int, fit: Fit, channels: int, white: int | None = None, limit_gb: float = ...) -> ImageSet: ...


def open_source(name: str, labelled: bool = True) -> Source:
    """The source that `name` means: a named set, a table, an .npz file or a folder; labels may be missing if not `labelled`."""
    path = Path(name).expanduser()
    if name in NAMED:
        if path.is_dir():
            warn(f"{name} is the named set; for the folder of that name write ./{name}")
        return NAMED[name]()
    if path.is_file() and path.suffix.lower() in OPENERS:
        return OPENERS[path.suffix.lower()](path, labelled)
    if path.is_dir():
        return folder_source(path, labelled)
    if path.exists():
        raise DataError(
            f"{name}: data is a folder of class folders, a .csv file of path,label, an .npz file, "
            f"or one of {', '.join(NAMED)}"
        )
    raise DataError(f"no such folder or file: {name} (nor a named set; {nearest(name, NAMED)})")


OPENERS: dict[str, Callable[[Path, bool], Source]] = {".csv": table_source, ".tsv": table_source, ".npz": npz_source}
