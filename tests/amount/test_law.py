"""The power law: found again where it is known, its interval, and what cannot be told."""

from __future__ import annotations

import numpy as np
import pytest

from smallvit.amount.law import Measured, fit, sentence, tell

IMAGES = np.array([125.0, 250.0, 500.0, 1000.0])


def drawn(a: float, b: float, c: float, seeds: int, n: int, spread: float, draw: np.random.Generator) -> Measured:
    """Wrong answers of runs whose error follows the law; seeds differ by `spread`, and test images are hard or easy for all."""
    hard = draw.random(n)  # an image is wrong where it is harder than the model is good
    errors = a + b * (IMAGES / 1000) ** -c
    wrong = [[hard < max(0.0, error + draw.normal(0, spread)) for _ in range(seeds)] for error in errors]
    return Measured(IMAGES, np.array(wrong))


@pytest.mark.parametrize(("a", "b", "c"), [(0.05, 0.1, 0.7), (0.0, 0.2, 0.3), (0.2, 0.05, 1.0)])
def test_a_law_without_noise_is_found(a: float, b: float, c: float) -> None:
    law = fit(IMAGES, (a + b * (IMAGES / 1000) ** -c)[None], np.ones(4))
    assert law.gains[0] == pytest.approx(b * (1 - 2**-c), rel=0.02)
    assert law.error(np.array([2000.0]))[0, 0] == pytest.approx(a + b * 2**-c, abs=0.002)


def test_bounds_hold() -> None:
    rising = fit(IMAGES, np.array([[0.1, 0.12, 0.13, 0.2]]), np.ones(4))
    assert rising.b_D[0] == 0 and rising.gains[0] == 0, "more images never harm"
    steep = fit(IMAGES, np.array([[0.9, 0.3, 0.1, 0.001]]), np.ones(4))
    assert steep.a_D[0] >= 0 and steep.error(np.array([4000.0])).min() >= 0


def test_the_interval_holds_the_truth() -> None:
    draw = np.random.default_rng(0)
    held = 0
    for number in range(60):
        told = tell(drawn(0.05, 0.15, 0.6, 3, 1500, 0.006, draw), seed=number)
        held += told.interval[0] <= 0.15 * (1 - 2**-0.6) <= told.interval[1]
    assert held >= 51


def test_the_same_runs_tell_the_same() -> None:
    measured = drawn(0.05, 0.15, 0.6, 2, 500, 0.01, np.random.default_rng(1))
    assert tell(measured).interval == tell(measured).interval


def test_more_test_images_tell_more_and_few_tell_nothing() -> None:
    draw = np.random.default_rng(2)
    many = tell(drawn(0.05, 0.15, 0.6, 3, 4000, 0.002, draw))
    few = tell(drawn(0.05, 0.15, 0.6, 3, 60, 0.05, draw))
    assert many.telling and not few.telling
    assert many.interval[1] - many.interval[0] < few.interval[1] - few.interval[0]
    said = sentence(many, 1000, 4, 3)
    assert said.startswith(
        "Twice the images (2,000 instead of 1,000 for training) would in the same time bring about 5."
    )
    assert "cannot be told from these runs: anything from" in sentence(few, 1000, 4, 3)
    assert "cannot be told from 2 shares: it takes 3" in sentence(many, 1000, 2, 3)


def test_what_cannot_be_told_says_why() -> None:
    draw = np.random.default_rng(7)
    one_seed = tell(drawn(0.05, 0.15, 0.6, 1, 4000, 0.002, draw))
    assert not one_seed.telling and "cannot be told from one run of each share" in sentence(one_seed, 1000, 4, 1)
    guessing = tell(drawn(0.895, 0.005, 0.6, 3, 2000, 0.001, draw)._replace(chance=0.1))
    assert not guessing.telling and "hardly right more often than the largest class" in sentence(guessing, 1000, 4, 3)
    rising = Measured(IMAGES, np.array([[draw.random(500) < error] * 2 for error in (0.3, 0.3, 0.3, 0.45)]))
    said = sentence(told := tell(rising), 1000, 4, 2)
    assert not told.telling and "the error did not fall with more of them" in said


def grouped(groups: int, of_each: int, draw: np.random.Generator) -> Measured:
    """As `drawn`, but the images of a group are equally hard: they are wrong together."""
    each = drawn(0.05, 0.15, 0.6, 3, groups, 0.002, draw).wrong_PSN
    return Measured(IMAGES, each.repeat(of_each, axis=2), np.arange(groups).repeat(of_each))


def test_images_of_a_group_are_no_further_images() -> None:
    measured = grouped(60, 40, np.random.default_rng(4))
    alone = Measured(IMAGES, measured.wrong_PSN[..., ::40])
    together, once, apart = (tell(one) for one in (measured, alone, measured._replace(groups_N=None)))
    assert together.interval == pytest.approx(once.interval), "forty copies of an image tell what one tells"
    assert np.diff(together.interval) > 2 * np.diff(apart.interval) and apart.telling and not together.telling
    few = tell(grouped(5, 2_000, np.random.default_rng(5)))
    assert not few.telling
    assert (
        "cannot be told from a test part of 5 groups" in (said := sentence(few, 1000, 4, 3)) and "--seeds" not in said
    )


def test_the_band_follows_the_fit() -> None:
    told = tell(drawn(0.05, 0.15, 0.6, 2, 800, 0.005, np.random.default_rng(3)))
    middle, low, high = told.band(np.array([125.0, 1000.0, 2000.0]))
    assert (low <= middle).all() and (middle <= high).all() and (np.diff(middle) <= 0).all()


def test_the_interval_is_of_all_classes_where_there_are_very_many_test_images() -> None:
    """Rows stand class by class, and the first are easy here: models are never wrong on them."""
    draw = np.random.default_rng(3)
    easy, hard = np.zeros((4, 1, 20_000), dtype=bool), drawn(0.1, 0.2, 0.6, 1, 20_000, 0.0, draw).wrong_PSN
    told = tell(Measured(IMAGES, np.concatenate([easy, hard], axis=2)))
    assert told.interval[0] < told.gain < told.interval[1]
