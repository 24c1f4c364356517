"""Accuracy along an axis of a study (images, epochs, sizes), and where two lines meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from smallvit.evaluation.statistics import mean_interval
from smallvit.runs.axes import means_over_images
from smallvit.studies.record import Record
from smallvit.studies.spec import BETWEEN, Study

DRAWS = 1000


class Point(NamedTuple):
    x: float
    values: tuple[float, ...]  # accuracy of each run, or mean of each of several draws, in percent

    @property
    def interval(self) -> tuple[float, float, float]:
        mean, low, high = mean_interval(self.values)
        return mean, max(0.0, low), min(100.0, high)


class Meeting(NamedTuple):
    """Where the second line overtakes the first, and between which places it does in 95 % of resamples."""

    first: str
    second: str
    x: float
    low: float
    high: float


def number(label: str) -> float:
    """Of a label on the axis that is drawn, `2,000 images`: a study is refused where one has none."""
    return float(label.replace(",", "").split()[0])


def series_of(study: Study, name: str) -> tuple[str, str]:
    """An arm without its place on the axis that is drawn, and that place."""
    arm = max((arm for arm in study.arms if name == arm or name.startswith(arm + BETWEEN)), key=len)
    labels = name[len(arm) + len(BETWEEN) :].split(BETWEEN)
    place = list(study.axes).index(study.x)
    return BETWEEN.join([arm, *labels[:place], *labels[place + 1 :]]), labels[place]


def lines_of(study: Study, record: Record) -> dict[str, list[Point]]:
    """Series -> its points in rising order; empty where the study draws along no axis."""
    if not study.x:
        return {}
    found: dict[str, list[Point]] = {}
    for name in study.asked(record.scale):
        if runs := record.of(name):
            series, label = series_of(study, name)
            values, _ = means_over_images({place: 100 * run.accuracy for place, run in runs.items()})
            found.setdefault(series, []).append(Point(number(label), tuple(values)))
    return {series: sorted(points) for series, points in found.items()}


def meetings(lines: dict[str, list[Point]]) -> list[Meeting]:
    """Of every two lines: by straight lines between their means, over the logarithm of the axis."""
    names = list(lines)
    found = []
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            xs = [point.x for point in lines[first]]
            if xs != [point.x for point in lines[second]] or len(xs) < 2 or min(xs) <= 0:
                continue
            means = [
                float(np.mean(a.values) - np.mean(b.values)) for a, b in zip(lines[first], lines[second], strict=True)
            ]
            if (x := meeting(xs, means)) is not None:
                found.append(Meeting(first, second, x, *_spread(xs, lines[first], lines[second])))
    return found


def meeting(xs: Sequence[float], differences: Sequence[float]) -> float | None:
    """The first place where the difference changes its sign."""
    apart = [(math.log(x), y) for x, y in zip(xs, differences, strict=True) if y]
    level = [math.log(x) for x, y in zip(xs, differences, strict=True) if not y]
    for (x, y), (x2, y2) in pairwise(apart):
        if y * y2 < 0:
            between = [place for place in level if x < place < x2]  # measured to be equal there
            return math.exp(between[0] if between else x + y / (y - y2) * (x2 - x))
    return None


def _spread(xs: Sequence[float], first: Sequence[Point], second: Sequence[Point]) -> tuple[float, float]:
    if any(len(point.values) < 2 for point in (*first, *second)):
        return math.nan, math.nan  # one run says nothing of others
    random = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        drawn = [
            float(np.mean(random.choice(a.values, len(a.values))) - np.mean(random.choice(b.values, len(b.values))))
            for a, b in zip(first, second, strict=True)
        ]
        x = meeting(xs, drawn)
        found.append(math.nan if x is None else x)
    inside = [x for x in found if not math.isnan(x)]
    if len(inside) < 0.95 * DRAWS:
        return math.nan, math.nan  # in some draws they do not meet at all
    return float(np.quantile(inside, 0.025)), float(np.quantile(inside, 0.975))
