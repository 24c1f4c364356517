"""Numbers to SVG text that lives inside the page.

Every figure is drawn at the pixel size it is shown at, with text left as text. Colours are drawn as
sentinels and become CSS variables of the page, so one drawing serves light, dark and print. Labels come
from users (class names, file names): they are drawn literally, never as maths or markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvit.drawing.svg import (
    INK,
    LINE,
    SOFT,
    STRONG,
    VARIABLES,
    Drawing,
    color,
    few_ticks,
    fit,
    pixel_axes,
    style,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))

# Heat map cells are one colour with varying opacity, so they fade into a light and a dark page alike.
_RIGHT_RGB, _WRONG_RGB = (0, 114, 178), (213, 94, 0)
_STRONG_FROM = 0.78  # opacity from which text in a cell turns white


class Bar(NamedTuple):
    """One row of the accuracy chart; series 0 is the grey of the floors, -1 the ink of a mean."""

    label: str
    value: float
    low: float
    high: float
    series: int


class Curve(NamedTuple):
    x: Sequence[float]
    y: Sequence[float]
    series: int
    faint: bool = False
    mark: tuple[float, float] | None = None  # a point to stress: the weights that were kept


def dash_name(series: int) -> str:
    """The CSS border style that goes with a curve in the page's legend."""
    return ("solid", "dashed", "dotted")[(series - 1) % len(_DASHES)]


def color_name(series: int) -> str:
    """The page's CSS variable for a series."""
    return VARIABLES[color(series)]


def accuracy_chart(bars: Sequence[Bar], name: str = "accuracy") -> str:
    return draw_accuracy(bars, name).svg()


def draw_accuracy(bars: Sequence[Bar], name: str = "accuracy") -> Drawing:
    """A bar from zero per model and floor, its interval as a whisker, its numbers written beside its name."""
    width, row, foot = 400, 50, 26
    with style(name):
        figure, axes = pixel_axes(width, row * len(bars) + foot, left=2, right=2, top=0, bottom=foot)
        axes.set(xlim=(0, 100), ylim=(len(bars) * row, 0))
        for index, bar in enumerate(bars):
            middle = index * row + 34
            value, low, high = 100 * bar.value, 100 * bar.low, 100 * bar.high
            axes.barh(middle, value, height=13, color=color(bar.series), linewidth=0)
            axes.plot([low, high], [middle, middle], color=INK, linewidth=1.6, solid_capstyle="butt")
            axes.plot([low, high], [middle, middle], color=INK, linestyle="", marker="|", markersize=9)
            weight = "normal" if bar.series == 0 else "bold"
            axes.text(0, middle - 13, fit(bar.label, 30), fontsize=13, fontweight=weight, va="baseline")
            numbers = f"{value:.1f}%  ({low:.1f}–{high:.1f})"
            axes.text(100, middle - 13, numbers, fontsize=13, ha="right", va="baseline")
        axes.set_yticks([])
        axes.set_xticks(range(0, 101, 20), labels=[f"{tick}%" for tick in range(0, 101, 20)])
        first, *_, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
        spoken = "; ".join(f"{b.label} {b.value:.1%}, interval {b.low:.1%} to {b.high:.1%}" for b in bars)
        return Drawing(figure, name, f"Bar chart of accuracy. {spoken}", width)


def curve_panel(
    curves: Sequence[Curve], name: str, label: str, x_label: str, percent: bool = False, from_zero: bool = True
) -> str:
    """One small panel; the page places panels side by side and draws the legend that they share."""
    width, height = 340, 230
    with style(name):
        figure, axes = pixel_axes(width, height, left=56, right=12, top=10, bottom=46)
        draw_curves(axes, curves, x_label, percent, from_zero)
        return to_svg(figure, name, label, width)


def draw_curves(axes: Axes, curves: Sequence[Curve], x_label: str, percent: bool, from_zero: bool) -> None:
    axes.grid(axis="y", color=LINE, linewidth=1)
    for curve in curves:
        axes.plot(
            curve.x,
            curve.y,
            color=color(curve.series),
            alpha=0.5 if curve.faint else 1,
            linewidth=1.2 if curve.faint else 2,
            linestyle=_DASHES[(curve.series - 1) % len(_DASHES)],
            marker="o" if len(curve.x) < 3 else "",
            markersize=4,
        )
        if curve.mark:
            axes.plot(*curve.mark, marker="o", markersize=7, color=color(curve.series))
    axes.margins(x=0.02)
    axes.tick_params(axis="x", pad=8)
    axes.set(xlim=(0, None), ylim=(0.0 if from_zero else _axis_floor(curves), None))
    if percent:
        axes.set_ylim(top=min(1.0, axes.get_ylim()[1]) + 0.01)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    else:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    axes.yaxis.set_major_locator(few_ticks())
    axes.xaxis.set_major_locator(few_ticks(integer=True))
    axes.set_xlabel(x_label, fontsize=12, color=SOFT, labelpad=6)


def confusion_map(
    counts: Sequence[Sequence[int]], names: Sequence[str], name: str, totals: Sequence[int] | None = None
) -> str:
    return draw_confusion(counts, names, name, totals).svg()


def draw_confusion(
    counts: Sequence[Sequence[int]], names: Sequence[str], name: str, totals: Sequence[int] | None = None
) -> Drawing:
    """Rows are true classes; colour is the share of the row, blue on the diagonal, orange for mistakes.

    `totals` are the images of each class where `counts` is a block of a larger matrix.

    Counts are written into the cells up to 20 classes and class names beside them up to 40; beyond that
    the axes carry class numbers, which the page's table of classes repeats.
    """
    counts_KK = np.asarray(counts, dtype=np.int64)
    K = len(counts_KK)
    cell = float(np.clip(300 / K, 27, 72)) if K <= 20 else (15 if K <= 40 else 480 / K)
    ticks = _class_ticks(names)
    size = 11 if 20 < K <= 40 else 12
    longest = max(len(text) for _, text in ticks)
    margin = 34 + 0.59 * size * longest
    upright = longest <= (3 if K <= 20 else 1) or K > 40
    width, height = margin + K * cell + 12, 8 + K * cell + (46 if upright else margin)
    totals_K = counts_KK.sum(axis=1) if totals is None else np.asarray(totals)
    share_KK = counts_KK / np.maximum(totals_K, 1)[:, None]
    shade_KK = share_KK**0.4  # single mistakes stay visible
    with style(name):
        figure, axes = pixel_axes(width, height, left=margin, right=12, top=8, bottom=height - 8 - K * cell)
        axes.imshow(_cells(shade_KK), interpolation="none", aspect="auto")
        if K <= 20:
            _write_counts(axes, counts_KK, shade_KK, cell)
        places, texts = [place for place, _ in ticks], [text for _, text in ticks]
        turn: dict[str, Any] = (
            {} if upright else {"rotation": 90, "rotation_mode": "anchor", "ha": "right", "va": "center"}
        )
        axes.set_xticks(places, labels=texts, fontsize=size, **turn)
        axes.set_yticks(places, labels=texts, fontsize=size)
        axes.set_xlabel("predicted", fontsize=12, color=SOFT, labelpad=6)
        axes.set_ylabel("true", fontsize=12, color=SOFT, rotation_mode="anchor")
        axes.yaxis.set_label_coords(-(margin - 14) / (K * cell), 0.5)
        for spine in axes.spines.values():
            spine.set(visible=True, color=LINE)
        right = int(np.trace(counts_KK))
        spoken = f"Confusion matrix of {K} classes: {right:,} of {totals_K.sum():,} images on the diagonal"
        return Drawing(figure, name, spoken, width, least=0.85 if width > 400 and K <= 40 else 0.0)


# ---- parts of the drawings ---------------------------------------------------------------------------


def _cells(shade_KK: NDArray[np.float64]) -> NDArray[np.uint8]:
    K = len(shade_KK)
    pixels_KK4 = np.empty((K, K, 4), dtype=np.uint8)
    pixels_KK4[..., :3] = np.where(np.eye(K, dtype=bool)[..., None], _RIGHT_RGB, _WRONG_RGB)
    pixels_KK4[..., 3] = np.round(255 * shade_KK)
    return pixels_KK4


def _write_counts(axes: Axes, counts_KK: NDArray[np.int64], shade_KK: NDArray[np.float64], cell: float) -> None:
    size = min(13.0, 1.5 * cell / max(2, len(str(counts_KK.max()))))
    for row, column in zip(*np.nonzero(counts_KK), strict=True):
        color = STRONG if shade_KK[row, column] > _STRONG_FROM else INK
        text = str(counts_KK[row, column])
        axes.text(column, row, text, fontsize=size, color=color, ha="center", va="center_baseline")


def _class_ticks(names: Sequence[str]) -> list[tuple[int, str]]:
    if len(names) <= 40:
        return [(place, fit(name, 18)) for place, name in enumerate(names)]
    step = 10 if len(names) <= 200 else 100
    return [(number - 1, str(number)) for number in (1, *range(step, len(names) + 1, step))]


def _axis_floor(curves: Sequence[Curve]) -> float:
    """Zero, unless every curve lives near the top: then most of the panel would be empty."""
    values = [value for curve in curves for value in curve.y]
    lowest, highest = min(values, default=0.0), max(values, default=0.0)
    return 0.0 if lowest < 0.6 * highest else lowest - 0.25 * (highest - lowest)
