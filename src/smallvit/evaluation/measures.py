"""Balanced accuracy, macro F1 and AUROC: every class counts the same, however many images it has. N images, K classes.

Each of them is to first order a sum over the images (`parts_N`): by how much the number would move if an image came a
little more often. The variance of such a sum, drawn anew within every class, is that of a stratified bootstrap with
endlessly many draws, without a draw. Images that share a fold's model or a group are summed up before they vary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from smallvit.evaluation.statistics import wilson

Numbers = NDArray[np.float64]
MOST_TURNED = 2**24  # numbers: with thousands of classes all of them have gigabytes


class Measured(NamedTuple):
    value: float  # the mean of those of the classes
    parts_N: Numbers  # what each image adds to it
    of_class_K: Numbers  # of the classes that have images


def measures(probabilities_NK: NDArray[np.floating], labels_N: NDArray[np.int64]) -> dict[str, Measured]:
    """By name. Classes without images are left out; AUROC is missing where there is one class only."""
    counts_K = np.bincount(labels_N, minlength=probabilities_NK.shape[1])
    answers_N = probabilities_NK.argmax(1)
    found = {
        "balanced_accuracy": _balanced(answers_N, labels_N, counts_K),
        "macro_f1": _macro_f1(answers_N, labels_N, counts_K),
    }
    return found | ({"auroc": _auroc(probabilities_NK, labels_N, counts_K)} if (counts_K > 0).sum() > 1 else {})


def _balanced(answers_N: NDArray[np.int64], labels_N: NDArray[np.int64], counts_K: NDArray[np.int64]) -> Measured:
    right_N, seen_K = answers_N == labels_N, counts_K > 0
    recall_K = np.bincount(labels_N[right_N], minlength=len(counts_K))[seen_K] / counts_K[seen_K]
    return Measured(float(recall_K.mean()), right_N / counts_K[labels_N] / seen_K.sum(), recall_K)


def _macro_f1(answers_N: NDArray[np.int64], labels_N: NDArray[np.int64], counts_K: NDArray[np.int64]) -> Measured:
    """F1 of a class is 2 * right / (its images + answers that name it); the mean over classes that have images."""
    right_N = answers_N == labels_N
    both_K = counts_K + np.bincount(answers_N, minlength=len(counts_K))
    seen_K = counts_K > 0
    f1_K = 2 * np.bincount(labels_N[right_N], minlength=len(counts_K)) / np.maximum(both_K, 1)
    moved_N = (2.0 * right_N - f1_K[answers_N]) / both_K[answers_N] * seen_K[answers_N]
    return Measured(float(f1_K[seen_K].mean()), moved_N / seen_K.sum(), f1_K[seen_K])


def _auroc(
    probabilities_NK: NDArray[np.floating], labels_N: NDArray[np.int64], counts_K: NDArray[np.int64]
) -> Measured:
    """Each class against the rest: how often one of its images has more of its probability than another; ties are half."""
    seen, N = np.flatnonzero(counts_K), len(labels_N)
    values, parts_N = [], np.zeros(N)
    for klass, column_N in _columns(probabilities_NK, seen):
        own_N = labels_N == klass
        own, others = column_N[own_N], column_N[~own_N]
        over_others = _share_below(np.sort(others), own)
        values.append(float(over_others.mean()))
        parts_N[own_N] += over_others / len(own)
        parts_N[~own_N] += (1 - _share_below(np.sort(own), others)) / len(others)
    return Measured(float(np.mean(values)), parts_N / len(seen), np.array(values))


def _columns(
    probabilities_NK: NDArray[np.floating], classes: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Some are turned at once: one by one they would be read all over memory."""
    at_once = max(1, MOST_TURNED // len(probabilities_NK))
    for start in range(0, len(classes), at_once):
        some = classes[start : start + at_once]
        yield from zip(some.tolist(), np.ascontiguousarray(probabilities_NK[:, some].T), strict=True)


def _share_below(sorted_M: NDArray[np.floating], values: NDArray[np.floating]) -> Numbers:
    both = np.searchsorted(sorted_M, values, "left") + np.searchsorted(sorted_M, values, "right")
    return np.asarray(both / (2 * len(sorted_M)))


# ---- intervals ---------------------------------------------------------------------------------------


def measured_interval(
    measured: Measured,
    labels_N: NDArray[np.int64],
    folds_N: NDArray[np.int64] | None = None,
    groups_N: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Wilson's interval at the number of images that would make it as wide as the measure varies.

    A class with 0 or 1 is no certainty: what it has with one more image right and one more wrong adds to the variance.
    `folds_N` and `groups_N` are as in `clustered_interval`.
    """
    groups = len(labels_N) if groups_N is None else len(np.unique(groups_N))
    if groups == 1 < len(labels_N):
        return 0.0, 1.0
    counts_K = _images_of_classes(labels_N)
    own_K = measured.of_class_K
    soft_K = (own_K * counts_K + 1) / (counts_K + 2)
    excess = float(np.sum((soft_K * (1 - soft_K) - own_K * (1 - own_K)) / counts_K)) / len(counts_K) ** 2
    z, soft = float(ndtri(0.5 + confidence / 2)), float(soft_K.mean())
    varies = _spread(measured.parts_N, labels_N, (folds_N, groups_N), excess, confidence)
    # A model with one answer for all images has an AUROC that does not vary at all.
    effective = soft * (1 - soft) * z**2 / max(varies, _of_one_image(counts_K) * z**2)
    value = min(max(measured.value, 0.0), 1.0)  # rounding
    if groups_N is not None and value in (0.0, 1.0):  # nothing varies: groups tell no more than as many images would
        effective = min(effective, groups)
    return wilson(effective if value == 1 else value * effective, effective, confidence)


def paired_interval(
    first: Measured,
    second: Measured,
    labels_N: NDArray[np.int64],
    groups_N: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Interval of first - second on the same images. Two models that never differ may still on the next image."""
    if groups_N is not None and len(np.unique(groups_N)) == 1 < len(labels_N):
        return -1.0, 1.0
    difference = first.value - second.value
    counts_K = _images_of_classes(labels_N)
    least = 2 * _of_one_image(counts_K)  # for either side
    half = math.sqrt(_spread(first.parts_N - second.parts_N, labels_N, (groups_N,), least, confidence))
    return max(-1.0, difference - half), min(1.0, difference + half)


def _of_one_image(counts_K: NDArray[np.int64]) -> float:
    """The variance that one image more or less would be."""
    return float(np.mean(1 / counts_K) / len(counts_K)) ** 2


def _images_of_classes(labels_N: NDArray[np.int64]) -> NDArray[np.int64]:
    counts_K = np.bincount(labels_N)
    return counts_K[counts_K > 0]


def _spread(
    parts_N: Numbers, labels_N: NDArray[np.int64], clusterings: tuple[NDArray[np.int64] | None, ...], excess: float,
    confidence: float,
) -> float:  # fmt: skip
    """The squared half-width: what clusters vary beyond single images is known to C - 1 degrees of freedom only."""
    counts_K = np.maximum(np.bincount(labels_N), 1)
    centred_N = parts_N - (np.bincount(labels_N, weights=parts_N) / counts_K)[labels_N]
    plain = float(np.square(centred_N).sum())
    z = float(ndtri(0.5 + confidence / 2))
    widest = 0.0
    for cluster_N in clusterings:
        if cluster_N is None:
            continue
        C = len(np.unique(cluster_N))
        sums_C = np.bincount(cluster_N, weights=centred_N)
        varies = C / (C - 1) * float(np.square(sums_C).sum()) if C > 1 else 0.0
        if varies > plain:
            widest = max(widest, (varies - plain) * float(stdtrit(C - 1, 0.5 + confidence / 2)) ** 2)
    return (plain + excess) * z**2 + widest
