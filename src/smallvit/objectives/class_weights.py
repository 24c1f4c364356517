"""One weight for each class: measured from the training labels, or read from a file. K classes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from smallvit.console import warn
from smallvit.errors import UsageError, nearest
from smallvit.objectives.base import TaskInfo
from smallvit.planning.choices import Choices

# Of an automatic weight. The one image of a rare class would else outweigh a whole batch each time it comes up, and one
# image is no class: learning it by heart costs all others.
MOST_WEIGHT = 10.0


def resolve_class_weights(asked: Sequence[float] | str, task: TaskInfo, choices: Choices) -> None:
    """Numbers in the order of the classes, so that the same run again needs neither file nor counting."""
    if asked == "none":
        return
    if asked == "auto":
        weights = inverse_frequency(task.class_counts)
        choices.choose("class_weights", weights, _why(weights, task))
    elif isinstance(asked, str):
        choices.record("class_weights", read_weights(asked, task.class_names), f"read from {asked}")
    if choices.recipe.data.balanced:
        warn("balanced sampling and class weights together count rare classes twice")


def inverse_frequency(counts_K: Sequence[int], most: float = MOST_WEIGHT) -> list[float]:
    """Every class with images weighs the same in total, and the mean over the images is 1.

    w_k = N / (K n_k) with K the classes that have images; a class without any never occurs and gets 1. A weight above
    `most` is set to it, and the other classes share what is left, so that the mean stays 1.
    """
    rare: set[int] = set()
    while True:
        others = [klass for klass, count in enumerate(counts_K) if count and klass not in rare]
        left = sum(counts_K) - most * sum(counts_K[klass] for klass in rare)
        weights = {klass: left / (len(others) * counts_K[klass]) for klass in others}
        above = {klass for klass, weight in weights.items() if weight > most}
        if not above:
            break
        rare |= above
    found = dict.fromkeys(rare, most) | {klass: float(f"{weight:.6g}") for klass, weight in weights.items()}
    return [found.get(klass, 1.0) for klass in range(len(counts_K))]


def _why(weights_K: Sequence[float], task: TaskInfo) -> str:
    why = "inverse frequency in the training part, mean 1"
    bounded = [name for name, weight in zip(task.class_names, weights_K, strict=True) if weight == MOST_WEIGHT]
    if not bounded:
        return why
    more = f" and {len(bounded) - 3} more" if len(bounded) > 3 else ""
    return f"{why}; at most {MOST_WEIGHT:g} ({', '.join(bounded[:3])}{more}): single images should not lead"


def read_weights(path: str | Path, class_names: Sequence[str]) -> list[float]:
    """The weights of a CSV file with the header class,weight or a JSON object {class: weight}, used as they stand."""
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"class weights: cannot read {str(path)!r}: {reason} (choices: none, auto, or a CSV or JSON file)"
        ) from None
    pairs = _from_json(path, text) if path.suffix.lower() == ".json" else _from_csv(path, text)
    weights: dict[str, float] = {}
    for name, value in pairs:
        if name not in class_names:
            raise UsageError(f"{path}: unknown class {name!r}: {nearest(name, class_names)}")
        if name in weights:
            raise UsageError(f"{path}: the class {name!r} is there twice")
        weights[name] = _weight(path, name, value)
    missing = [name for name in class_names if name not in weights]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise UsageError(f"{path} has no weight for {', '.join(missing[:5])}{more}: every class needs one")
    return [weights[name] for name in class_names]


def _from_csv(path: Path, text: str) -> Iterable[tuple[str, Any]]:
    try:
        header, *rows = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
    except csv.Error as error:
        raise UsageError(f"{path} is not a CSV file of class,weight: {error}") from None
    if [word.strip().lower() for word in header] != ["class", "weight"]:
        raise UsageError(f"{path}: the first line should be class,weight")
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != 2:
            raise UsageError(f"{path}, line {number}: should hold a class and its weight")
        yield row[0].strip(), row[1]


def _from_json(path: Path, text: str) -> Iterable[tuple[str, Any]]:
    try:
        tree = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from None
    if not text.lstrip().startswith("{"):
        raise UsageError(f'{path} should hold one object, {{"class": weight, ...}}')
    yield from tree


def _weight(path: Path, name: str, value: Any) -> float:
    try:
        weight = float("nan") if isinstance(value, bool | list) else float(value)
    except (TypeError, ValueError, OverflowError):
        weight = float("nan")
    if not (math.isfinite(weight) and weight > 0):
        raise UsageError(f"{path}: the weight of {name!r} is {value!r}: should be a positive number")
    return weight
