"""Figures as pure functions from numbers to SVG text."""

from __future__ import annotations

import re
import warnings

import matplotlib
import numpy as np
import pytest

from smallvit.drawing import figures
from smallvit.drawing.figures import Bar, Curve, accuracy_chart, confusion_map, curve_panel, fit


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_colours_are_the_pages_variables() -> None:
    bars = [Bar("a", 0.9, 0.8, 0.95, 1), Bar("mean", 0.9, 0.8, 0.95, -1), Bar("floor", 0.5, 0.4, 0.6, 0)]
    svg = accuracy_chart(bars)
    used = set(re.findall(r"var\((--[\w-]+)\)", svg))
    assert {"--ink", "--series-1", "--floor", "--soft"} <= used
    assert not re.findall(r"(?:fill|stroke): #", svg)
    assert "font-family" not in svg


def test_a_label_that_looks_like_svg_or_colour_is_left_alone() -> None:
    label = 'id="x" #010101 href="#'
    assert label in texts(accuracy_chart([Bar(label, 0.9, 0.8, 0.95, 1)]))


@pytest.mark.parametrize(
    ("classes", "numbers", "names"),
    [(2, True, True), (20, True, True), (21, False, True), (102, False, False)],
)
def test_what_a_confusion_map_writes(classes: int, numbers: bool, names: bool) -> None:
    counts = np.full((classes, classes), 7) + 990 * np.eye(classes, dtype=int)
    written = texts(confusion_map(counts.tolist(), [f"c{i}" for i in range(classes)], "m"))
    assert ("997" in written) == numbers
    assert ("c1" in written) == names
    assert ("100" in written) == (classes > 100)


def test_the_users_settings_and_missing_letters_change_nothing() -> None:
    curve = Curve([1, 2, 3], [0.1, 0.5, 0.9], 1, mark=(3, 0.9))
    plain = curve_panel([curve], "a", "日本", "epoch", percent=True)
    with (
        matplotlib.rc_context({"font.size": 40, "svg.fonttype": "path", "axes.grid": True}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        assert curve_panel([curve], "a", "日本", "epoch", percent=True) == plain
        confusion_map([[1, 2], [3, 4]], ["日本", "\x07"], "m")
        assert matplotlib.rcParams["font.size"] == 40


@pytest.mark.parametrize("y", [[0.5], [0.99, 0.995, 0.999], [0.0, 0.0]])
def test_short_and_flat_curves_are_drawn(y: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = curve_panel([Curve(list(range(1, len(y) + 1)), y, 7)], "a", "x", "epoch", percent=True)
    assert "var(--series-1)" in svg  # colours repeat after the sixth


def test_names_are_cut_to_their_width() -> None:
    assert fit("short", 10) == "short"
    assert fit("a much longer name", 8) == "a much …"
    assert fit("日本語日本語", 6) == "日本…"
    assert fit("two\nlines\x00", 20) == "two lines\N{REPLACEMENT CHARACTER}"
    assert figures.dash_name(1) != figures.dash_name(2)
