"""What a listing of image files is made of, before anything is opened: no torch is needed to know it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

PART_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
RASTER_SUFFIXES = frozenset([".npy", ".tif", ".tiff"])
SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", *RASTER_SUFFIXES])
UNLABELLED = "unlabelled"  # the one class of images without labels


class Listed(NamedTuple):
    path: Path
    class_name: str
    part: str  # "" where the set has no parts
    group: str = ""  # "": the image is a group of its own


def shown(path: str | Path) -> str:
    """A name that can be printed and stored: bytes that are not UTF-8, from old archives, become \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
