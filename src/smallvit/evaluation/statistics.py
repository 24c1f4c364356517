"""Intervals, and the paired test of two that judged the same images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv, ndtri, stdtr, stdtrit  # scipy.stats takes seconds to import


def wilson(correct: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a share: sound at small n and near 0 and 1."""
    if n == 0:
        return 0.0, 1.0
    z = float(ndtri(0.5 + confidence / 2))
    share, spread = correct / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    # At the ends the formula gives exactly 0 and 1, but for rounding.
    return 0.0 if correct == 0 else centre - half, 1.0 if correct == n else centre + half


def clustered_interval(
    right_N: NDArray[np.float64],
    folds_N: NDArray[np.int64] | None = None,
    groups_N: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Interval of a share over N images that are not independent: those of a fold share a model, those of a group a scene.

    `folds_N` and `groups_N` give the cluster of every image. Of one group nothing follows for others, and where all images are right
    (or none is), C groups tell as much as C images would. Independent images would vary by share (1 - share) / N,
    C clusters vary by C / (C - 1) * sum over them of (sum of (right - share))^2 / N^2. What the second is above the first
    is known to C - 1 degrees of freedom only, so it counts with Student's quantile, the rest with the normal one. The
    widest counts. The interval is Wilson's at the number of images that would make it as wide.
    """
    n, share = len(right_N), float(right_N.mean())
    plain = share * (1 - share) / n
    z = float(ndtri(0.5 + confidence / 2))
    groups = n if groups_N is None else len(np.unique(groups_N))
    if groups == 1 < n:
        return 0.0, 1.0
    if plain == 0:
        return wilson(share * groups, groups, confidence)
    spread = plain * z**2  # squared half-width
    for cluster_N in (folds_N, groups_N):
        if cluster_N is None:
            continue
        sums_C = np.bincount(cluster_N, weights=right_N - share)
        C = len(np.unique(cluster_N))
        varies = C / (C - 1) * float(np.square(sums_C).sum()) / n**2 if C > 1 else 0.0
        if varies > plain:
            t = float(stdtrit(C - 1, 0.5 + confidence / 2))
            spread = max(spread, plain * z**2 + (varies - plain) * t**2)
    effective = share * (1 - share) * z**2 / spread
    return wilson(share * effective, effective, confidence)


def clustered_difference(
    first_N: NDArray[np.bool_], second_N: NDArray[np.bool_], cluster_N: NDArray[np.int64], confidence: float = 0.95
) -> tuple[float, float, float, float]:
    """Difference of two shares of the same images, which come in clusters, its interval and its two-sided p.

    Student's t over C clusters, whose sums vary; single images where those vary more. Where all images agree on the difference (none,
    or every one), nothing varies, and C clusters tell as much as C images would.
    """
    difference_N = first_N.astype(np.float64) - second_N
    n, mean, C = len(difference_N), float(difference_N.mean()), len(np.unique(cluster_N))
    if C < 2:
        return mean, -1.0, 1.0, 1.0
    if (difference_N == difference_N[0]).all():
        alone = (C * int(mean > 0), C * int(mean < 0))
        return *paired_share(*alone, C), mcnemar(*alone)
    sums_C = np.bincount(cluster_N, weights=difference_N - mean)
    of_clusters, of_images = C / (C - 1) * np.square(sums_C).sum(), np.square(difference_N - mean).sum()
    error = math.sqrt(max(of_clusters, of_images)) / n
    half = float(stdtrit(C - 1, 0.5 + confidence / 2)) * error
    p = float(2 * stdtr(C - 1, -abs(mean) / error))
    return mean, max(-1.0, mean - half), min(1.0, mean + half), p


def rounding(n: int, shares: int = 2) -> float:
    """How far a difference of two shares of n images is off at the least: each is known to 1 / n only."""
    return math.sqrt(shares / 12) / n


def mean_interval(values: Sequence[float], confidence: float = 0.95, least: float = 0.0) -> tuple[float, float, float]:
    """Mean and Student's t interval over seeds; with one value the interval is unknown (NaN).

    `least`: the deviation of one value is not taken to be below this, however much alike few of them are.
    """
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, math.nan, math.nan
    deviation = max(least, math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1)))
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def bootstrap_difference(
    correct_SN: NDArray[np.generic],
    other_SN: NDArray[np.generic],
    groups_N: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
    draws: int = 4_000,
) -> tuple[float, float]:
    """Interval of the difference in accuracy of paired runs, S seeds on the same N test images: right or wrong, or shares.

    Seeds and images are both drawn with replacement, so it covers other seeds and other test images; images of a group together.
    """
    difference_SG = correct_SN.astype(np.float64) - other_SN.astype(np.float64)
    images_G = np.ones(difference_SG.shape[1])  # every image is a group where there are none
    if groups_N is not None:
        _, group_N = np.unique(groups_N, return_inverse=True)
        images_G = np.bincount(group_N).astype(np.float64)
        difference_SG = np.stack([np.bincount(group_N, weights=one_N) for one_N in difference_SG])
    S, G = difference_SG.shape
    random = np.random.default_rng(0)
    seeds_DS = random.multinomial(S, np.full(S, 1 / S), size=draws)
    differences: list[float] = []
    for seeds_S in seeds_DS:
        times_G = random.multinomial(G, np.full(G, 1 / G))
        # Of whole numbers until the division: the same to the last bit on every processor.
        differences.append(float(seeds_S @ difference_SG @ times_G / (S * (times_G @ images_G))))
    low, high = np.quantile(differences, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(low), float(high)


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p: whether coin tosses would split the images that only one gets right so unevenly."""
    total = only_first + only_second
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), total, 0.5))) if total else 1.0


def paired_share(only_first: int, only_second: int, n: int, level: float = 0.05) -> tuple[float, float, float]:
    """Difference of two shares of the same images, and an interval that leaves out 0 exactly where McNemar's p is small.

    Where both answer all images alike, how many others there may be at most.
    """
    if not only_first + only_second:
        reach = 1 - (level / 2) ** (1 / n)
        return 0.0, -reach, reach
    low, high = _least(only_first, only_second, n, level), -_least(only_second, only_first, n, level)
    return (only_first - only_second) / n, low, high


def _least(only_first: int, only_second: int, n: int, level: float) -> float:
    """The lower end. Two things are uncertain: on how many images the two differ, and whom of them these speak for.

    Each has Clopper and Pearson's interval; what they move the difference by is added in squares, as independent errors are.
    By the second alone, the number of such images taken as given, large differences would seem to be known far too well.
    """
    total = only_first + only_second
    share, lead = total / n, (only_first - only_second) / total
    lowest_lead = 2 * _clopper_pearson(only_first, total, level)[0] - 1
    least_share, most_share = _clopper_pearson(total, n, level)
    low = lead * share - math.hypot(
        (lead - lowest_lead) * share, lead * (share - (least_share if lead > 0 else most_share))
    )
    return max(low, lowest_lead * least_share) if lowest_lead > 0 else min(low, 0.0)  # as the exact test has it


def _clopper_pearson(count: int, n: int, level: float) -> tuple[float, float]:
    low = float(betaincinv(count, n - count + 1, level / 2)) if count else 0.0
    return low, float(betaincinv(count + 1, n - count, 1 - level / 2)) if count < n else 1.0
