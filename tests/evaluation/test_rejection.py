"""The threshold of unknown: that it keeps its promise is seen by drawing sets of which the truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from smallvit.evaluation.rejection import (
    CONFIDENCE,
    Threshold,
    calibrate,
    coverage_curve,
    doubts,
    fewest_images,
    judged,
)

Risk = Callable[[np.ndarray], np.ndarray]  # of the doubt, to the chance of a wrong answer
GRID = np.linspace(0, 1, 20_001)

RISKS: dict[str, Risk] = {
    "the more doubt the worse": lambda doubt: 0.6 * doubt**2,
    "calibrated": lambda doubt: doubt,
    "just above, wherever the threshold is": lambda doubt: np.full_like(doubt, 0.055),
    "just below": lambda doubt: np.full_like(doubt, 0.045),
    "sure and wrong": lambda doubt: np.where(doubt < 0.15, 0.2, 0.01),  # doubt tells the wrong way round
    "waves": lambda doubt: 0.05 + 0.045 * np.sin(20 * doubt),
}


def true_error(risk: Risk, threshold: float) -> float:
    """Of the answers, where doubts are even between 0 and 1."""
    below = GRID[threshold > GRID]
    return float(risk(below).mean()) if len(below) else 0.0


@pytest.mark.parametrize("name", RISKS)
@pytest.mark.parametrize("n", [150, 600])
def test_the_promise_is_kept(name: str, n: int) -> None:
    risk, draw, error, sets = RISKS[name], np.random.default_rng(len(name)), 0.05, 600
    broken = 0
    for _ in range(sets):
        doubt = draw.random(n)
        found = calibrate(doubt, draw.random(n) >= risk(doubt), error)
        broken += isinstance(found, Threshold) and true_error(risk, found.doubt) > error
    allowed = sets * (1 - CONFIDENCE)
    assert broken <= allowed + 3 * math.sqrt(allowed), f"{broken} of {sets}"


def test_the_plain_share_would_break_it() -> None:
    """What the exact test is for: the largest coverage at which the wrong answers seen are few enough."""
    draw, broken = np.random.default_rng(0), 0
    for _ in range(200):
        doubt = np.sort(draw.random(300))
        wrong = draw.random(300) < RISKS["calibrated"](doubt)
        passing = np.flatnonzero(np.cumsum(wrong) / np.arange(1, 301) <= 0.05)
        broken += len(passing) > 0 and true_error(RISKS["calibrated"], doubt[passing[-1]]) > 0.05
    assert broken > 60


def test_it_is_not_timid() -> None:
    draw = np.random.default_rng(1)
    doubt = draw.random(4000)
    found = calibrate(doubt, draw.random(4000) >= RISKS["the more doubt the worse"](doubt), 0.05)
    assert isinstance(found, Threshold)
    assert 0.35 < found.doubt < 0.5, "half may be answered"
    everything = calibrate(doubt, np.ones(4000, dtype=bool), 0.05)
    assert isinstance(everything, Threshold) and math.isinf(everything.doubt)


def test_too_few_images_and_a_hopeless_model_are_told() -> None:
    assert fewest_images(0.05) == 59
    few = calibrate(np.linspace(0, 1, 58), np.ones(58, dtype=bool), 0.05)
    assert isinstance(few, str) and "58 images are too few" in few and "it takes 59" in few
    enough = calibrate(np.linspace(0, 1, 59), np.ones(59, dtype=bool), 0.05)
    assert isinstance(enough, Threshold) and enough.answered == 59
    hopeless = calibrate(np.linspace(0, 1, 400), np.arange(400) % 2 == 0, 0.05)
    assert isinstance(hopeless, str) and "no threshold promises at most 5 %" in hopeless


def test_equal_doubts_are_answered_together_or_not_at_all() -> None:
    doubt = np.repeat([0.0, 0.5], [300, 300])
    found = calibrate(doubt, doubt == 0, 0.05)
    assert isinstance(found, Threshold) and found.answered == 300 and found.wrong == 0
    assert judged(doubt, doubt == 0, found.doubt)["coverage"] == 0.5


def test_doubt_tells_the_nearly_sure_apart() -> None:
    sure = np.array([[1.0, 1e-9, 1e-10], [1.0, 1e-12, 1e-12], [0.2, 0.5, 0.3]], dtype=np.float32)
    first, second, third = doubts(sure)
    assert 0 < second < first < 1e-8 and third == pytest.approx(0.5)


def test_the_curve_ends_with_all_images() -> None:
    draw = np.random.default_rng(2)
    doubt = draw.random(500)
    right = draw.random(500) >= doubt
    curve = coverage_curve(doubt, right)
    assert curve[-1] == (1.0, pytest.approx(right.mean()))
    assert curve[0][1] > 0.9 > curve[-1][1] and all(a[0] < b[0] for a, b in pairwise(curve))
    reached = judged(doubt, right, 0.2)
    assert reached["accuracy"] == pytest.approx(right[doubt < 0.2].mean()) and reached["n"] == 500
