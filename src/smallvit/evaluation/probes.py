"""What frozen features are worth: k-NN, a linear probe, effective rank and the other signs of a collapse.

Features are compared by their directions everywhere: k-NN by the cosine, spread and rank of vectors of length 1.
N images, D width, K classes; M images of a bank that answers are looked up in.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.console import bar
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages
from smallvit.evaluation.predictor import Predictor
from smallvit.evaluation.statistics import wilson

NEIGHBOURS = 20
SHARPNESS = 0.07  # a neighbour at cosine c votes with the weight exp(c / SHARPNESS)
SAME = 1e-6  # spread of features of length 1 that is nothing but float32's rounding
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # of the linear probe: 1 / (regularisation), the best on the validation part


class Frozen(NamedTuple):
    """Features of a part and its labels, on the CPU."""

    features_ND: Tensor
    labels_N: Tensor


def extract(predictor: Predictor, images: ImageSet | DeviceImages, rows: Tensor) -> Frozen:
    """The pooled features that a classifier would stand on."""
    return Frozen(predictor.features(images, rows), images.labels_N.cpu()[rows])


# ---- k-NN --------------------------------------------------------------------------------------------


def knn_votes(bank: Frozen, features_ND: Tensor, num_classes: int, k: int = NEIGHBOURS) -> Tensor:
    """Share of the votes for each class, (N, K): the k nearest by cosine vote, the nearer the more (Wu et al. 2018)."""
    k = min(k, len(bank.labels_N))
    known_DM = F.normalize(bank.features_ND, dim=1).T
    shares = []
    for some_BD in features_ND.split(1024):
        cosine_Bk, place_Bk = (F.normalize(some_BD, dim=1) @ known_DM).topk(k, dim=1)
        weight_Bk = ((cosine_Bk - cosine_Bk[:, :1]) / SHARPNESS).exp()  # relative to the nearest: no overflow
        votes_BK = torch.zeros(len(some_BD), num_classes).scatter_add_(1, bank.labels_N[place_Bk], weight_Bk)
        shares.append(votes_BK / votes_BK.sum(1, keepdim=True))
    return torch.cat(shares)


def knn_probe(train: Frozen, judged: Frozen, num_classes: int) -> dict[str, Any]:
    votes_NK = knn_votes(train, judged.features_ND, num_classes)
    k = min(NEIGHBOURS, len(train.labels_N))
    return _entry("k-NN on features", votes_NK.argmax(1) == judged.labels_N, f"k = {k}, cosine, weighted votes")


# ---- the linear probe --------------------------------------------------------------------------------


def linear_probe(train: Frozen, val: Frozen | None, judged: Frozen) -> dict[str, Any]:
    """Logistic regression on standardised features, by L-BFGS; `val` chooses its strength, which is 1 without it."""
    from sklearn.linear_model import LogisticRegression

    mean_D, std_D = train.features_ND.mean(0), train.features_ND.std(0).clamp_min(1e-6)

    def standard(part: Frozen) -> Any:
        return ((part.features_ND - mean_D) / std_D).numpy()

    def fit(strength: float) -> Any:
        return LogisticRegression(C=strength, max_iter=2000, tol=1e-3).fit(standard(train), train.labels_N.numpy())

    if val is None:
        chosen, model = 1.0, fit(1.0)
    else:
        models = {}
        with bar("fitting the linear probe", len(STRENGTHS)) as advance:
            for strength in STRENGTHS:
                models[strength] = fit(strength)
                advance(1, note=f"C = {strength:g}")
        # Equally good: the more regularised one.
        chosen = max(STRENGTHS, key=lambda c: (models[c].score(standard(val), val.labels_N.numpy()), -c))
        model = models[chosen]
    hits_N = torch.from_numpy(model.predict(standard(judged))) == judged.labels_N
    why = "chosen on the validation part" if val is not None else "not chosen: there is no validation part"
    return _entry("linear probe", hits_N, f"logistic regression by L-BFGS, C = {chosen:g}, {why}")


def _entry(label: str, hits_N: Tensor, why: str) -> dict[str, Any]:
    correct, n = int(hits_N.sum()), len(hits_N)
    return {"label": label, "accuracy": correct / n, "interval": wilson(correct, n), "n": n, "why": why}


# ---- collapse ----------------------------------------------------------------------------------------


class Signs(NamedTuple):
    """`spread` is 0 where all images have the same direction, and 1 where directions are even over the sphere.

    `effective_rank` is how many directions the images differ in.
    """

    spread: float
    effective_rank: float

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.spread) and math.isfinite(self.effective_rank)


def collapse_signs(features_ND: Tensor) -> Signs:
    if not features_ND.isfinite().all():
        return Signs(math.nan, math.nan)
    differences_ND = _differences(features_ND)
    return Signs(float(differences_ND.square().sum(1).mean().sqrt()), _rank(differences_ND))


def effective_rank(features_ND: Tensor) -> float:
    """How many directions the images differ in: exp of the entropy of the singular values' shares.

    Of the features at length 1, centred (after Roy and Vetterli 2007, who do neither). From 1, all on one line, to the
    smaller of D and N - 1, as far in all directions; 0 where all are the same. It counts singular values, not their squares:
    small directions count for more than their share of the variance.
    """
    return _rank(_differences(features_ND))


def _rank(differences_ND: Tensor) -> float:
    values = torch.linalg.svdvals(differences_ND)
    if values.square().sum() < len(differences_ND) * SAME**2:
        return 0.0
    return float(torch.special.entr(values / values.sum()).sum().exp())


def _differences(features_ND: Tensor) -> Tensor:
    """The features at length 1, without their mean."""
    unit_ND = F.normalize(features_ND.double(), dim=1)
    return unit_ND - unit_ND.mean(0)
