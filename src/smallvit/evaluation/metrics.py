"""From probabilities to the numbers of a report. N images, K classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


def summary(
    logits_NK: Tensor, labels_N: Tensor, class_names: tuple[str, ...], *clusterings: NDArray[np.int64]
) -> dict[str, Any]:
    """Accuracy with its interval, per class and overall, and the confusion matrix (rows are true classes).

    Beside it what counts every class the same. `clusterings` say which images are not independent: those of a fold share
    a model, those of a group a scene.
    """
    K = len(class_names)
    answers_N = logits_NK.argmax(1)
    counts_K, right_K = (
        torch.bincount(some, minlength=K).tolist() for some in (labels_N, labels_N[answers_N == labels_N])
    )
    per_class: list[dict[str, Any]] = []
    for name, n, correct in zip(class_names, counts_K, right_K, strict=True):
        per_class.append({"name": name, "n": n, "accuracy": correct / n if n else None, "interval": wilson(correct, n)})
    correct, n = sum(right_K), len(labels_N)
    right_N = (answers_N == labels_N).double().numpy()
    return {
        "n": n,
        "accuracy": correct / n,
        "interval": clustered_interval(right_N, *clusterings) if clusterings else wilson(correct, n),
        "loss": float(F.cross_entropy(logits_NK, labels_N)),
        **_measured(logits_NK, labels_N, clusterings),
        "per_class": per_class,
        "confusion": _confusion(answers_N, labels_N, K),
    }


def _confusion(answers_N: Tensor, labels_N: Tensor, classes: int) -> list[list[int]]:
    """Empty for very many classes: it would be larger than all else of a run together."""
    if classes > MOST_CONFUSED:
        return []
    return torch.bincount(labels_N * classes + answers_N, minlength=classes**2).reshape(classes, classes).tolist()


def _measured(logits_NK: Tensor, labels_N: Tensor, clusterings: tuple[NDArray[np.int64], ...]) -> dict[str, Any]:
    """The measures under their names, each with its interval."""
    labels = labels_N.numpy()
    found: dict[str, Any] = {}
    for name, measured in measures(logits_NK.softmax(1).numpy(), labels).items():
        found |= {name: measured.value, MEASURES[name].interval: measured_interval(measured, labels, *clusterings)}
    return found


def worst_mistakes(logits_NK: Tensor, labels_N: Tensor, most: int) -> Tensor:
    """Positions of the wrong answers, the most confident first."""
    probability_N, answer_N = surest(logits_NK)
    wrong = (answer_N != labels_N).nonzero()[:, 0]
    return wrong[probability_N[wrong].argsort(descending=True, stable=True)][:most]
