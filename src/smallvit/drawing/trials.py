"""Many courses in one panel, a few of them stressed; shares of a whole as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from smallvit.drawing.svg import FLOOR, INK, LINE, SOFT, color, few_ticks, fit, pixel_axes, style, to_svg


class Course(NamedTuple):
    """Accuracy over seconds; series 0 is one of many, in grey."""

    label: str
    seconds: Sequence[float]
    accuracy: Sequence[float]
    series: int = 0
    whole: bool = True  # it came to its end


def courses_chart(courses: Sequence[Course], name: str = "trials") -> str:
    width, height = 470, 300
    with style(name):
        figure, axes = pixel_axes(width, height, left=56, right=16, top=12, bottom=46)
        axes.grid(axis="y", color=LINE, linewidth=1)
        for course in sorted(courses, key=lambda course: course.series != 0):  # the stressed ones on top
            stressed = course.series != 0
            axes.plot(
                course.seconds, course.accuracy, color=color(course.series) if stressed else FLOOR,
                linewidth=2.4 if stressed else 1.2, alpha=1 if stressed else 0.8, zorder=3 if stressed else 2,
            )  # fmt: skip
            end = (course.seconds[-1], course.accuracy[-1])
            mark = "o" if course.whole else "x"
            axes.plot(
                *end, marker=mark, markersize=8 if stressed else 5, color=color(course.series) if stressed else SOFT
            )
        axes.set(xlim=(0, None), ylim=(0, None))
        axes.tick_params(axis="x", pad=8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        axes.yaxis.set_major_locator(few_ticks())
        axes.xaxis.set_major_locator(few_ticks(integer=True))
        axes.set_xlabel("seconds of a trial", fontsize=12, color=SOFT, labelpad=6)
        spoken = "; ".join(f"{course.label} {course.accuracy[-1]:.1%}" for course in courses if course.series)
        return to_svg(figure, name, f"Validation accuracy of {len(courses)} trials over their time. {spoken}", width)


def shares_chart(shares: Mapping[str, float], name: str = "shares") -> str:
    """A bar for each share, the largest first, its name above it."""
    width, row = 260, 38
    with style(name):
        figure, axes = pixel_axes(width, row * len(shares) + 4, left=2, right=2, top=0, bottom=4)
        axes.set(xlim=(0, 1), ylim=(len(shares) * row, 0))
        axes.spines["bottom"].set_visible(False)
        for index, (label, share) in enumerate(sorted(shares.items(), key=lambda item: -item[1])):
            middle = index * row + 26
            axes.barh(middle, share, height=9, color=color(1), linewidth=0)
            axes.text(0, middle - 10, fit(label, 28), fontsize=12, va="baseline", color=INK)
            axes.text(1, middle - 10, f"{share:.0%}", fontsize=12, ha="right", va="baseline", color=INK)
        axes.set(xticks=[], yticks=[])
        spoken = ", ".join(f"{label} {share:.0%}" for label, share in shares.items())
        return to_svg(figure, name, f"How much each setting mattered: {spoken}", width)
