"""What a source is before anything of it is read: a list of files with their classes, or arrays. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

PART_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
RASTER_SUFFIXES = frozenset([".npy", ".tif", ".tiff"])
SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", *RASTER_SUFFIXES])
UNLABELLED = "unlabelled"  # the one class of images without labels
DATA_FOLDER = "SMALLVIT_DATA"  # the environment variable that says where named sets lie


class Where(NamedTuple):
    """Which images are meant, as the section `data` of a recipe says it."""

    source: str  # a path or the name of a set
    dir: str = ""  # where named sets lie
    lists: str = ""  # files of lines with a path and a label
    download: bool = False
    incomplete: bool = False  # a named set counts as it is, whatever is missing


class Listed(NamedTuple):
    path: Path
    class_name: str
    part: str  # "" where the set has no parts
    group: str = ""  # "": the image is a group of its own


class Listing(NamedTuple):
    """Image files with a class each."""

    name: str
    root: Path
    items: list[Listed]
    classes: tuple[str, ...] = ()  # their order where the set has one; else they are sorted
    mirrors: bool | None = None  # whether a mirrored image keeps its class; None: as the names of the classes tell
    opened: Where | None = None  # how it was found, where that is more than `name`


class Arrays(NamedTuple):
    """Images that are already decoded and of one size, uint8."""

    images_NHWC: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    parts: dict[str, np.ndarray]  # rows; empty where the set has no parts
    mirrors: bool = True


def shown(path: str | Path) -> str:
    """A name that can be printed and stored: bytes that are not UTF-8, from old archives, become \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
