"""Files that are never half written: beside their place, synced, then renamed into it. And lines that only grow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smallvit.errors import RunError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a neighbour and rename it onto `path`: readers see the old file or the new one, never a part.

    On any failure, a full disk included, the old file stays whole and the neighbour is removed.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
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


def write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a .jsonl file; a last line that a kill cut short is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return
