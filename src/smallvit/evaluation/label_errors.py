"""Labels that are probably wrong, by what models say that were not trained on them (confident learning, Northcutt et al. 2021).

How sure a model has to be of a class differs from class to class: the threshold of class k is the mean probability of k
over the images that are labelled k, t_k = mean of p_nk where y_n = k. Image n, labelled y, is suspected to be of class k
where p_nk >= t_k and p_nk > p_ny; of several such classes the most probable is taken. The surest come first: those with
the largest p_nk - p_ny. N images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Of models that are wrong more often than this most doubts are their own mistakes: with 57 % they doubted a quarter to a third
# of labels that are right, with 93 % nearly all that they doubted was planted (docs/folds.md).
LEAST_ACCURACY = 0.8


def may_doubt(judged: Mapping[str, Any]) -> bool:
    """Whether models that were judged so are good enough to doubt labels; of unbalanced classes one answer is often right."""
    good: float = judged.get("balanced_accuracy", judged["accuracy"])
    return good >= LEAST_ACCURACY


class Suspects(NamedTuple):
    """Places among the N images, the surest first; what is said of each; and how far it is above the given label."""

    places: Tensor
    said: Tensor
    margin: Tensor


def suspected_labels(probabilities_NK: Tensor, labels_N: Tensor) -> Suspects:
    probabilities_NK = probabilities_NK.double()
    K = probabilities_NK.shape[1]
    given_N = probabilities_NK.gather(1, labels_N[:, None])[:, 0]
    total_K = torch.zeros(K, dtype=torch.float64).index_add_(0, labels_N, given_N)
    counts_K = torch.bincount(labels_N, minlength=K)
    # Of a class that no image has nothing is known: nothing is suspected to be of it.
    threshold_K = torch.where(counts_K > 0, total_K / counts_K.clamp_min(1), torch.inf)
    above_NK = (probabilities_NK >= threshold_K) & (probabilities_NK > given_N[:, None])
    margin_N, said_N = (probabilities_NK - given_N[:, None]).where(above_NK, -torch.inf).max(1)
    places = torch.isfinite(margin_N).nonzero()[:, 0]
    places = places[margin_N[places].argsort(descending=True, stable=True)]
    return Suspects(places, said_N[places], margin_N[places])
