"""Files that are never half written: beside their place, synced, then renamed into it. And lines that only grow.

What a kill leaves of a write is removed by the next write of the same file, and by whoever holds the folder next.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smallvit.errors import RunError

# What a kill leaves of `replacing`, and of safetensors' own writing, which version 0.1 used.
PART = re.compile(r"\..+\.(\d+)\.part|\.tmp[A-Za-z0-9]{6}")
ABANDONED_SECONDS = 3600  # the number of a process that is gone may be another's by now


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a neighbour and rename it onto `path`: readers see the old file or the new one, never a part.

    On any failure, a full disk included, the old file stays whole and the neighbour is removed.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    remove_parts(path.parent, of=path.name)
    try:
        part.touch()
        usual = part.stat().st_mode  # as the user's umask has it; some writers (safetensors) let nobody else read
        yield part
        part.chmod(usual)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def remove_parts(folder: Path, of: str = "") -> None:
    """What killed processes have left in a folder: of all files, or of one."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(f".{of}.") or not of]
    except OSError:  # there is no such folder
        return
    for name in names:
        if (match := PART.fullmatch(name)) and _is_abandoned(folder / name, match[1]):
            with suppress(OSError):
                (folder / name).unlink()


def _is_abandoned(part: Path, process: str | None) -> bool:
    try:
        if process is None or time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
            return True
        if sys.platform != "win32":
            os.kill(int(process), 0)  # signal 0 asks whether it lives
        state = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        )
        return state in ("Z", "X")  # it has ended, and nobody has asked how: so it stays in a container without an init
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # another user's, or a system without /proc
        return False


def write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
