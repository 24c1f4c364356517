"""A CSV file of `path,label[,split][,group]`, or of `path` alone where no labels are needed: which files, and what they are.

Paths are relative to the file, or absolute. Images of one group stay together in every split; where the field is empty,
an image is a group of its own."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from smallvit.console import are, warn
from smallvit.data.listed import PART_NAMES, UNLABELLED, Listed
from smallvit.errors import DataError, nearest

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
MOST_BYTES = 1 << 29
COLUMNS = "the first line must name the columns path and label, and optionally split and group, divided by commas"


def check_header(path: Path, labelled: bool = True) -> None:
    """Refuse a table that lacks a column."""
    _header(path, _text(path), labelled)


def list_table(path: Path, labelled: bool = True) -> list[Listed]:
    """`labelled` is off where classes are not needed: a table without labels will do then."""
    text = _text(path)
    columns, delimiter = _header(path, text, labelled)
    root = path.absolute().parent
    items: dict[str, Listed] = {}
    first_line: dict[str, int] = {}
    again: list[str] = []
    for line, row in _rows(path, text, delimiter, len(columns)):
        item = _item(path, line, dict(zip(columns, row, strict=True)), root)
        spelled = os.path.normpath(item.path)
        if spelled in items:
            _check_same(path, line, item, items[spelled], first_line[spelled])
            again.append(f"line {line} ({item.path.name})")
            continue
        items[spelled], first_line[spelled] = item, line
    if again:
        warn(f"{path}: {are(len(again), 'row')} left out for a file that an earlier row names, the first: {again[0]}")
    if not items:
        raise DataError(f"{path} names no images: it holds a header and nothing else")
    return _parted(path, [*items.values()])


def _text(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise DataError(f"{path} is larger than {MOST_BYTES >> 20} MiB: that is no table of image paths")
    try:
        text = path.read_text(encoding="utf-8-sig")  # a byte-order mark, as Excel writes it, is no part of the text
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}): save it as CSV UTF-8") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    if not text.strip():
        raise DataError(f"{path} is empty: {COLUMNS}")
    return text


def _header(path: Path, text: str, labelled: bool) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter."""
    columns, delimiter = _columns(path, text.partition("\n")[0].rstrip("\r"))
    if labelled and "label" not in columns:
        raise DataError(
            f"{path} names images but no labels (columns: {', '.join(columns)}): add the column label; only "
            "`smallvit pretrain` does without"
        )
    return columns, delimiter


def _columns(path: Path, header: str) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter: the one that makes `path`, and `label` if it can, of the first line."""
    try:
        read = {d: [name.strip().lower() for name in next(csv.reader([header], delimiter=d), [])] for d in DELIMITERS}
    except csv.Error:  # a word of more than 128 KB
        raise DataError(f"{path}: {COLUMNS}; it reads {header[:80]!r}") from None
    for delimiter, names in sorted(read.items(), key=lambda item: "label" not in item[1]):
        if "path" in names:
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise DataError(f"{path}: the column {twice[0]!r} is there twice")
            if others := [name for name in names if name not in {"path", "label", "split", "group"}]:
                warn(f"{path}: columns other than path, label, split and group are left out: {', '.join(others)}")
            return names, delimiter
    raise DataError(f"{path}: {COLUMNS}; it reads {header[:80]!r}")


def _rows(path: Path, text: str, delimiter: str, width: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        next(reader)
        for row in reader:
            if not any(field.strip() for field in row):
                continue
            if len(row) != width:
                raise DataError(
                    f"{path}, line {reader.line_num}: {len(row)} fields instead of {width} "
                    f"(divided by {DELIMITERS[delimiter]}); put quotes around a field that holds one"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None


def _item(path: Path, line: int, row: dict[str, str], root: Path) -> Listed:
    name, label = row["path"].strip(), row.get("label", UNLABELLED).strip()
    for column, value in (("path", name), ("label", label)):
        if not value:
            raise DataError(f"{path}, line {line}: the {column} is empty")
    if "\0" in name:
        raise DataError(f"{path}, line {line}: a path cannot hold a zero byte")
    split = row.get("split", "").strip()
    if "split" in row and split.lower() not in PART_NAMES:
        raise DataError(f"{path}, line {line}: unknown split {split!r}: {nearest(split, PART_NAMES)}")
    file = root / name
    if os.sep == "/" and "\\" in name and not file.exists():
        file = root / name.replace("\\", "/")  # written on Windows
    return Listed(file, label, PART_NAMES.get(split.lower(), ""), row.get("group", "").strip())


def _check_same(path: Path, line: int, item: Listed, before: Listed, first: int) -> None:
    for what, earlier, later in (
        ("label", before.class_name, item.class_name),
        ("split", before.part, item.part),
        ("group", before.group, item.group),
    ):
        if earlier != later:
            raise DataError(
                f"{path}: {item.path.name} has the {what} {earlier!r} in line {first} and {later!r} in line {line}: "
                "a file has one of each"
            )


def _parted(path: Path, items: list[Listed]) -> list[Listed]:
    parts = {item.part for item in items} - {""}
    if parts and "train" not in parts:
        raise DataError(f"{path}: the column split holds {', '.join(sorted(parts))} but no train")
    # Train alone is no split: it is divided as any other set is.
    return items if len(parts) > 1 else [item._replace(part="") for item in items]
