from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from smallvit.evaluation.statistics import bootstrap_difference, mean_interval, wilson


@pytest.mark.parametrize(("correct", "n"), [(0, 1), (1, 1), (0, 10), (5, 10), (10, 10), (333, 359), (9_999, 10_000)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_agrees_with_scipy(correct: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(correct, n).proportion_ci(confidence, method="wilson")
    assert wilson(correct, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_known_values() -> None:
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998, table I, method 3
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_wilson_stays_within_0_and_1_and_holds_the_share() -> None:
    for n in range(1, 60):
        for correct in range(n + 1):
            low, high = wilson(correct, n)
            assert 0 <= low <= correct / n <= high <= 1


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("values", [[0.9, 0.91], [1.0, 2.0, 4.0], [0.5, 0.5, 0.5], [-3.0, 8.0, 1.5, 2.25, 0.0]])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_mean_interval_agrees_with_scipy(values: list[float], confidence: float) -> None:
    mean, low, high = mean_interval(values, confidence)
    spread = stats.sem(values)
    assert mean == pytest.approx(sum(values) / len(values))
    if spread == 0:
        assert (low, high) == (mean, mean)
    else:
        assert (low, high) == pytest.approx(stats.t.interval(confidence, len(values) - 1, mean, spread))


def test_one_value_has_no_interval() -> None:
    mean, low, high = mean_interval([0.7])
    assert mean == 0.7 and math.isnan(low) and math.isnan(high)


def test_bootstrap_of_paired_runs_covers_the_true_difference() -> None:
    """Runs that are right with probability 0.7 and 0.6: the interval holds 0.1 about as often as it says."""
    random = np.random.default_rng(1)
    held = 0
    for _ in range(40):
        a, b = (random.random((5, 300)) < share for share in (0.7, 0.6))
        low, high = bootstrap_difference(a, b, draws=400)
        assert -1 <= low < high <= 1
        held += low <= 0.1 <= high
    assert held >= 35


def test_bootstrap_of_equal_runs_is_zero_and_of_swapped_runs_the_opposite() -> None:
    random = np.random.default_rng(2)
    a, b = random.random((3, 50)) < 0.5, random.random((3, 50)) < 0.5
    assert bootstrap_difference(a, a) == (0.0, 0.0)
    low, high = bootstrap_difference(a, b)
    assert bootstrap_difference(b, a) == pytest.approx((-high, -low), abs=0.02)
