"""Lists of images as benchmarks publish them: files of lines with a path and a label, one for each part -> Listing.

Paths are relative to the folder of the images; the ending of a file's name may be left out, as the lists of GEM do.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from smallvit.console import warn
from smallvit.data.listed import PART_NAMES, SUFFIXES, UNLABELLED, Listed, Listing
from smallvit.data.named.reading import lines_of
from smallvit.errors import DataError, UsageError

IN_ORDER = ("train", "val", "test")


def lists_of(text: str, root: Path) -> dict[str, Path]:
    """`--lists train.txt,val.txt,test.txt` -> the list of each part, in whole paths.

    A part is said (`val=FILE`), or told by the name of the file; three lists without either are train, val and test.
    """
    if not root.is_dir():
        raise DataError(f"{root}: with --lists, data is the folder that the paths in them start from")
    given = [entry.strip() for entry in text.split(",") if entry.strip()]
    said = {
        entry: entry.partition("=")[::2] if entry.partition("=")[0] in PART_NAMES else ("", entry) for entry in given
    }
    parts = {entry: PART_NAMES.get(part) or _part_of(file) for entry, (part, file) in said.items()}
    if None in parts.values() and len(given) == len(IN_ORDER) and not any(part for part, _ in said.values()):
        parts = dict(zip(given, IN_ORDER, strict=True))
    for entry, part in parts.items():
        if part is None:
            raise UsageError(f"--lists {entry}: which part is it? Write train={entry}, val={entry} or test={entry}")
    if len(set(parts.values())) < len(given) or "train" not in parts.values():
        raise UsageError(f"--lists {text}: it needs one list for train, and at most one each for val and test")
    return {str(parts[entry]): _list_file(file, root) for entry, (_, file) in said.items()}


def _part_of(file: str) -> str | None:
    """train of train1.txt, val of my-val.txt; None where the name says nothing, or two things."""
    words = re.findall(r"[a-z]+", Path(file).stem.lower())
    found = {PART_NAMES[word] for word in words if word in PART_NAMES}
    return found.pop() if len(found) == 1 else None


def _list_file(file: str, root: Path) -> Path:
    for path in (Path(file).expanduser().absolute(), root / file):
        if path.is_file():
            if "," in str(path):
                raise UsageError(f"--lists: {path} has a comma in its path, which divides lists; put it elsewhere")
            return path
    raise DataError(f"--lists: no such file: {file} (nor {root / file})")


def whole_lists(text: str, root: Path) -> str:
    """The same, as it can be read from any folder."""
    return ",".join(f"{part}={path}" for part, path in lists_of(text, root.absolute()).items())


def lists_listing(root: Path, text: str, labelled: bool = True) -> Listing:
    root = root.absolute()
    items: dict[Path, Listed] = {}
    again, folders = 0, _Folders()
    for part, file in lists_of(text, root).items():
        for number, line in lines_of(file):
            item = _item(root, folders, f"{file}, line {number}", line, part, labelled)
            if item.path in items:
                _check_same(file, number, item, items[item.path])
                again += 1
            items.setdefault(item.path, item)
    if not items:
        raise DataError(f"--lists {text}: they name no images")
    if again:
        warn(f"{again} lines of --lists name an image a second time and are left out")
    listed, classes = _named([*items.values()])
    alone = len({item.part for item in listed}) == 1  # train alone is no split: it is divided as any other set is
    # Numbers that nobody gave as names say nothing about mirroring.
    mirrors = True if all(name.isdecimal() for name in classes) else None
    return Listing(str(root), root, [item._replace(part="") for item in listed] if alone else listed, classes, mirrors)


def _item(root: Path, folders: _Folders, place: str, line: str, part: str, labelled: bool) -> Listed:
    name, label = _cut(line)
    if not label and labelled:
        raise DataError(f"{place}: a path and a label are wanted, divided by a space or a comma: {line[:60]!r}")
    path = folders.existing(Path(os.path.normpath(root / name)))
    if path is None:
        raise DataError(f"{place}: no such image: {root / name} (nor with one of {' '.join(sorted(SUFFIXES))})")
    return Listed(path, label or UNLABELLED, part)


def _cut(line: str) -> tuple[str, str]:
    """The label is what follows the last comma, tab or space."""
    found = re.fullmatch(r"(.*\S)\s*[,\t ]\s*([^,\t ]+)", line)
    return (found[1].strip('"'), found[2].strip('"')) if found else (line, "")


class _Folders:
    """The names in folders, each read once, not once for each of a hundred thousand files."""

    def __init__(self) -> None:
        self._names: dict[Path, set[str]] = {}
        self._by_stem: dict[Path, dict[str, list[str]]] = {}

    def existing(self, path: Path) -> Path | None:
        """The file, or the only one that is called so with an ending."""
        if path.parent not in self._names:
            self._read(path.parent)
        if path.name in self._names[path.parent]:
            return path
        found = self._by_stem[path.parent].get(path.name, [])
        if len(found) > 1:
            raise DataError(f"{path} may be {' or '.join(sorted(found))}: name its ending in the list")
        return path.with_name(found[0]) if found else None

    def _read(self, folder: Path) -> None:
        try:
            names = [entry.name for entry in os.scandir(folder)]
        except OSError:
            names = []
        self._names[folder] = {*names}
        stems = self._by_stem[folder] = {}
        for name in names:
            if Path(name).suffix.lower() in SUFFIXES:
                stems.setdefault(Path(name).stem, []).append(name)


def _check_same(file: Path, number: int, item: Listed, before: Listed) -> None:
    for what, earlier, later in (("part", before.part, item.part), ("label", before.class_name, item.class_name)):
        if earlier != later:
            raise DataError(
                f"{file}, line {number}: {item.path.name} has the {what} {earlier!r} elsewhere in the lists, and {later!r} here: "
                "an image has one"
            )


def _named(items: list[Listed]) -> tuple[list[Listed], tuple[str, ...]]:
    """Classes in the order of their numbers; called as their folders where each has a folder of its own."""
    labels = {item.class_name for item in items}
    if not all(label.isdecimal() for label in labels):
        return items, tuple(sorted(labels))
    order = sorted(labels, key=int)
    folders = {(item.class_name, item.path.parent.name) for item in items}
    if len(folders) == len(labels) == len({folder for _, folder in folders}) and len(labels) > 1:
        names = dict(folders)
        return [item._replace(class_name=names[item.class_name]) for item in items], tuple(names[n] for n in order)
    return items, tuple(order)
