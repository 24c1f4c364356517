"""What a named set is, and how it is found: a function that reads it, marked with @named. Imports no torch."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from smallvit.data.listed import DATA_FOLDER, Arrays, Listing

Read = Callable[[Path], Listing | Arrays]


class Layout(NamedTuple):
    """A folder below the data folder, and what must be in it."""

    folder: str
    needs: tuple[str, ...]


class Remote(NamedTuple):
    """A file that `--download` fetches, and unpacks where it is an archive."""

    url: str
    digest: str  # sha256:... or md5:..., as its publishers or others who checked it give it
    megabytes: float
    makes: str  # below the data folder: it is there when this is
    into: str = ""  # below the data folder: where it is put or unpacked

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1].partition("?")[0]


@dataclass(frozen=True)
class NamedSet:
    name: str
    about: str
    images: Mapping[str, int]  # in each part; the part "" where there are none
    classes: int
    read: Read  # from the folder of the set
    layouts: tuple[Layout, ...] = ()  # none: it comes with a package
    remotes: tuple[Remote, ...] = ()  # none: it is not for us to download
    size: str = ""  # on the disk
    origin: str = ""  # where it can be had

    @property
    def line(self) -> str:
        """One line for a list."""
        parts = ", ".join(f"{count:,} {part}" if part else f"{count:,} images" for part, count in self.images.items())
        return f"{parts}; {self.classes:,} classes. {self.about}"


_SETS: dict[str, NamedSet] = {}


def named(
    name: str, *, images: Mapping[str, int], classes: int, layouts: tuple[Layout, ...] = (),
    remotes: tuple[Remote, ...] = (), size: str = "", origin: str = "",
) -> Callable[[Read], Read]:  # fmt: skip
    """Declares the function below it as the reader of a set; its docstring is the set's line of help."""

    def declare(read: Read) -> Read:
        about = (read.__doc__ or "").strip().splitlines()[0]
        _SETS[name] = NamedSet(name, about, images, classes, read, layouts, remotes, size, origin)
        return read

    return declare


@cache
def named_sets() -> dict[str, NamedSet]:
    """All of them by name, those that come with a package first: the modules of this folder are imported once."""
    package = importlib.import_module("smallvit.data.named")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"smallvit.data.named.{module.name}")
    return dict(sorted(_SETS.items(), key=lambda item: (bool(item[1].layouts), item[0])))


def data_folder(given: str) -> Path:
    """Where named sets lie: as given, else $SMALLVIT_DATA, else ./data."""
    return Path(given or os.environ.get(DATA_FOLDER) or "data").expanduser().absolute()
