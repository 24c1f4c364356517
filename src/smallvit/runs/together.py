"""What runs of one group reach as one model, by what they said of the images that judged each. N images, K classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smallvit.errors import RunError
from smallvit.runs.folder import RunFolder
from smallvit.runs.stored_answers import read_answers

MOST_VALUES = 10**8  # images times classes: beyond, `evaluate` of the group tells


def answers_as_one(folders: Sequence[Path]) -> dict[str, Any] | None:
    """Accuracy and interval of the mean of their probabilities, as `predict` and `evaluate` of the group take it.

    None where they were judged on different images or by neighbours. The interval knows of groups.
    """
    results = [RunFolder(folder).results for folder in folders]
    parts = [result["parts"].get(result["evaluated_part"], {}) for result in results]
    judges = {result.get("judged_by", "classifier") for result in results}
    if len(folders) < 2 or judges != {"classifier"} or not all(parts):
        return None
    if parts[0]["n"] * len(parts[0].get("per_class", ())) > MOST_VALUES:
        return None
    from smallvit.evaluation.statistics import clustered_interval  # and scipy, which a page of one run does without

    try:
        said = [read_answers(folder) for folder in folders]
    except RunError:
        return None  # a table or a page of what is left of them says enough
    first, *others = said
    if any(not np.array_equal(first.rows_N, other.rows_N) for other in others):
        return None
    mean_NK = np.mean([one.probabilities_NK for one in said], axis=0)
    right_N = (mean_NK.argmax(1) == first.labels_N).astype(np.float64)
    return {
        "n": len(right_N),
        "accuracy": float(right_N.mean()),
        "interval": clustered_interval(right_N, groups_N=first.groups_N),
    }
