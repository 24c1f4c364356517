"""What `data` means, and what can be seen to be wrong with it before anything heavy is loaded."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Literal

from smallvit.console import quiet
from smallvit.data.folders import class_folders
from smallvit.data.named import NAMED
from smallvit.data.tables import check_header
from smallvit.errors import DataError

Kind = Literal["named", "table", "npz", "folder"]
SUFFIXES: dict[str, Kind] = {".csv": "table", ".tsv": "table", ".npz": "npz"}


def kind_of(name: str) -> Kind:
    path = Path(name).expanduser()
    if name in NAMED:
        return "named"
    if path.is_file() and (kind := SUFFIXES.get(path.suffix.lower())):
        return kind
    if path.is_dir():
        return "folder"
    if path.exists():
        raise DataError(
            f"{name}: data is a folder of class folders, a .csv file of path,label, an .npz file, "
            f"or one of {', '.join(NAMED)}"
        )
    raise DataError(f"no such folder or file: {name}{_perhaps(name, path)}")


def look_early(name: str, labelled: bool = True) -> None:
    """Refuse what has no images: a missing path, a folder without class folders, a table with other columns.

    Classes and the first line of a table are looked at, no image; what else may be wrong is found when it is opened.
    """
    kind, path = kind_of(name), Path(name).expanduser()
    with quiet():  # what is only noted is noted when it is opened
        if kind == "folder":
            class_folders(path, labelled)
        elif kind == "table":
            check_header(path, labelled)


def _perhaps(name: str, path: Path) -> str:
    """What may have been meant: a named set that is spelled nearly so, or what lies where the path points to."""
    names = difflib.get_close_matches(name, NAMED, n=1, cutoff=0.7)
    if not names and path.parent.is_dir() and path.name:
        try:
            beside = [entry.name for entry in os.scandir(path.parent) if not entry.name.startswith(".")]
        except OSError:
            beside = []
        names = [str(path.parent / near) for near in difflib.get_close_matches(path.name, beside, n=3, cutoff=0.6)]
    if names:
        return f": did you mean {' or '.join(names)}?"
    missing = next((parent for parent in path.parents if not parent.exists()), None)
    return f" (there is no {missing} either)" if missing else ""
