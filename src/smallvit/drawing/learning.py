"""Accuracy against the number of images: what was measured, the law through it, and where it leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from smallvit.drawing.svg import LINE, SOFT, color, few_ticks, pixel_axes, style, to_svg


class Reached(NamedTuple):
    images: int
    accuracies: Sequence[float]


class Fitted(NamedTuple):
    images: Sequence[float]
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def learning_chart(points: Sequence[Reached], fitted: Fitted | None, name: str = "learning") -> str:
    """A dot for every run; the fit goes on, dashed, to twice the images, with its interval around it."""
    width, height = 520, 330
    most = max(point.images for point in points)
    with style(name):
        figure, axes = pixel_axes(width, height, left=58, right=18, top=12, bottom=50)
        axes.grid(color=LINE, linewidth=1)
        if fitted:
            axes.fill_between(fitted.images, fitted.low, fitted.high, color=color(1), alpha=0.18, linewidth=0)
            for dashed in (False, True):
                part = [
                    (x, y)
                    for x, y in zip(fitted.images, fitted.middle, strict=True)
                    if (x >= most if dashed else x <= most)
                ]
                axes.plot(
                    [x for x, _ in part], [y for _, y in part], color=color(1), linewidth=2, linestyle=(0, (4, 3)) if dashed else "solid"
                )  # fmt: skip
        for point in points:
            axes.plot(
                [point.images] * len(point.accuracies), point.accuracies, linestyle="", marker="o", markersize=6, color=color(2)
            )  # fmt: skip
        axes.set_xscale("log")
        ticks = [point.images for point in points] + ([2 * most] if fitted else [])
        axes.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.yaxis.set_major_locator(few_ticks())
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%" if value <= 1 else "")
        axes.tick_params(axis="x", pad=8)
        axes.set_xlabel("training images", fontsize=12, color=SOFT, labelpad=6)
        axes.set_ylabel("test accuracy", fontsize=12, color=SOFT, labelpad=2)
        spoken = "; ".join(
            f"{point.images:,} images {sum(point.accuracies) / len(point.accuracies):.1%}" for point in points
        )
        return to_svg(figure, name, f"Accuracy against training images. {spoken}", width)
