"""Decode once: uint8 images of a folder in one memory-mapped file.

An entry is a folder named by a digest of every file's path, size and time stamp and of the decode settings,
so a changed file or setting is another entry. It is built beside its place and renamed into it: two runs that
build it at once, or one that is killed, leave a whole entry or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from smallvit.console import warn

LAYOUT = 1  # raise it when decoding or the file layout changes: old entries are then not found


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
    digest = hashlib.sha256(json.dumps([LAYOUT, str(root.resolve()), settings], sort_keys=True).encode())
    for path in files:
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


Build = Callable[[Path], dict[str, Any]]  # writes images.npy into the folder, returns the entry's meta data


def cached(key: str, build: Build, still_current: Callable[[], bool]) -> tuple[np.ndarray, dict[str, Any]]:
    """The entry `key`, built if it is not there. Where the cache cannot be written, it lives in a temporary folder."""
    place = cache_folder() / f"images-{key}"
    if entry := _read(place):
        return entry
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=place.parent))
    except OSError as error:
        warn(f"the cache {place.parent} cannot be written ({error.strerror}): images are decoded for this run only")
        work = Path(tempfile.mkdtemp(prefix="smallvit-"))
    try:
        meta = build(work)
        (work / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        if work.parent == place.parent and still_current():
            with contextlib.suppress(OSError):  # another run was first: its entry is as good
                work.rename(place)
            if entry := _read(place):
                return entry
        images = np.load(work / "images.npy", allow_pickle=False)
        return images, meta
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _read(place: Path) -> tuple[np.ndarray, dict[str, Any]] | None:
    try:
        meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
        # "c" is copy-on-write: torch wants a writable array, and the file stays as it is.
        images = np.load(place / "images.npy", mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return (images, meta) if len(images) == len(meta["kept"]) else None
