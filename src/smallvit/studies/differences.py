"""Differences between arms: paired over seeds and draws, over test images, and corrected for how many there are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from smallvit.evaluation.statistics import bootstrap_difference, mean_interval, rounding
from smallvit.runs.axes import Place, means_over_images, once_for_its_images
from smallvit.runs.comparison import LEVEL, seeds_needed
from smallvit.studies.record import Record, RunFacts, right_of
from smallvit.studies.spec import Claim, Study

ACCURACY = "accuracy"
Numbers = NDArray[np.float64]


class Test(NamedTuple):
    """What is asked of the record: a mean of some quantity over replicates against a bound."""

    kind: str  # better | tie | more | error_ratio | above
    arms: tuple[str, ...]
    on: str = ACCURACY
    bound: float = 0.0

    @property
    def words(self) -> str:
        a = self.arms
        if self.kind == "more":
            return f"({a[0]} - {a[1]}) - ({a[2]} - {a[3]})"
        if self.kind == "error_ratio":
            return f"errors of {a[0]} less {self.bound:g} times those of {a[1]}"
        return f"{a[0]} - {a[1]}" if len(a) > 1 else a[0]


class Difference(NamedTuple):
    """`mean` with its intervals is in points of accuracy, or in the unit of `on`; p is of lying at the bound."""

    test: Test
    n: int  # replicates: draws where there are several, else seeds
    word: str
    mean: float
    low: float
    high: float
    p: float
    images: tuple[float, float] | None = None  # interval over replicates and test images, where they share them
    corrected: float = 1.0  # Holm's p
    beyond: tuple[float, ...] = ()  # of every replicate, by how much it is above the bound
    needed: int | None = None  # replicates that would show a difference of this size after the correction
    more_time: float = 0.0  # share of processor time that the better one had beyond the other

    @property
    def real(self) -> bool:
        """Beyond the bound on the side where it is seen: over seeds after the correction, and over test images."""
        bound = _bound(self.test, self.mean)
        return self.corrected < LEVEL and (self.images is None or not self.images[0] <= bound <= self.images[1])


def tests_of(claim: Claim) -> list[Test]:
    found = [Test("better", pair, claim.on, claim.by) for pair in claim.better]
    found += [Test("tie", pair, claim.on, claim.within) for pair in claim.tie]
    found += [Test("more", (*first, *second), claim.on, claim.by) for first, second in claim.more]
    found += [Test("error_ratio", pair, claim.on, claim.by) for pair in claim.error_ratio]
    return found + [Test("above", (arm,), claim.on, claim.by) for arm in claim.above]


def differences(study: Study, record: Record) -> dict[Test, Difference]:
    """All that is compared or claimed and has two replicates, with Holm's correction over all of it."""
    asked = [Test("better", pair) for pair in study.pairs(record.scale)]
    asked += [test for claim in study.claims for test in tests_of(claim)]
    found = {test: one for test in dict.fromkeys(asked) if (one := difference(record, test))}
    once = {_either_way(test): one.p for test, one in found.items()}
    corrected = dict(zip(once, holm([*once.values()]), strict=True))
    found = {test: one._replace(corrected=corrected[_either_way(test)]) for test, one in found.items()}
    left = sum(not one.real for one in found.values())  # which the correction has still to be made for
    return {test: one._replace(needed=seeds_needed(one.beyond, LEVEL / max(1, left))) for test, one in found.items()}


def _either_way(test: Test) -> Test:
    """Two that are compared both ways round are one comparison."""
    return test._replace(arms=tuple(sorted(test.arms))) if test.kind == "better" and not test.bound else test


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the chance of any false finding among all stays at the level."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, so_far = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = so_far
    return corrected


def difference(record: Record, test: Test) -> Difference | None:
    """None with fewer than two replicates that all arms of it have."""
    runs = [record.of(arm) for arm in test.arms]
    both = sorted(set.intersection(*(set(one) for one in runs)), key=_order) if runs else []
    values = [_value(test, [one[place] for one in runs]) for place in both]
    pairs = [(place, value) for place, value in zip(both, values, strict=True) if value is not None]
    means, word = means_over_images(dict(pairs))
    if len(means) < 2:
        return None
    least = _least(record, test, runs, both)
    mean, low, high = mean_interval(means, least=least)
    beyond = tuple(value - _bound(test, mean) for value in means)
    return Difference(
        test, len(means), word, mean, low, high, p_of(beyond, least), over_images(record, test, [place for place, _ in pairs]),
        beyond=beyond, more_time=_more_time(test, runs, mean),
    )  # fmt: skip


def _order(place: Place) -> tuple[int, int]:
    return place.draw or 0, place.seed or 0


def _bound(test: Test, mean: float) -> float:
    """A tie is left on the side where the mean lies; errors were compared with a multiple already."""
    if test.kind == "error_ratio":
        return 0.0
    return math.copysign(test.bound, mean) if test.kind == "tie" else test.bound


def _value(test: Test, runs: Sequence[RunFacts]) -> float | None:
    values = [100 * run.accuracy if test.on == ACCURACY else run.measured.get(test.on, math.nan) for run in runs]
    if any(math.isnan(value) for value in values):
        return None
    if test.kind == "above":
        return values[0]
    if test.kind == "error_ratio":
        return (100 - values[0]) - test.bound * (100 - values[1])
    if test.kind == "more":
        return (values[0] - values[1]) - (values[2] - values[3])
    return values[0] - values[1]


def _least(record: Record, test: Test, runs: Sequence[Mapping[Place, RunFacts]], both: Sequence[Place]) -> float:
    """Points that one difference in accuracy is off, for each side is known to one of its test images only."""
    if test.on != ACCURACY:
        return 0.0
    return 100 * rounding(min(record.tests_of(one[place]) for one in runs for place in both), len(test.arms))


def p_of(beyond: Sequence[float], least: float = 0.0) -> float:
    """Two-sided p of a mean of 0, where one value varies by `least` at the least."""
    n, mean = len(beyond), float(np.mean(beyond))
    error = max(least, float(np.std(beyond, ddof=1))) / math.sqrt(n)
    if error < 1e-12:
        return 1.0 if abs(mean) < 1e-12 else 0.0
    return float(2 * stdtr(n - 1, -abs(mean) / error))


def over_images(record: Record, test: Test, both: Sequence[Place]) -> tuple[float, float] | None:
    """Other seeds (or draws) and test images: of what is said of accuracy, where all runs judged the same images."""
    if test.on != ACCURACY:
        return None
    sides = [{place: runs[place] for place in both} for runs in map(record.of, test.arms)]
    judged = {(run.judged, record.tests_of(run)) for side in sides for run in side.values()}
    if len(judged) != 1:
        return None
    # Of every test image the share of a draw's runs that have it right: what is drawn again are draws, not their runs.
    shares = [
        np.stack([np.mean([right_of(record, run) for run in runs], axis=0) for runs in once_for_its_images(side)[0]])
        for side in sides
    ]
    low, high = bootstrap_difference(*_sides_of(test, shares), record.groups_of(judged.pop()[0]))
    return 100 * low, 100 * high


def _sides_of(test: Test, shares: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """Of every test image, what is taken from what."""
    if test.kind == "above":
        return shares[0], np.zeros_like(shares[0])
    if test.kind == "error_ratio":
        return 1 - shares[0], test.bound * (1 - shares[1])
    if test.kind == "more":
        return shares[0] - shares[1], shares[2] - shares[3]
    return shares[0], shares[1]


def _more_time(test: Test, runs: Sequence[Mapping[Place, RunFacts]], mean: float) -> float:
    if test.kind not in ("better", "tie"):
        return 0.0
    spent = [mean_seconds(one.values()) for one in runs]
    winner, other = spent if mean > 0 else reversed(spent)
    return winner / other - 1 if winner > 0 and other > 0 else 0.0


def mean_seconds(runs: Iterable[RunFacts]) -> float:
    """Of processor time, over the runs of which it is known: not of those that outlived a study that was killed. 0 where of none."""
    known = [run.cpu_seconds for run in runs if run.cpu_seconds]
    return float(np.mean(known)) if known else 0.0
