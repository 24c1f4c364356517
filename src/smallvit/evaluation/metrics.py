"""From probabilities to the numbers of a report. N images, K classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from smallvit.evaluation.blocks import surest
from smallvit.evaluation.classes import MEASURES
from smallvit.evaluation.measures import measured_interval, measures
from smallvit.evaluation.statistics import clustered_interval, wilson

MOST_CONFUSED = 1000  # classes whose confusion matrix is kept


class Score(NamedTuple):
    """One look at a model under way. `accuracy` is None where there is nothing to be right about."""

    accuracy: float | None
    loss: float | None  # of its classifier, where it has one
    signs: Mapping[str, float] = MappingProxyType({})  # what else was measured
    collapse: str = ""  # what shows that the features say nothing any more
    images: int = 0  # that it was judged by, where not by all that were held out

    @property
    def is_finite(self) -> bool:
        """Whether the model still gives numbers; the accuracy of one that does not looks like any other."""
        return all(math.isfinite(number) for number in (self.loss, *self.signs.values()) if number is not None)

    @property
    def numbers(self) -> dict[str, float]:
        """What the records of a run hold of it."""
        numbers = {"val_accuracy": self.accuracy, "val_loss": self.loss, **self.signs}
        return {name: number for name, number in numbers.items() if number is not None}


def score(logits_NK: Tensor, labels_N: Tensor) -> Score:
    accuracy = (logits_NK.argmax(1) == labels_N).double().mean()
    return Score(float(accuracy), float(F.cross_entropy(logits_NK, labels_N)))


def group_numbers(groups: Sequence[str], rows_N: Tensor) -> NDArray[np.int64] | None:
    """(N,): the group of each of these images, from 0; None where images have no groups."""
    if not groups:
        return None
    names = [groups[row] for row in rows_N.tolist()]
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def summary(
    logits_NK: Tensor, labels_N: Tensor, class_names: tuple[str, ...], *, folds_N: NDArray[np.int64] | None = None,
    groups_N: NDArray[np.int64] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Accuracy with its interval, per class and overall, and the confusion matrix (rows are true classes).

    Beside it what counts every class the same. `folds_N` and `groups_N` say which images are not independent: those of a
    fold share a model, those of a group a scene. Under `groups` stands how many there are.
    """
    K = len(class_names)
    answers_N = logits_NK.argmax(1)
    counts_K, right_K = (
        torch.bincount(some, minlength=K).tolist() for some in (labels_N, labels_N[answers_N == labels_N])
    )
    correct, n = sum(right_K), len(labels_N)
    right_N = (answers_N == labels_N).double().numpy()
    intervals = _class_intervals(right_N, labels_N.numpy(), counts_K, groups_N)
    per_class = [
        {"name": name, "n": of_class, "accuracy": right / of_class if of_class else None, "interval": interval}
        for name, of_class, right, interval in zip(class_names, counts_K, right_K, intervals, strict=True)
    ]
    return {
        "n": n,
        **({} if groups_N is None else {"groups": len(np.unique(groups_N))}),
        "accuracy": correct / n,
        "interval": clustered_interval(right_N, folds_N, groups_N),
        "loss": float(F.cross_entropy(logits_NK, labels_N)),
        **_measured(logits_NK, labels_N, folds_N, groups_N),
        "per_class": per_class,
        "confusion": _confusion(answers_N, labels_N, K),
    }


def _class_intervals(
    right_N: NDArray[np.float64], labels_N: NDArray[np.int64], counts_K: list[int], groups_N: NDArray[np.int64] | None
) -> list[tuple[float, float]]:
    """Of the share of each class. Its groups count; folds do not, which have few images of one class."""
    places = np.split(np.argsort(labels_N, kind="stable"), np.cumsum(counts_K)[:-1])
    return [
        wilson(float(right_N[own].sum()), len(own))
        if groups_N is None or not len(own)
        else clustered_interval(right_N[own], groups_N=groups_N[own])
        for own in places
    ]


def _confusion(answers_N: Tensor, labels_N: Tensor, classes: int) -> list[list[int]]:
    """Empty for very many classes: it would be larger than all else of a run together."""
    if classes > MOST_CONFUSED:
        return []
    return torch.bincount(labels_N * classes + answers_N, minlength=classes**2).reshape(classes, classes).tolist()


def _measured(
    logits_NK: Tensor, labels_N: Tensor, folds_N: NDArray[np.int64] | None, groups_N: NDArray[np.int64] | None
) -> dict[str, Any]:
    """The measures under their names, each with its interval."""
    labels = labels_N.numpy()
    found: dict[str, Any] = {}
    for name, measured in measures(logits_NK.softmax(1).numpy(), labels).items():
        found |= {name: measured.value, MEASURES[name].interval: measured_interval(measured, labels, folds_N, groups_N)}
    return found


def worst_mistakes(logits_NK: Tensor, labels_N: Tensor, most: int) -> Tensor:
    """Positions of the wrong answers, the most confident first."""
    probability_N, answer_N = surest(logits_NK)
    wrong = (answer_N != labels_N).nonzero()[:, 0]
    return wrong[probability_N[wrong].argsort(descending=True, stable=True)][:most]
