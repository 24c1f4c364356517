"""What the files of a set say of themselves: sizes, channels, damage. Needs no set that can be loaded."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from smallvit.console import bar, quiet
from smallvit.data.cache import below
from smallvit.data.folders import visible_folders, walk
from smallvit.data.images import GREY_MODES, Unreadable, many_reads, open_image, read_image
from smallvit.data.listed import SUFFIXES, Listed, Where, shown
from smallvit.data.rasters import open_raster
from smallvit.data.sources import listing_of

T = TypeVar("T")
R = TypeVar("R")


class File(NamedTuple):
    name: str
    path: Path
    class_name: str
    bytes: int
    width: int  # 0 where it cannot be read
    height: int
    channels: int
    problem: str = ""  # why it cannot be read


class Survey(NamedTuple):
    files: list[File]
    ignored: Counter[str]  # suffixes of files that are no images, to us
    empty: list[str]  # class folders without images
    unread: list[str]  # images beside the class folders, and folders that are only linked from one of them

    @property
    def readable(self) -> list[File]:
        return [file for file in self.files if not file.problem]

    @property
    def broken(self) -> dict[str, str]:
        return {file.name: file.problem for file in self.files if file.problem}


def survey(where: Where) -> Survey | None:
    """None for a set that is no files: arrays, also where they have a name."""
    with quiet(not where.download):  # what it warns of are findings here
        listing = listing_of(where)
    if listing is None:
        return None
    root, items = listing.root, listing.items
    files = list(_each(items, lambda item: _look(item, root), f"looking at {root.name}"))
    if listing.opened or Path(where.source).expanduser().is_file():  # all that belongs to it is listed
        return Survey(files, Counter(), [], [])
    ignored, unread = _beside(root, items)
    return Survey(files, ignored, _empty_classes(root, items), unread)


def damaged(survey: Survey) -> dict[str, str]:
    """Files that cannot be read, those included that only decoding finds."""

    def attempt(file: File) -> tuple[str, str]:
        try:
            read_image(file.path, 8, "crop", file.channels)
        except Unreadable as error:
            return file.name, str(error)
        return file.name, ""

    tried = _each(survey.readable, attempt, "decoding every file")
    return survey.broken | {name: why for name, why in tried if why}


def _each(items: list[T], work: Callable[[T], R], label: str) -> Iterator[R]:
    with many_reads(), ThreadPoolExecutor(os.cpu_count()) as pool, bar(label, len(items)) as advance:
        for result in pool.map(work, items):
            yield result
            advance(1)


def _look(item: Listed, root: Path) -> File:
    def file(width: int, height: int, channels: int, problem: str = "") -> File:
        size = item.path.stat().st_size if item.path.exists() else 0
        name = shown(below(item.path, root))
        return File(name, item.path, item.class_name, size, width, height, channels, problem)

    try:
        if raster := open_raster(item.path):
            return file(raster.width, raster.height, raster.channels)
        with open_image(item.path) as image:
            return file(*image.size, 1 if image.mode in GREY_MODES else 3)
    except Unreadable as error:
        return file(0, 0, 0, str(error))
    except OSError as error:
        return file(0, 0, 0, error.strerror or str(error))


def _beside(root: Path, items: list[Listed]) -> tuple[Counter[str], list[str]]:
    """What is no image of a class: other files by suffix (photos in a format that is not read are easily overlooked), and by
    name the images outside of the class folders and the folders that are only linked from one of them."""
    known, used = {item.path for item in items}, {folder for item in items for folder in item.path.parents}
    counts, unread, links = Counter[str](), list[Path](), list[str]()
    for base, names in walk(root, links):
        for path in (Path(base, name) for name in names if not name.startswith(".")):
            if path.suffix.lower() not in SUFFIXES:
                counts[path.suffix.lower() or "no suffix"] += 1
            elif path not in known:
                unread.append(path)
    unread += [path for path in map(Path, links) if path not in used]  # the folder of a class may be a link
    return counts, [shown(path.relative_to(root)) for path in sorted(unread)]


def _empty_classes(root: Path, items: list[Listed]) -> list[str]:
    used = {folder for item in items for folder in item.path.parents}
    folders = visible_folders(root)
    if any(item.part for item in items):
        folders = [inner for folder in folders if folder in used for inner in visible_folders(folder)]
    return [shown(folder.relative_to(root)) for folder in folders if folder not in used]
