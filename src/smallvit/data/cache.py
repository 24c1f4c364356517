"""Decode once: uint8 images of a folder in one memory-mapped file.

An entry is a folder named by a digest of every file's path, size and time stamp and of the decode settings,
so a changed file or setting is another entry. It is built beside its place and renamed into it: two runs that
build it at once, or one that is killed, leave a whole entry or none. What a disk did to it later is noticed when it is
opened, by the digests of its pixels and of its table; a damaged entry is built anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from smallvit.console import say, warn
from smallvit.data.cache_folder import cache_folder
from smallvit.data.imageset import pixel_digest
from smallvit.errors import DataError

LAYOUT = 4  # raise it when decoding or the file layout changes: old entries are then not found

BUILDING = ".building-"
ABANDONED_SECONDS = 86_400  # what another machine has been building for longer was left by a kill
META = "meta.json"
IMAGES = "images.npy"


Stamps = dict[Path, str]  # every file of a set, with what changes when it does


def stamps_of(files: Iterable[Path]) -> Stamps:
    return {path: stamp(path) for path in files}


def listing_key(root: Path, stamps: Stamps, settings: dict[str, Any]) -> str:
    """The same however the folder is spelled: from here, from elsewhere, through a link."""
    digest = hashlib.sha256(json.dumps([LAYOUT, settings], sort_keys=True).encode())
    digest.update(os.fsencode(root.resolve()))
    for path, changes in stamps.items():
        digest.update(b"\n" + os.fsencode(below(path, root)) + b"\0" + changes.encode())
    return digest.hexdigest()[:32]


def stamp(path: Path) -> str:
    """What changes with the file. The last number also tells a copy that kept the old time from the old file."""
    try:
        status = path.stat()
    except OSError:  # a dangling link: the decoder will call it unreadable
        return "missing"
    return f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}"


def below(path: Path, root: Path) -> Path:
    """The path as seen from the set's folder; a table may also name files elsewhere."""
    return path.relative_to(root) if path.is_relative_to(root) else path


Build = Callable[[Path], dict[str, Any]]  # writes images.npy into the folder, returns the entry's meta data


def cached(key: str, build: Build, still_current: Callable[[], bool]) -> tuple[np.ndarray, dict[str, Any]]:
    """The entry `key`, built if it is not there. Where the cache cannot be written, it lives in a temporary folder."""
    place = cache_folder() / f"images-{key}"
    was_there = os.path.lexists(place)  # asked first: another run may put it there at any time
    if entry := _read(place):
        with contextlib.suppress(OSError):
            os.utime(place / META)  # when it was last used
        return entry
    if was_there:
        say(f"the decoded images in {place} are damaged: they are decoded anew")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        sweep(place.parent)
        return _build(Path(tempfile.mkdtemp(prefix=_builder(), dir=place.parent)), place, build, still_current)
    except OSError as error:
        warn(f"the cache {place.parent} cannot be written ({error.strerror}): images are decoded for this run only")
    try:
        return _build(Path(tempfile.mkdtemp(prefix="smallvit-")), None, build, still_current)
    except OSError as error:
        raise DataError(
            f"no room for the decoded images, neither in {place.parent} nor in {tempfile.gettempdir()} "
            f"({error.strerror}): set SMALLVIT_CACHE to a folder on a larger disk"
        ) from None


def remembered(key: str, compute: Callable[[], dict[str, Any]], still_current: Callable[[], bool]) -> dict[str, Any]:
    """What was once found out about these files; a small JSON file in the cache, where it can be written."""
    place = cache_folder() / f"facts-{key}.json"
    was_there = os.path.lexists(place)
    if facts := _read_sealed(place, key):
        return facts
    if was_there:
        say(f"what was known of the images, in {place}, is damaged: they are looked at anew")
    facts = compute()
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=_builder(), dir=place.parent))
        _write_sealed(work / META, facts, key)
        if still_current():
            (work / META).replace(place)
            _sync_names(place.parent)
        shutil.rmtree(work, ignore_errors=True)
    return facts


def _build(
    work: Path, place: Path | None, build: Build, still_current: Callable[[], bool]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Build in `work`, which is gone afterwards; the entry goes to `place` if the files stayed as they were."""
    try:
        meta = build(work)
        if place and still_current():
            _write_sealed(work / META, meta, _key_of(place))
            _move(work, place)
            if entry := _read(place):
                return entry
        return np.load(work / IMAGES, allow_pickle=False), meta
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move(work: Path, place: Path) -> None:
    """Into its place once it is safe on disk: a power cut would else leave a name without its bytes."""
    _sync(work / IMAGES)
    _sync_names(work)
    if os.path.lexists(place) and not _read(place):  # damaged: it would be decoded anew every time
        shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another run was first: its entry is as good
        work.chmod(place.parent.stat().st_mode)  # a temporary folder is its maker's alone, an entry whose the cache is
        work.rename(place)
    _sync_names(place.parent)


def _sync(file: Path) -> None:
    """Wait until it is on disk."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def _sync_names(folder: Path) -> None:
    """The same for the names in a folder. Windows and some network file systems have no such thing."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what killed runs left half-built."""
    for left in folder.glob(f"{BUILDING}*"):
        with contextlib.suppress(OSError):
            if _is_abandoned(left):
                left.unlink() if left.is_file() else shutil.rmtree(left, ignore_errors=True)


def _builder() -> str:
    """Names what is being built by machine and process, so that others can tell whether it still is."""
    return f"{BUILDING}{platform.node()}~{os.getpid()}~"


def _is_abandoned(left: Path) -> bool:
    machine, separator, rest = left.name.removeprefix(BUILDING).partition("~")
    process = rest.partition("~")[0]
    if separator and machine == platform.node() and process.isdigit() and sys.platform != "win32":
        try:
            os.kill(int(process), 0)  # signal 0 asks whether it lives
        except ProcessLookupError:
            return True
        except OSError:
            pass
    return time.time() - left.stat().st_mtime > ABANDONED_SECONDS


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


# ---- reading, and knowing that it is what was written ------------------------------------------------


def _read(place: Path) -> tuple[np.ndarray, dict[str, Any]] | None:
    """None where there is no entry, or none that can be trusted."""
    meta = _read_sealed(place / META, _key_of(place))
    if meta is None:
        return None
    try:
        # "c" is copy-on-write: torch wants a writable array, and the file stays as it is.
        images = np.load(place / IMAGES, mmap_mode="c", allow_pickle=False)
        whole = images.dtype == np.uint8 and _pixels_of(place / IMAGES, stamp(place / IMAGES)) == meta["pixels"]
        return (images, meta) if whole and len(images) == len(meta["kept"]) else None
    except Exception:  # a header of any bytes makes NumPy fail in any way
        return None


@lru_cache(maxsize=64)
def _pixels_of(path: Path, stamp: str) -> str:
    """0.6 s for a gigabyte; once per process, as long as the file stays the same."""
    return pixel_digest(np.load(path, mmap_mode="r", allow_pickle=False))


def _key_of(place: Path) -> str:
    return place.name.partition("-")[2]


def _write_sealed(path: Path, tree: dict[str, Any], key: str) -> None:
    """JSON with a digest of all of it and of the key it was written for."""
    path.write_text(json.dumps({**tree, "digest": _table_digest(tree, key)}), encoding="utf-8")
    _sync(path)


def _read_sealed(path: Path, key: str) -> dict[str, Any] | None:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        digest = tree.pop("digest")
        return tree if digest == _table_digest(tree, key) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _table_digest(tree: dict[str, Any], key: str) -> str:
    return hashlib.sha256(json.dumps([key, tree], sort_keys=True).encode()).hexdigest()
