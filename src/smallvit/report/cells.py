"""Rows of a CSV file that every reader takes for rows, and no spreadsheet for formulas."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_FORMULA = re.compile(r"[=+\-@\t\r]")  # what a cell begins with that a spreadsheet computes
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def name_cell(name: str) -> str:
    """A class name. One that a spreadsheet would compute has an apostrophe before it, which the spreadsheet takes for text."""
    return f"'{name}" if _FORMULA.match(name) and not _NUMBER.fullmatch(name) else name


def file_cell(file: str) -> str:
    """The path of a file: ./=1.png is the same file as =1.png, and no formula."""
    return f"./{file}" if _FORMULA.match(file) else file


def write_rows(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """A carriage return is a line end to most readers, but Python 3.11 to 3.13 leave it outside of quotes."""
    plain = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    for row in rows:
        (quoted if any("\r" in str(cell) for cell in row) else plain).writerow(row)
