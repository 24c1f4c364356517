"""Where images come from: a folder of class folders, a table, lists, an .npz file, or a named set -> Source, ImageSet."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import Protocol

from smallvit.console import warn
from smallvit.data.arrays import ArraySource, npz_source
from smallvit.data.files import FileSource
from smallvit.data.folders import image_files, list_folder
from smallvit.data.hugging_face import hugging_face_listing
from smallvit.data.images import Fit
from smallvit.data.imageset import ImageSet
from smallvit.data.kinds import HUGGING_FACE, kind_of, where_of
from smallvit.data.listed import PART_NAMES, Arrays, Listing, Where, shown
from smallvit.data.lists import lists_listing, whole_lists
from smallvit.data.named.declared import data_folder, named_sets
from smallvit.data.named.opening import is_named, open_named
from smallvit.data.tables import list_table
from smallvit.recipe import DataSpec

__all__ = ["PART_NAMES", "Source", "Where", "image_files", "listing_of", "open_source", "settled", "shown"]


class Source(Protocol):
    """Knows sizes and channels without decoding; `load` gives the images at one size."""

    name: str
    side: int  # typical shorter side of the images
    channels: int
    class_names: tuple[str, ...]
    mirrors: bool  # whether a mirrored image keeps its class

    @property
    def wide(self) -> Sized: ...  # what has 16 bits, and so needs a white

    @property
    def white(self) -> int: ...  # what the brightest of these could be: 4095 for 12 bits

    def load(self, size: int, fit: Fit, channels: int, white: int | None = None, limit_gb: float = ...) -> ImageSet: ...


def settled(data: DataSpec) -> dict[str, str | bool]:
    """Keys of the section `data` as they mean the same from any folder and at any time: whole paths, nothing to fetch."""
    folder = Path(data.source).expanduser().absolute()
    if is_named(where_of(data)):
        has_files = bool(named_sets()[data.source].layouts)
        return {"dir": str(data_folder(data.dir)) if has_files else data.dir, "download": False}
    if data.source.startswith(HUGGING_FACE):
        return {"download": False}
    lists = {"lists": whole_lists(data.lists, folder)} if data.lists else {}
    return {"source": str(folder.resolve()), "download": False, **lists}


def open_source(where: str | Where, labelled: bool = True) -> Source:
    """The source that is meant; labels may be missing if not `labelled`."""
    content = _content(Where(where) if isinstance(where, str) else where, labelled)
    return FileSource(content) if isinstance(content, Listing) else content


def listing_of(where: str | Where, labelled: bool = True) -> Listing | None:
    """The files of a source, and nothing read of them yet; None where it is arrays."""
    where = Where(where) if isinstance(where, str) else where
    path = Path(where.source).expanduser()
    if path.suffix.lower() == ".npz" and path.is_file():  # it would be read whole
        return None
    content = _content(where, labelled)
    return content if isinstance(content, Listing) else None


def _content(where: Where, labelled: bool) -> Listing | ArraySource:
    kind, path = kind_of(where), Path(where.source).expanduser()
    if kind == "named":
        return _named(where, path)
    if kind == "hugging face":
        return hugging_face_listing(where, labelled)
    if kind == "lists":
        whole = where._replace(source=str(path.absolute()), lists=whole_lists(where.lists, path))
        return lists_listing(path, where.lists, labelled)._replace(opened=whole)
    if kind == "npz":
        return npz_source(path, labelled)
    if kind == "table":
        return Listing(str(path), path.absolute().parent, list_table(path, labelled))
    return Listing(str(path), path, list_folder(path, labelled))


def _named(where: Where, path: Path) -> Listing | ArraySource:
    if path.is_dir():
        warn(f"{where.source} is the named set; for the folder of that name write ./{where.source}")
    content = open_named(where)
    return _array_source(where.source, content) if isinstance(content, Arrays) else content


def _array_source(name: str, held: Arrays) -> ArraySource:
    files = [f"{name}[{row}]" for row in range(len(held.labels))]
    for part, rows in held.parts.items():
        for place, row in enumerate(rows.tolist()):
            files[row] = f"{name}:{part}[{place}]"
    return ArraySource(name, held.images_NHWC, held.labels, held.class_names, held.parts, tuple(files), held.mirrors)
