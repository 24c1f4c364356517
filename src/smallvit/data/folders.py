"""A folder of class folders, or the same below train / val / test: which files, and of which class and part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from smallvit.console import are, warn
from smallvit.data.listed import PART_NAMES, SUFFIXES, UNLABELLED, Listed, shown
from smallvit.errors import DataError


def list_folder(root: Path, labelled: bool = True) -> list[Listed]:
    """`labelled` is off where classes are not needed: images without class folders will do then."""
    classes = class_folders(root, labelled)
    if not classes:
        return [Listed(path, UNLABELLED, "") for path in image_files(root)]
    items: list[Listed] = []
    for klass, part in classes:
        images = image_files(klass)
        if not images:
            warn(f"{klass} holds no images: left out")
        items += [Listed(path, shown(klass.name), part) for path in images]
    if loose := loose_images({klass.parent for klass, _ in classes}):
        warn(f"{are(len(loose), 'image')} beside the class folders, as {loose[0]}: left out")
    if not items:
        raise DataError(f"no images below {root} (looked for {', '.join(sorted(SUFFIXES))})")
    return items


def loose_images(folders: Iterable[Path]) -> list[Path]:
    """Images beside the folders of the classes: they have none."""
    entries = sorted(entry for folder in folders for entry in folder.iterdir() if not _hidden(entry.name))
    return [entry for entry in entries if entry.suffix.lower() in SUFFIXES and not entry.is_dir()]


def class_folders(root: Path, labelled: bool = True) -> list[tuple[Path, str]]:
    """The folder of each class, and its part; none where there are images without classes, and that will do."""
    folders = visible_folders(root)
    if not folders and not labelled and image_files(root):
        return []
    if not folders:
        loose = any(entry.suffix.lower() in SUFFIXES for entry in root.iterdir())
        what = "images, but no class folders" if loose else "no folders and no images"
        without = " (`smallvit pretrain` needs no classes)" if loose else ""
        raise DataError(
            f"{root} holds {what}: put the images of each class into a folder of its own, as in {root}/cat/1.jpg{without}"
        )
    parts = _part_folders(root, folders)
    if parts:
        return [(klass, part) for folder, part in parts.items() for klass in visible_folders(folder)]
    return [(klass, "") for klass in folders]


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
    classes = {folder.name for folder in folders if folder not in parts}
    for folder, part in parts.items():
        if part != "train" and {inside.name for inside in visible_folders(folder)} <= classes:
            raise DataError(
                f"{folder} holds folders that are named like the classes beside it: if it is the {part} part, put the others into "
                f"{root}/train/; if it is a class, rename it"
            )
    if only_parts and "train" in named.values():
        raise DataError(f"the train folder of {root} holds no class folders: put the images of each class into one")
    if only_parts:
        raise DataError(f"{root} holds {', '.join(folder.name for folder in folders)} but no train folder")
    return {}


def visible_folders(root: Path) -> list[Path]:
    try:
        entries = sorted(entry for entry in root.iterdir() if entry.is_dir() and not _hidden(entry.name))
        return [entry for entry in entries if not _leads_back(entry, root)]
    except OSError as error:
        raise DataError(f"cannot read {root}: {error.strerror}") from None


def _leads_back(entry: Path, root: Path) -> bool:
    """A link to the folder that it lies in, or to one around it, would be a class of all images."""
    if not entry.is_symlink() or not root.resolve().is_relative_to(entry.resolve()):
        return False
    warn(f"{entry} is a link to {entry.resolve()}, in which it lies: left out")
    return True


def image_files(folder: Path) -> list[Path]:
    """All image files below a folder, in order; hidden ones (thumbnails, a file manager's notes) are left out."""
    files: list[Path] = []
    links: list[str] = []
    for base, names in walk(folder, links):
        files += [Path(base, name) for name in names if not _hidden(name)]
    if links:
        warn(f"{are(len(links), 'folder')} only linked from {folder}, as {min(links)}: left out")
    return sorted(path for path in files if path.suffix.lower() in SUFFIXES)


def walk(folder: Path, links: list[str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Every visible folder below one, with the names of its files. Links to folders are not followed; `links` gets them.

    os.walk calls itself for every folder in a folder, until Python 3.12: a thousand of them end it.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        base = waiting.pop()
        names: list[str] = []
        try:
            with os.scandir(base) as entries:
                for entry in entries:
                    if not _is_folder(entry):
                        names.append(entry.name)
                    elif _hidden(entry.name):
                        continue
                    elif not entry.is_symlink():
                        waiting.append(entry.path)
                    elif links is not None:
                        links.append(entry.path)
        except OSError as error:
            raise DataError(f"cannot read {base}: {error.strerror}") from None
        yield base, names


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle: its reader says what is wrong with it
        return False


def _hidden(name: str) -> bool:
    return name.startswith(".") or name in {"__MACOSX", "__pycache__"}
