"""What `data` means, and what can be seen to be wrong with it before anything heavy is loaded."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Literal

from smallvit.console import quiet
from smallvit.data.folders import class_folders
from smallvit.data.listed import Where
from smallvit.data.lists import lists_of
from smallvit.data.named.declared import named_sets
from smallvit.data.named.opening import check_there, is_named
from smallvit.data.tables import check_header
from smallvit.errors import DataError, UsageError, nearest
from smallvit.recipe import DataSpec

Kind = Literal["named", "hugging face", "lists", "table", "npz", "folder"]
SUFFIXES: dict[str, Kind] = {".csv": "table", ".tsv": "table", ".npz": "npz"}
HUGGING_FACE = "hf:"


def where_of(data: DataSpec) -> Where:
    return Where(data.source, data.dir, data.lists, data.download, data.incomplete)


def kind_of(where: str | Where) -> Kind:
    where = Where(where) if isinstance(where, str) else where
    name, path = where.source, Path(where.source).expanduser()
    if is_named(where):
        if where.lists:
            raise UsageError(
                f"--lists: {name} is a named set with parts of its own; give the folder of its images instead"
            )
        return "named"
    if name.startswith(HUGGING_FACE):
        return "hugging face"
    if where.download:
        raise UsageError(f"--download: {name} is no named set; {nearest(name, named_sets())}")
    if where.lists:
        return "lists"
    if path.is_file() and (kind := SUFFIXES.get(path.suffix.lower())):
        return kind
    if path.is_dir():
        return "hugging face" if is_saved(path) else "folder"
    if path.exists():
        raise DataError(
            f"{name}: data is a folder of class folders, a .csv file of path,label, an .npz file, hf:NAME, "
            "or a named set (`smallvit list datasets`)"
        )
    raise DataError(f"no such folder or file: {name}{_perhaps(name, path)}")


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` of a Dataset or a DatasetDict of Hugging Face wrote this folder."""
    single = (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    return single or (folder / "dataset_dict.json").is_file()


def look_early(where: str | Where, labelled: bool = True) -> None:
    """Refuse what has no images: a missing path or set, a folder without class folders, a table with other columns.

    Classes and the first line of a table are looked at, no image; what else may be wrong is found when it is opened.
    """
    where = Where(where) if isinstance(where, str) else where
    kind, path = kind_of(where), Path(where.source).expanduser()
    with quiet():  # what is only noted is noted when it is opened
        if kind == "folder":
            class_folders(path, labelled)
        elif kind == "table":
            check_header(path, labelled)
        elif kind == "lists":
            lists_of(where.lists, path)
        elif kind == "named":
            check_there(where)


def _perhaps(name: str, path: Path) -> str:
    """What may have been meant: a named set that is spelled nearly so, or what lies where the path points to."""
    names = difflib.get_close_matches(name, named_sets(), n=1, cutoff=0.7)
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
