"""The folder of an export: built beside its place and renamed into it, so that it is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from smallvit.errors import RunError

ONNX, EXPORTED, WEIGHTS, CONFIG = "model.onnx", "model.pt2", "model.safetensors", "config.json"
CARD, EXAMPLE = "README.md", "predict.py"
OURS = frozenset({ONNX, EXPORTED, WEIGHTS, CONFIG, CARD, EXAMPLE})


def check_place(place: Path, overwrite: bool) -> None:
    """Refuse a folder that is in use, before the work. `overwrite` replaces an export, and nothing else."""
    if place.exists() and not place.is_dir():
        raise RunError(f"{place} is a file; an export is a folder")
    try:
        names = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
    except OSError as error:
        raise RunError(f"cannot read {place}: {error.strerror}") from None
    if names and not overwrite:
        raise RunError(f"{place} is already used: choose another folder, or give --overwrite")
    if strangers := [name for name in names if name not in OURS]:
        raise RunError(f"{place} holds what no export wrote ({', '.join(strangers[:3])}): nothing was deleted")


@contextmanager
def building(place: Path, overwrite: bool) -> Iterator[Path]:
    """A folder beside the place, which takes it when all went well; else it is removed and the place is as it was."""
    place = place.resolve()
    part, old = (place.with_name(f".{place.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        part.mkdir(parents=True)
        yield part
        for file in part.iterdir():
            with file.open("rb+") as content:
                os.fsync(content.fileno())
        check_place(place, overwrite)  # once more: it may have been filled meanwhile
        if place.is_dir():
            place.rename(old)
        part.rename(place)
    except OSError as error:
        if old.is_dir() and not place.exists():
            old.rename(place)
        raise RunError(f"cannot write {place}: {error.strerror or error}") from error
    finally:
        for leftover in (part, old):
            with suppress(OSError):
                shutil.rmtree(leftover)
