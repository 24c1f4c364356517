"""Small files that come with image sets: lists and tables as text, MATLAB's .mat. Bounded, and damage is told."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from smallvit.errors import DataError

MOST_TEXT_BYTES = 1 << 29
MOST_MAT_BYTES = 2 << 30
MOST_MAT_NUMBERS = 2 << 30


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers from 1."""
    try:
        if path.stat().st_size > MOST_TEXT_BYTES:
            raise DataError(f"{path} is larger than {MOST_TEXT_BYTES >> 20} MiB: that is no list of images")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line.strip()


def fields_of(path: Path, least: int, cuts: int = -1, by: str | None = None) -> Iterator[list[str]]:
    """Every line, cut at white space or at `by` into at least so many fields; at most `cuts` times."""
    for number, line in lines_of(path):
        fields = line.split(by, cuts)
        if len(fields) < least:
            raise DataError(f"{path}, line {number}: {len(fields)} fields instead of {least}: {line[:60]!r}")
        yield fields


def mat_of(path: Path, *names: str) -> list[Any]:
    """Some variables of a .mat file (up to version 7), as NumPy arrays without dimensions of 1."""
    from scipy.io import loadmat, whosmat

    try:
        if path.stat().st_size > MOST_MAT_BYTES:
            raise DataError(f"{path} is larger than {MOST_MAT_BYTES >> 30} GiB")
        shapes = {name: shape for name, shape, _ in whosmat(path)}
        for name in names:
            if name not in shapes:
                raise DataError(f"{path} has no {name}; it holds {', '.join(shapes) or 'nothing'}")
            if prod(shapes[name]) > MOST_MAT_NUMBERS:
                raise DataError(f"{path}: {name} is {shapes[name]}, more than can be right")
        found = loadmat(path, variable_names=list(names), squeeze_me=True)
        return [found[name] for name in names]
    except DataError:
        raise
    except Exception as error:  # its readers raise nearly anything on damaged files
        raise DataError(f"cannot read {path}: {error or type(error).__name__}") from None
