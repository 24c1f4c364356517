"""Intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import ndtri, stdtrit  # scipy.stats takes seconds to import


def wilson(correct: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a share: sound at small n and near 0 and 1."""
    if n == 0:
        return 0.0, 1.0
    z = float(ndtri(0.5 + confidence / 2))
    share, spread = correct / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean and Student's t interval over seeds; with one value the interval is unknown (NaN)."""
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, math.nan, math.nan
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half
