"""When a model should rather say "unknown": a threshold on its doubt that keeps the errors among its answers small.

The promise: with probability `CONFIDENCE` over the images it was calibrated on, at most the share `error` of the answers
is wrong, for images drawn as those were. Nothing is assumed of the model or of its probabilities.

Why it holds: the threshold is the doubt of one of the calibration images, the (m + 1)th in order. Given it, the images of
less doubt are independent draws from those that would be answered, so their wrong answers are binomial, and the exact
test (that of Clopper and Pearson) says whether more than `error` can be wrong. m takes at most `STEPS` values, fixed by the number of images
alone, and the chance of a mistake is divided among them (Bonferroni), so that the most generous m that passes may be
taken. The plain share of wrong answers at the best threshold would break the promise about half of the time.

N images, K classes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from smallvit.evaluation.statistics import wilson

CONFIDENCE = 0.95
STEPS = 20  # thresholds that are tried: answers for a twentieth of the images, two, ... all
CURVE_POINTS = 100
FEWEST = 10  # images on which a point of the curve stands


class Threshold(NamedTuple):
    """An image is answered where the doubt is below `doubt`; infinity: all are."""

    doubt: float
    answered: int  # of the calibration images
    wrong: int  # of these
    steps: int  # thresholds that were tried


def doubts(probabilities_NK: NDArray[np.floating]) -> NDArray[np.float64]:
    """(N,): the probability of all other classes together. 1 - the largest would be 0 for many that are nearly sure."""
    exact_NK = probabilities_NK.astype(np.float64)
    exact_NK[np.arange(len(exact_NK)), exact_NK.argmax(1)] = 0.0
    return np.asarray(exact_NK.sum(1))


def fewest_images(error: float, steps: int = 1) -> int:
    """With fewer than these, all right, the test cannot pass."""
    return math.ceil(math.log((1 - CONFIDENCE) / steps) / math.log1p(-error))


def calibrate(doubt_N: NDArray[np.float64], right_N: NDArray[np.bool_], error: float) -> Threshold | str:
    """The most generous threshold that keeps the promise, or why there is none."""
    n = len(doubt_N)
    tried = _tried(n, error)
    if not tried:
        return (
            f"{n:,} images are too few to promise that at most {100 * error:.3g} % of the answers are wrong: it takes "
            f"{fewest_images(error):,}, even where all are right"
        )
    ordered_N = np.sort(doubt_N)
    for m in reversed(tried):
        threshold = ordered_N[m] if m < n else math.inf
        answered_N = doubt_N < threshold
        answered, wrong = int(answered_N.sum()), int((answered_N & ~right_N).sum())
        if answered and bdtr(wrong, answered, error) <= (1 - CONFIDENCE) / len(tried):
            return Threshold(float(threshold), answered, wrong, len(tried))
    wrong = int((~right_N[np.argsort(doubt_N, kind="stable")[: tried[0]]]).sum())
    return (
        f"no threshold promises at most {100 * error:.3g} % of wrong answers: even of the {tried[0]:,} surest of {n:,} images "
        f"{wrong:,} {'is' if wrong == 1 else 'are'} wrong, too many to be {100 * CONFIDENCE:.0f} % sure; more images, or a larger error, may do"
    )


def _tried(n: int, error: float) -> list[int]:
    """How many images each threshold answers: as many of the steps as could pass at all."""
    steps = sorted({math.ceil(n * step / STEPS) for step in range(1, STEPS + 1)})
    for count in range(len(steps), 0, -1):
        if steps[-count] >= fewest_images(error, count):
            return steps[-count:]
    return []


# ---- what it comes to --------------------------------------------------------------------------------


def judged(doubt_N: NDArray[np.float64], right_N: NDArray[np.bool_], threshold: float) -> dict[str, Any]:
    """How many are answered, and how many of the answers are right."""
    answered_N = doubt_N < threshold
    n, answered, right = len(doubt_N), int(answered_N.sum()), int((answered_N & right_N).sum())
    return {
        "n": n,
        "answered": answered,
        "coverage": answered / n,
        "coverage_interval": wilson(answered, n),
        "accuracy": right / answered if answered else None,
        "interval": wilson(right, answered),
    }


def coverage_curve(doubt_N: NDArray[np.float64], right_N: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """(share answered, share of these that is right), from the surest images to all."""
    n = len(doubt_N)
    order = np.argsort(doubt_N, kind="stable")
    right_M = np.cumsum(right_N[order])
    counts = np.unique(np.linspace(min(FEWEST, n), n, CURVE_POINTS).round().astype(int))
    return [(float(count / n), float(right_M[count - 1] / count)) for count in counts]
