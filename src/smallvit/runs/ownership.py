"""One process at a time works on a run folder, and tidies up after one that was killed there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from smallvit.errors import RunError


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Hold the run; a second process is refused. The lock goes with its process, however that ends."""
    place = folder / "state" / "lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("w", encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {place}: {error.strerror}") from None
    with file:
        try:
            _lock(file)
        except BlockingIOError:
            raise RunError(f"another process is at work on {folder}: wait for it, or stop it first") from None
        _remove_parts(folder)
        yield


def _lock(file: TextIO) -> None:
    """Where there are no such locks (Windows, some network file systems) nothing is held."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return


def _remove_parts(folder: Path) -> None:
    """What a kill in the middle of a write has left behind."""
    for part in [*folder.glob(".*.part"), *(folder / "state").glob(".*.part")]:
        part.unlink(missing_ok=True)
