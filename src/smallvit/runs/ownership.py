"""One process at a time works on a run folder, and tidies up after one that was killed there.

The lock is a file in the folder. Whoever empties the folder holds the lock and leaves its file there: on a new file of
the same name, another process would get a lock of its own.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from smallvit.errors import RunError
from smallvit.runs.atomic import remove_parts

LOCK = Path("state", "lock")
# A process that was killed holds its lock until the system has taken it apart, and whoever looks has it for a moment.
USUAL_PATIENCE = 3.0
LOOK_SECONDS = 0.05
_patience: ContextVar[float] = ContextVar("patience", default=USUAL_PATIENCE)


@contextmanager
def patient(seconds: float = math.inf) -> Iterator[None]:
    """Wait so long for a folder that another process holds, before it is refused."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Hold the run; a second process is refused, after a while. The lock goes with its process, however that ends."""
    with _held(folder, _patience.get()) as file:
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
    return _owner(folder)[0]


def owner_in_words(folder: Path) -> str:
    """For those who wait for it or want to stop it."""
    host, process = _owner(folder)
    return f"process {process} on {host}" if host and process.isdecimal() else "another process"


def _owner(folder: Path) -> tuple[str, str]:
    try:
        with (folder / LOCK).open(encoding="utf-8", errors="replace") as file:
            host, _, process = file.read(100).partition("\n")[0].partition(" ")
    except OSError:
        return "", ""
    return (host, process) if host.isprintable() else ("", "")


def refuse_owned(folder: Path) -> None:
    """What `sole_owner` would refuse; a folder that nobody ever held stays as it is."""
    _look(folder, _patience.get())


def is_owned(folder: Path) -> bool:
    """Whether another process holds it now."""
    try:
        _look(folder, 0)
    except RunError:
        return True
    return False


def _look(folder: Path, patience: float) -> None:
    if (folder / LOCK).is_file():
        with _held(folder, patience):
            pass  # whoever only looks leaves no name and tidies nothing


@contextmanager
def _held(folder: Path, patience: float) -> Iterator[TextIO]:
    """The file of the lock, locked, with what its last owner wrote."""
    until = time.monotonic() + patience
    while True:
        with _opened(folder / LOCK) as file:
            if _lock(file) and _is_still_at(file, folder / LOCK):
                yield file
                return
        if time.monotonic() >= until:
            raise RunError(f"{owner_in_words(folder)} is at work on {folder}: wait for it, or stop it first")
        time.sleep(LOOK_SECONDS)


def _opened(place: Path) -> TextIO:
    try:
        place.parent.mkdir(exist_ok=True)  # the folder itself must be there: another process may have deleted it
        return place.open("a", encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {place}: {error.strerror}") from None


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
