"""Where images come from: a folder of class folders, a table, an .npz file, or a named set -> ImageSet."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import Protocol

from smallvit.console import warn
from smallvit.data.arrays import named_source, npz_source
from smallvit.data.files import FileSource
from smallvit.data.folders import image_files, list_folder
from smallvit.data.images import Fit
from smallvit.data.imageset import ImageSet
from smallvit.data.kinds import kind_of
from smallvit.data.listed import PART_NAMES, shown
from smallvit.data.named import NAMED
from smallvit.data.tables import list_table

__all__ = ["NAMED", "PART_NAMES", "Source", "image_files", "open_source", "shown"]


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
    kind, path = kind_of(name), Path(name).expanduser()
    if kind == "named":
        if path.is_dir():
            warn(f"{name} is the named set; for the folder of that name write ./{name}")
        return named_source(name)
    if kind == "npz":
        return npz_source(path, labelled)
    if kind == "table":
        return FileSource(str(path), path.absolute().parent, list_table(path, labelled))
    return FileSource(str(path), path, list_folder(path, labelled))
