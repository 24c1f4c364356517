"""Answers of N images for K classes, some rows at a time: with thousands of classes a copy of all of them has gigabytes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

MOST_NUMBERS = 2**24  # of a block; the sets that most people have are one block


def rows_at_once(classes: int) -> int:
    return max(1, MOST_NUMBERS // classes)


def blocks(logits_NK: Tensor) -> Iterator[Tensor]:
    """In float64."""
    for some_BK in logits_NK.split(rows_at_once(logits_NK.shape[1])):
        yield some_BK.double()


def surest(logits_NK: Tensor) -> tuple[Tensor, Tensor]:
    """(N,) the largest probability of each image, in float64, and (N,) its class."""
    found = [some_BK.softmax(1).max(1) for some_BK in blocks(logits_NK)]
    return torch.cat([some.values for some in found]), torch.cat([some.indices for some in found])


def mean_loss(logits_NK: Tensor, labels_N: Tensor, temperature: float = 1.0) -> float:
    """The cross-entropy of the logits at this temperature, in float64."""
    labels = labels_N.split(rows_at_once(logits_NK.shape[1]))
    sums = [
        F.cross_entropy(some_BK / temperature, labels_B, reduction="sum")
        for some_BK, labels_B in zip(blocks(logits_NK), labels, strict=True)
    ]
    return float(torch.stack(sums).sum() / len(labels_N))
