"""A finding: one measurement, with the numbers and arrays that sentences and pictures are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Finding(NamedTuple):
    """Measured without a verdict; `judge.judge` gives one where all findings together bear it out.

    The verdict is a sentence with its number and what to do. The weight, from 0 to 1, is how much it matters for accuracy.
    """

    name: str
    arrays: dict[str, Array]
    numbers: dict[str, float]
    labels: Mapping[str, Sequence[str]] = {}  # names of layers, images and models that the arrays are about
    verdict: str = ""
    weight: float = 0.0


def ragged(rows: Sequence[Array]) -> Array:
    """One row for each layer, with NaN where it has fewer heads than another."""
    table = np.full((len(rows), max(len(row) for row in rows)), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table
