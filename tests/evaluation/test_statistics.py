from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from smallvit.evaluation.statistics import bootstrap_difference, clustered_interval, mean_interval, rounding, wilson


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


def test_without_clusters_that_vary_the_interval_is_wilsons() -> None:
    right = np.tile([1.0, 1.0, 1.0, 0.0], 50)
    assert clustered_interval(right, np.arange(200) // 4) == pytest.approx(wilson(150, 200))
    assert clustered_interval(np.ones(40), np.arange(40) % 5) == wilson(40, 40)


def test_clusters_that_are_right_as_a_whole_count_as_one_image_each() -> None:
    """20 images of one scene that stand or fall together say as much as one; Student's quantile makes it wider still."""
    right, scene = np.repeat([1.0, 1.0, 0.0, 1.0, 1.0] * 2, 20), np.repeat(np.arange(10), 20)
    low, high = clustered_interval(right, np.arange(200) % 5, scene)
    narrow, wide = wilson(8, 10), wilson(160, 200)
    assert low < narrow[0] + 0.02 and high > narrow[1] - 0.02 and high - low > 2.5 * (wide[1] - wide[0])


@pytest.mark.parametrize(("n", "spread", "least_plain"), [(500, 0.0, 0.93), (1000, 0.03, 0.0)])
def test_the_interval_of_folds_holds_what_it_promises(n: int, spread: float, least_plain: float) -> None:
    """Five models, each a little better or worse than another: the share that they stand for is inside as often as said."""
    draw, fold = np.random.default_rng(0), np.arange(n) % 5
    inside, plain = 0, 0
    for _ in range(600):
        share = np.clip(0.85 + spread * draw.standard_normal(5), 0, 1)
        right = (draw.random(n) < share[fold]).astype(float)
        low, high = clustered_interval(right, fold)
        inside += low <= 0.85 <= high
        low, high = wilson(right.sum(), n)
        plain += low <= 0.85 <= high
    assert 0.90 <= inside / 600 <= 0.985
    assert plain / 600 > least_plain and (spread == 0 or plain / 600 < 0.85)  # images alone would promise too much


def test_few_groups_tell_little_however_many_images_they_have() -> None:
    one = np.zeros(30, dtype=np.int64)
    assert clustered_interval(np.arange(30) < 20.0, groups_N=one) == (0.0, 1.0), (
        "of one group nothing follows for others"
    )
    two = np.arange(200) // 100
    assert clustered_interval(np.ones(200), groups_N=two) == wilson(2, 2)
    assert clustered_interval(np.ones(1), groups_N=one[:1]) == wilson(1, 1)


def test_values_that_are_alike_vary_by_the_least_that_is_given() -> None:
    least = rounding(20)
    mean, low, high = mean_interval([0.05, 0.05], least=least)
    assert mean == 0.05 and high - mean == pytest.approx(12.706 * least / 2**0.5, rel=1e-3) and low < 0
    assert mean_interval([0.0, 0.5], least=least) == mean_interval([0.0, 0.5])
