"""Decode once: uint8 images of a folder in one memory-mapped file.

An entry is a folder named by a digest of every file's path, size and time stamp and of the decode settings,
so a changed file or setting is another entry. It is built beside its place and renamed into it: two runs that
build it at once, or one that is killed, leave a whole entry or none.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from smallvit.console import warn
from smallvit.errors import DataError

LAYOUT = 2  # raise it when decoding or the file layout changes: old entries are then not found

BUILDING = ".building-"


def cache_folder() -> Path:
    """$SMALLVIT_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("SMALLVIT_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "smallvit"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "smallvit"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "smallvit"


def listing_key(root: Path, files: list[Path], settings: dict[str, Any]) -> str:
    """The same however the folder is spelled: from here, from elsewhere, through a link."""
    digest = hashlib.sha256(json.dumps([LAYOUT, settings], sort_keys=True).encode())
    digest.update(os.fsencode(root.resolve()))
    for path in files:
        try:
            status = path.stat()
            stamp = f"{status.st_size}\0{status.st_mtime_ns}"
        except OSError:  # a dangling link: the decoder will call it unreadable
            stamp = "missing"
        digest.update(b"\n" + os.fsencode(path.relative_to(root)) + b"\0" + stamp.encode())
    return digest.hexdigest()[:32]


Build = Callable[[Path], dict[str, Any]]  # writes images.npy into the folder, returns the entry's meta data


def cached(key: str, build: Build, still_current: Callable[[], bool]) -> tuple[np.ndarray, dict[str, Any]]:
    """The entry `key`, built if it is not there. Where the cache cannot be written, it lives in a temporary folder."""
    place = cache_folder() / f"images-{key}"
    if entry := _read(place):
        return entry
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _sweep(place.parent)
        return _build(Path(tempfile.mkdtemp(prefix=BUILDING, dir=place.parent)), place, build, still_current)
    except OSError as error:
        warn(f"the cache {place.parent} cannot be written ({error.strerror}): images are decoded for this run only")
    try:
        return _build(Path(tempfile.mkdtemp(prefix="smallvit-")), None, build, still_current)
    except OSError as error:
        raise DataError(
            f"no room for the decoded images, neither in {place.parent} nor in {tempfile.gettempdir()} "
            f"({error.strerror}): set SMALLVIT_CACHE to a folder on a larger disk"
        ) from None


def _build(
    work: Path, place: Path | None, build: Build, still_current: Callable[[], bool]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Build in `work`, which is gone afterwards; the entry goes to `place` if the files stayed as they were."""
    try:
        meta = build(work)
        (work / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        if place and still_current():
            _move(work, place)
            if entry := _read(place):
                return entry
        return np.load(work / "images.npy", allow_pickle=False), meta
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move(work: Path, place: Path) -> None:
    if place.exists() and not _read(place):
        shutil.rmtree(place, ignore_errors=True)  # damaged: it would be decoded anew every time
    with contextlib.suppress(OSError):  # another run was first: its entry is as good
        work.rename(place)


def _sweep(folder: Path) -> None:
    """Remove what killed runs left half-built more than a day ago."""
    for left in folder.glob(f"{BUILDING}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 86_400:
                shutil.rmtree(left, ignore_errors=True)


def allocate(path: Path, shape: tuple[int, ...]) -> np.memmap:
    """A new memory-mapped uint8 file whose blocks are there: a disk that fills up later would kill the process."""
    target = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if sys.platform == "linux":
        try:
            with path.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:  # some file systems cannot promise blocks; only a lack of them counts
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                raise
    return target


def _read(place: Path) -> tuple[np.ndarray, dict[str, Any]] | None:
    try:
        meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
        # "c" is copy-on-write: torch wants a writable array, and the file stays as it is.
        images = np.load(place / "images.npy", mmap_mode="c", allow_pickle=False)
        return (images, meta) if len(images) == len(meta["kept"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
