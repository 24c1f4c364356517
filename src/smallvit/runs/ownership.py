"""One process at a time works on a run folder, and tidies up after one that was killed there.

The lock is a file in the folder. Whoever empties the folder holds the lock and leaves its file there: on a new file of
the same name, another process would get a lock of its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from smallvit.errors import RunError
from smallvit.runs.atomic import remove_parts

LOCK = Path("state", "lock")


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Hold the run; a second process is refused. The lock goes with its process, however that ends."""
    with _held(folder) as file:
        for inside in (folder, folder / LOCK.parent, folder / "findings"):
            remove_parts(inside)
        with suppress(OSError):  # for those who look on; the lock is the lock
            file.truncate(0)
            file.write(f"{this_host()} {os.getpid()}\n")
            file.flush()
        yield


def this_host() -> str:
    return socket.gethostname()


def owner_of(folder: Path) -> str:
    """The machine on which a run is or was worked on; empty where nobody did."""
    try:
        with (folder / LOCK).open(encoding="utf-8", errors="replace") as file:
            host = file.read(100).partition(" ")[0]
    except OSError:
        return ""
    return host if host.isprintable() else ""


def refuse_owned(folder: Path) -> None:
    """What `sole_owner` would refuse; a folder that nobody ever held stays as it is."""
    if (folder / LOCK).is_file():
        with _held(folder):
            pass  # whoever only looks leaves no name and tidies nothing


def is_owned(folder: Path) -> bool:
    try:
        refuse_owned(folder)
    except RunError:
        return True
    return False


@contextmanager
def _held(folder: Path) -> Iterator[TextIO]:
    """The file of the lock, locked, with what its last owner wrote."""
    place = folder / LOCK
    try:
        place.parent.mkdir(exist_ok=True)  # the folder itself must be there: another process may have deleted it
        file = place.open("a", encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {place}: {error.strerror}") from None
    with file:
        if not _lock(file) or not _is_still_at(file, place):
            raise RunError(f"another process is at work on {folder}: wait for it, or stop it first")
        yield file


def _lock(file: TextIO) -> bool:
    """Where there are no such locks (Windows, some network file systems) nothing is held."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_still_at(file: TextIO, place: Path) -> bool:
    """Not so where another process has deleted the folder between our opening and our locking."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except OSError:
        return False
