"""What a run, or folds together, said of the images that judged them: predictions.safetensors, read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvit.errors import RunError

FILE = "predictions.safetensors"


class StoredAnswers(NamedTuple):
    part: str
    rows_N: NDArray[np.int64]
    labels_N: NDArray[np.int64]
    probabilities_NK: NDArray[np.float32]
    groups_N: NDArray[np.int64] | None = None  # where images come in groups and the run is not an older one


def read_answers(folder: Path) -> StoredAnswers:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / FILE, "np") as file:
            header = str((file.metadata() or {}).get("smallvit", ""))
            found: dict[str, Any] = {name: file.get_tensor(name) for name in ("rows", "labels", "probabilities")}
            groups_N = file.get_tensor("groups") if "groups" in file.keys() else None  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RunError(f"{folder} has no predictions to compare: {error}") from None
    answers = StoredAnswers(_part(header), found["rows"], found["labels"], found["probabilities"], groups_N)
    if problem := _problem(answers):
        raise RunError(f"{folder / FILE} is damaged: {problem}")
    return answers


def _part(header: str) -> str:
    from pydantic_core import from_json

    try:
        tree = from_json(header)
    except ValueError:
        return ""
    return str(tree.get("part", "")) if isinstance(tree, dict) else ""


def _problem(answers: StoredAnswers) -> str:
    _, rows_N, labels_N, probabilities_NK, groups_N = answers
    if rows_N.ndim != 1 or rows_N.shape != labels_N.shape or probabilities_NK.shape[:-1] != rows_N.shape:
        return "rows, labels and probabilities are not of the same images"
    if {rows_N.dtype.kind, labels_N.dtype.kind} != {"i"} or probabilities_NK.dtype.kind != "f":
        return "rows and labels should be whole numbers, probabilities fractions"
    if groups_N is not None and (groups_N.shape != rows_N.shape or groups_N.dtype.kind != "i" or groups_N.min() < 0):
        return "its groups are not those of the rows"
    if not len(rows_N) or not probabilities_NK.shape[1]:
        return "it holds no answers"
    if len(np.unique(rows_N)) < len(rows_N) or rows_N.min() < 0:
        return "a row is there twice, or is none"
    if labels_N.min() < 0 or labels_N.max() >= probabilities_NK.shape[1]:
        return f"label {labels_N.max()} is none of {probabilities_NK.shape[1]} classes"
    return "" if np.isfinite(probabilities_NK).all() else "a probability is no number"
