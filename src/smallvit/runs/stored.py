"""The one way to read the JSON files of a run folder: each is checked for its shape (runs/shapes.py, runs/result_shapes.py).

A folder may be a stranger's, or damaged. What is of another shape than training writes is one kind of error, which names
the file, the key and the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json

from smallvit.errors import RunError
from smallvit.runs.result_shapes import ProbeFile, ResultsFile, StoredFloor
from smallvit.runs.shapes import (
    CurveFile,
    DecisionFile,
    EnvironmentFile,
    GroupFile,
    MovedFile,
    RecipeFile,
    Record,
    SplitFile,
)

Kind = TypeVar("Kind", bound=BaseModel)
MOST_BYTES = 1 << 30
LONGEST_SHOWN = 60  # of a value in an error
KINDS: dict[str, Any] = {
    "recipe.json": RecipeFile,
    "split.json": SplitFile,
    "results.json": ResultsFile,
    "probe.json": ProbeFile,
    "decision.json": DecisionFile,
    "group.json": GroupFile,
    "moved.json": MovedFile,
    "curve.json": CurveFile,
    "floors.json": dict[str, StoredFloor],
    "env.json": EnvironmentFile,
}
SHAPES: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in KINDS.items()}


def read_json(file: Path, *needed: str) -> dict[str, Any]:
    """The JSON object of a file, of the shape that a file of this name has; one that lacks a needed key is damaged."""
    tree = _read_tree(file)
    if missing := [key for key in needed if key not in tree]:
        raise RunError(f"{file} is damaged: it has no {', '.join(missing)}")
    try:
        if file.name in SHAPES:
            SHAPES[file.name].validate_python(tree)
    except ValidationError as error:
        raise RunError(f"{file} is damaged: {first_mistake(error)}") from None
    return tree


def read_as(file: Path, shape: type[Kind]) -> Kind:
    """The same as an object."""
    try:
        return shape.model_validate(_read_tree(file))
    except ValidationError as error:
        raise RunError(f"{file} is damaged: {first_mistake(error)}") from None


def read_records(file: Path) -> Iterator[dict[str, Any]]:
    """The records of metrics.jsonl; a last line that a kill cut short is left out."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {file}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        try:
            record = from_json(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise RunError(f"{file} is damaged in line {number}: {error}") from None
        try:
            Record.model_validate(record)
        except ValidationError as error:
            raise RunError(f"{file} is damaged in line {number}: {first_mistake(error)}") from None
        yield record


def _read_tree(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise RunError(f"cannot read {file}: it is larger than {MOST_BYTES >> 20} MiB")
        tree = from_json(file.read_bytes())  # refuses what is nested too deeply
    except FileNotFoundError:
        raise RunError(f"{file.parent} has no {file.name}") from None
    except OSError as error:
        raise RunError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise RunError(f"cannot read {file}: {error}") from None
    if not isinstance(tree, dict):
        raise RunError(f"{file} does not hold a JSON object")
    return tree


def first_mistake(error: ValidationError) -> str:
    """The first mistake: the dotted key, its value, what it should be."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"it has no {key}"
    says = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{key}: {says}" if key else says
    shown = repr(first["input"])
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}..."
    return f"{key} = {shown}: {says}" if key else f"{shown}: {says}"
