"""What a study draws: ours beside theirs with intervals, curves with bands over seeds, accuracy along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from smallvit.drawing.svg import FLOOR, INK, LINE, SOFT, color, few_ticks, fit, pixel_axes, style, to_svg


class Row(NamedTuple):
    """An arm: its mean with an interval (NaN: one run alone), and what was published (NaN: nothing). Percent."""

    label: str
    mean: float
    low: float
    high: float
    published: float = math.nan


class Band(NamedTuple):
    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    series: int


def beside_chart(rows: Sequence[Row], chance: float = math.nan, name: str = "beside") -> str:
    """A dot with a whisker for ours, a hollow diamond for theirs, a line each."""
    width, row, foot = 560, 26, 44
    left = 18 + 6.6 * max(len(fit(one.label, 38)) for one in rows)
    with style(name):
        figure, axes = pixel_axes(width, row * len(rows) + foot, left=left, right=16, top=4, bottom=foot)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="x", color=LINE, linewidth=1)
        if not math.isnan(chance):
            axes.axvline(chance, color=FLOOR, linewidth=1.4, linestyle=(0, (3, 2)))
        for index, one in enumerate(rows):
            if not math.isnan(one.low):
                axes.plot([one.low, one.high], [index, index], color=INK, linewidth=1.6, solid_capstyle="butt")
            if not math.isnan(one.mean):
                axes.plot(one.mean, index, "o", color=color(1), markersize=7)
            if not math.isnan(one.published):
                axes.plot(one.published, index, "D", markerfacecolor="none", markeredgecolor=color(2), markersize=7)
        axes.set_yticks(range(len(rows)), labels=[fit(one.label, 38) for one in rows])
        axes.margins(x=0.04)
        axes.xaxis.set_major_locator(few_ticks())
        axes.set_xlabel("accuracy, %", fontsize=12, color=SOFT, labelpad=6)
        spoken = "; ".join(f"{one.label}: ours {one.mean:.1f}, published {one.published:.1f}" for one in rows)
        return to_svg(figure, name, f"Accuracy of every arm beside what was published. {spoken}", width)


def band_panel(
    bands: Sequence[Band], name: str, label: str, x_label: str, percent: bool = False, log_x: bool = False
) -> str:
    """A line with its band for each series; the page draws the legend."""
    width, height = 480, 290
    with style(name):
        figure, axes = pixel_axes(width, height, left=56, right=16, top=12, bottom=46)
        axes.grid(axis="y", color=LINE, linewidth=1)
        for band in bands:
            axes.fill_between(band.x, band.low, band.high, color=color(band.series), alpha=0.18, linewidth=0)
            axes.plot(
                band.x,
                band.mean,
                color=color(band.series),
                linewidth=2,
                marker="o" if len(band.x) < 12 else "",
                markersize=4,
            )
        if log_x:
            axes.set_xscale("log")
            ticks = sorted({x for band in bands for x in band.x})
            axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        else:
            axes.xaxis.set_major_locator(few_ticks(integer=True))
        axes.tick_params(axis="x", pad=8)
        axes.margins(x=0.02)
        axes.yaxis.set_major_locator(few_ticks())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}%" if percent else f"{value:.4g}")
        axes.set_xlabel(x_label, fontsize=12, color=SOFT, labelpad=6)
        return to_svg(figure, name, label, width)
