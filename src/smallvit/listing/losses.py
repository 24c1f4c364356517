"""Names and lines of help of objectives and auxiliary losses, read from their files without importing them.

Importing one imports torch, and `smallvit pretrain --help` has no use for that. A loss is a class with a `name` below
`Objective` or `Auxiliary`; its line of help is the first of its file.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

# Parsing the files takes 40 ms, which every command would wait for; these two lines of a class are enough.
_CLASS = re.compile(r"^class (\w+)\(([^)]*)\):\n((?:    .*\n|\n)*)", re.MULTILINE)
_CONSTANT = re.compile(r"^    (name|classifies)(?:: [^=\n]+)? = \"?(\w+)\"?", re.MULTILINE)


class DeclaredLoss(NamedTuple):
    name: str
    kind: str  # Objective or Auxiliary
    line: str
    classifies: bool


class _Class(NamedTuple):
    name: str
    bases: list[str]
    constants: dict[str, str]  # what its body assigns to `name` and `classifies`
    line: str


@cache
def declared_losses() -> list[DeclaredLoss]:
    classes = {declared.name: declared for declared in _classes()}
    losses = []
    for declared in classes.values():
        line_of_descent = list(_ancestors(declared.name, classes))
        kind = next((name for name in ("Objective", "Auxiliary") if name in line_of_descent), None)
        if kind and (name := declared.constants.get("name")):
            classifies = any(classes[ancestor].constants.get("classifies") == "True" for ancestor in line_of_descent)
            losses.append(DeclaredLoss(name, kind, declared.line, classifies))
    return losses


def pretraining_names() -> list[str]:
    return [loss.name for loss in declared_losses() if loss.kind == "Objective" and not loss.classifies]


def auxiliary_names() -> list[str]:
    return [loss.name for loss in declared_losses() if loss.kind == "Auxiliary"]


def in_words(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if names[1:] else "".join(names)


def _ancestors(name: str, classes: dict[str, _Class]) -> Iterator[str]:
    if name in classes:
        yield name
        for base in classes[name].bases:
            yield from _ancestors(base, classes)


def _classes() -> Iterator[_Class]:
    spec = importlib.util.find_spec("smallvit.objectives")  # finds the folder and runs nothing in it
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            line = text.partition("\n")[0].removeprefix('"""').removesuffix('"""')
            for name, bases, body in _CLASS.findall(text):
                yield _Class(name, bases.replace(",", " ").split(), dict(_CONSTANT.findall(body)), line)
