"""Do the probabilities mean what they say? N images, K classes.

The expected calibration error (ECE) sorts images by the probability of their answer, cuts them into 15 bins of equal
mass (as many images in each as in the next, give or take one), and averages the gap between mean probability and share
of right answers over the images. It is never zero on few images, even for a perfect model: `ece_if_perfect` says how
large it would be for one whose answers were right exactly as often as their probabilities say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from smallvit.evaluation.blocks import mean_loss, surest
from smallvit.randomness import generator

BINS = 15
DRAWS = 200  # made-up sets of answers behind `ece_if_perfect`
LIMITS = (1 / 20, 20.0)  # of the temperature: beyond it the fit says only that the validation part is too small
LEAST_IMAGES = 50  # fewer tell more of themselves than of the model


def calibration(answers: Mapping[str, tuple[Tensor, Tensor]], part: str) -> dict[str, Any]:
    """ECE of `part` as it is, the temperature that suits the validation part or why there is none, and ECE at it.

    What is judged on the images that it was fitted on proves nothing, so without a test part there is no ECE after.
    """
    logits_NK, labels_N = answers[part]
    result: dict[str, Any] = {
        "part": part,
        "bins": f"{BINS} bins of equal mass",
        "before": reliability(logits_NK, labels_N),
    }
    temperature, why_not = _temperature(answers.get("val"))
    if temperature is None:
        return result | {"not_fitted": why_not}
    result |= {"temperature": temperature, "fitted_on": {"part": "val", "n": len(answers["val"][1])}}
    return result | ({"after": reliability(logits_NK / temperature, labels_N)} if part != "val" else {})


def _temperature(held_out: tuple[Tensor, Tensor] | None) -> tuple[float | None, str]:
    """The temperature, or why there is none."""
    if held_out is None:
        return None, "there is no validation part to fit it on"
    if (n := len(held_out[1])) < LEAST_IMAGES:
        return None, f"{n} validation images are too few, it takes {LEAST_IMAGES}"
    found = fit_temperature(*held_out)
    if LIMITS[0] * 1.01 < found < LIMITS[1] / 1.01:
        return found, ""
    return None, f"the {n:,} validation images do not say how sure to be: all are right, or hardly any"


def reliability(logits_NK: Tensor, labels_N: Tensor) -> dict[str, Any]:
    """ECE with its bins (images, mean probability, share right), the loss, and the ECE of a perfect model."""
    sure_N, answer_N = surest(logits_NK)
    sure_N, order = sure_N.sort(stable=True)
    right_N = (answer_N == labels_N)[order].double()
    bins = [
        {"n": len(sure), "confidence": float(sure.mean()), "accuracy": float(right.mean())}
        for sure, right in zip(sure_N.tensor_split(BINS), right_N.tensor_split(BINS), strict=True)
        if len(sure)
    ]
    draws_DN = torch.rand((DRAWS, len(sure_N)), generator=generator(0, "calibration"), dtype=torch.float64) < sure_N
    return {
        "ece": float(_ece(sure_N, right_N)),
        "ece_if_perfect": float(_ece(sure_N, draws_DN.double()).mean()),
        "loss": mean_loss(logits_NK, labels_N),
        "bins": bins,
    }


def _ece(sure_N: Tensor, right_DN: Tensor) -> Tensor:
    """Sum over bins of |sum of (probability - right)|, per image; D sets of answers at once, or one."""
    gaps = [(sure_N - right_DN)[..., rows].sum(-1).abs() for rows in torch.arange(len(sure_N)).tensor_split(BINS)]
    return torch.stack(gaps).sum(0) / len(sure_N)


def fit_temperature(logits_NK: Tensor, labels_N: Tensor) -> float:
    """The number that the logits are divided by for the least cross-entropy, searched for by its logarithm.

    The loss is convex in 1/T, so it has one valley. Where all answers are right, it falls to the end of the range.
    """
    from scipy.optimize import minimize_scalar  # takes half a second to import, and few commands come here

    if bool((logits_NK.argmax(1) == labels_N).all()):
        return LIMITS[0]

    def loss(log_t: float) -> float:
        return mean_loss(logits_NK, labels_N, math.exp(log_t))

    bounds = tuple(map(math.log, LIMITS))
    valley = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-5})
    return round(math.exp(valley.x), 4)
