"""Floors: what needs no deep model. Nobody should be proud of a network that loses to these."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.console import bar
from smallvit.data.imageset import Images, at_once
from smallvit.evaluation.simple import logistic_answers, neighbours_answers
from smallvit.evaluation.statistics import clustered_difference, wilson
from smallvit.randomness import generator

MOST_TRAINING = 5_000  # larger sets are thinned: the floor stays a floor and takes seconds
SHARES = (20, 20, 60)  # of the time, about: pixels, k-NN, logistic regression; for the bar
MOST_ROUNDS, FEWEST_ROUNDS = 100, 10  # of the logistic regression
FEW_CLASSES = 200  # up to so many it has all rounds
STRENGTH = 0.1  # scikit-learn's C
MOST_VALUES = 800  # pixels times channels: 28 px grey, 16 px colour


def pixel_floors(images_NCSS: Images, labels_N: Tensor, train: Tensor, test: Tensor) -> dict[str, dict[str, Any]]:
    """Majority class, k-NN and logistic regression on pixels: fitted on `train`, judged on `test`."""
    y_train, y_test = labels_N[train].numpy(), labels_N[test].numpy()
    counts_K = np.bincount(y_train)
    tied = np.flatnonzero(counts_K == counts_K.max())
    # Of equally frequent classes, as after --per-class, the one that scores best: a floor must not flatter.
    majority = max(tied, key=lambda klass: int((y_test == klass).sum()))
    floors = {
        "majority": _entry("majority class", y_test == majority, y_test, "the most frequent class of the training part")
    }

    thin = _thinned(train)
    side = pixel_side(images_NCSS.shape[1], images_NCSS.shape[-1])
    y_thin = labels_N[thin]
    why = f"{side} x {side} pixels" + (f", {len(thin):,} of {len(train):,} images" if len(thin) < len(train) else "")
    k = min(5, len(thin))
    with bar("fitting the floors", sum(SHARES)) as advance:
        x_train, x_test = (_pixels(images_NCSS, rows, side) for rows in (thin, test))
        advance(SHARES[0], note="k-NN")
        said = neighbours_answers(x_train, y_thin, x_test, k)
        floors["knn"] = _entry("k-NN on pixels", said.numpy() == y_test, y_test, f"k = {k}, {why}")
        advance(SHARES[1], note="logistic regression")
        rounds = rounds_for(len(y_thin.unique()))
        said = logistic_answers(x_train, y_thin, x_test, STRENGTH, rounds)
        why += f", {rounds} rounds" if rounds < MOST_ROUNDS else ""
        floors["logistic"] = _entry("logistic regression on pixels", said.numpy() == y_test, y_test, why)
        advance(SHARES[2])
    return floors


def rounds_for(classes: int) -> int:
    """A round takes as long as there are classes: with many of them fewer have to do."""
    return max(FEWEST_ROUNDS, min(MOST_ROUNDS, MOST_ROUNDS * FEW_CLASSES // classes))


def _thinned(rows: Tensor) -> Tensor:
    """Drawn, not every n-th row: classes that take turns in a file would be lost."""
    order = torch.randperm(len(rows), generator=generator(0, "floors"))
    return rows[order[:MOST_TRAINING].sort().values]


def pixel_side(channels: int, side: int) -> int:
    return min(side, int((MOST_VALUES / channels) ** 0.5))


def _pixels(images_NCSS: Images, rows: Tensor, side: int) -> Tensor:
    """Flat pixels in -1..1, resized with antialiasing."""
    chunks = [
        F.interpolate(images_NCSS[chunk].float(), (side, side), mode="bilinear", antialias=True).flatten(1)
        for chunk in rows.split(at_once(images_NCSS))
    ]
    return torch.cat(chunks) / 127.5 - 1


def beside(floors: dict[str, Any], right_N: np.ndarray, groups_N: np.ndarray | None = None) -> dict[str, Any]:
    """Floors as a run's results have them: how often the model alone is right, and the floor alone, on the same images.

    Where these come in groups, also how far the model is ahead at the least, and the p of that, over groups.
    """
    found = {}
    for name, floor in floors.items():
        plain = {key: value for key, value in floor.items() if key != "right"}
        if len(right_N) == floor.get("n"):
            packed = np.frombuffer(bytes.fromhex(floor["right"]), dtype=np.uint8)
            hits_N = np.unpackbits(packed, count=len(right_N)).astype(bool)
            plain |= {"only_model": int((right_N & ~hits_N).sum()), "only_floor": int((hits_N & ~right_N).sum())}
            if groups_N is not None and len(np.unique(groups_N)) < len(groups_N):
                _, low, _, p = clustered_difference(right_N, hits_N, groups_N)
                plain |= {"ahead_over_groups": low, "p_over_groups": p}
        found[name] = plain
    return found


def _entry(label: str, hits_N: np.ndarray, labels_N: np.ndarray, why: str) -> dict[str, Any]:
    correct, n = int(hits_N.sum()), len(hits_N)
    counts_K = np.bincount(labels_N)
    recall_K = np.bincount(labels_N, weights=hits_N)[counts_K > 0] / counts_K[counts_K > 0]
    return {
        "label": label,
        "accuracy": correct / n,
        "interval": wilson(correct, n),
        "balanced_accuracy": float(recall_K.mean()),
        "why": why,
        "n": n,
        "right": np.packbits(hits_N).tobytes().hex(),  # which images, for a paired test
    }
