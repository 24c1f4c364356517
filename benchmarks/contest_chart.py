"""The contest as one picture: docs/results/contest.json to docs/images/contest.svg, whatever rows are there.

    python benchmarks/contest_chart.py [--store docs/results/contest.json] [--out docs/images/contest.svg]

A row for each entrant, a column for each set. A dot is the mean of the seeds, its line and ± the 95 % interval of that mean (t over seeds);
a hollow dot is the mean of one or two seeds, whose interval would say nothing. The picture brings its own background and colours, for light and for dark pages.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from smallvit.drawing.svg import FLOOR, INK, LINE, SOFT, color, pixel_axes, stand_alone, style, to_svg
from smallvit.evaluation.statistics import mean_interval
from smallvit.runs.atomic import write_text

ROOT = Path(__file__).resolve().parents[1]
LEFT, COLUMN, GAP, ROW, TOP, BOTTOM = 196, 146, 18, 24, 84, 48
NUMBER, MARGIN = 62, 30  # px at the right of a column, for the number and what it may be off by


class Entrant(NamedTuple):
    label: str
    series: int  # colour: 1 what `smallvit train` takes, 2 CNNs, 3 timm, 4 others, 5 models of smallvit 0.1, 0 floors


# In this order from the top; entrants that are not named here follow under their own names.
ENTRANTS = {
    "default": Entrant("smallvit train", 1),
    "hybrid": Entrant("hybrid (attention)", 1),
    "cnn": Entrant("plain CNN", 2),
    "airbench": Entrant("airbench-like CNN", 2),
    "timm_resnet18": Entrant("timm resnet18", 3),
    "timm_deit_tiny": Entrant("timm deit_tiny", 3),
    "lightly_simclr": Entrant("lightly SimCLR", 4),
    "hog_svm": Entrant("HOG + linear SVM", 4),
    "resnet_nano": Entrant("resnet_nano (0.1)", 5),
    "dhvt_nano": Entrant("dhvt_nano (0.1)", 5),
    "vit_nano": Entrant("vit_nano (0.1)", 5),
}
SETS = {
    "cifar200": "CIFAR-10", "flowers": "Flowers-102", "clothing": "Clothing", "svhn": "SVHN", "first50": "CIFAR-10", "cifar1000": "CIFAR-10",
}  # fmt: skip


class Score(NamedTuple):
    """In percent; without an interval where there are fewer than three seeds."""

    mean: float
    interval: tuple[float, float] | None


class Row(NamedTuple):
    label: str
    series: int
    scores: dict[str, Score]  # by set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=ROOT / "docs" / "results" / "contest.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "contest.svg")
    given = parser.parse_args()
    record = json.loads(given.store.read_text(encoding="utf-8"))
    write_text(given.out, chart(record))
    print(f"{given.out}: {len(record['runs'])} runs")


def rows_of(record: dict[str, Any]) -> list[Row]:
    seeds: dict[str, dict[str, list[float]]] = {}
    for key, run in record["runs"].items():
        entrant, name = key.split("/")[:2]
        seeds.setdefault(entrant, {}).setdefault(name, []).append(100 * run["accuracy"])
    order = [*(name for name in ENTRANTS if name in seeds), *(name for name in seeds if name not in ENTRANTS)]
    rows = [
        Row(*ENTRANTS.get(name, Entrant(name, 6)), {one: score(values) for one, values in seeds[name].items()})
        for name in order
    ]
    return rows + floor_rows(record)


def score(values: list[float]) -> Score:
    if len(values) < 3:
        return Score(sum(values) / len(values), None)
    mean, low, high = mean_interval(values)
    return Score(mean, (max(0.0, low), min(100.0, high)))


def floor_rows(record: dict[str, Any]) -> list[Row]:
    """Simple methods on pixels, where a run has stored them with its set."""
    found: dict[str, dict[str, Score]] = {}
    for name, facts in record["sets"].items():
        for label, accuracy in facts.get("floors", {}).items():
            found.setdefault(label, {})[name] = Score(100 * accuracy, None)
    return [Row(label, 0, scores) for label, scores in found.items()]


# ---- the drawing ---------------------------------------------------------------------------------------


def chart(record: dict[str, Any]) -> str:
    rows = rows_of(record)
    sets = [name for name in record["sets"] if any(name in row.scores for row in rows)]
    if not sets:
        raise SystemExit("the store holds no runs: there is nothing to draw")
    width, height = LEFT + len(sets) * (COLUMN + GAP), TOP + ROW * len(rows) + BOTTOM
    with style("contest"):
        figure, axes = pixel_axes(width, height, left=0, right=0, top=0, bottom=0)
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        title = f"Test accuracy after {record['seconds']:.0f} s of one CPU thread, start and report included"
        axes.text(14, 25, title, fontsize=14, fontweight="bold", va="baseline")
        for number, row in enumerate(rows):
            weight = "bold" if row.series == 1 else "normal"
            place = {"va": "center_baseline", "ha": "left", "fontsize": 12.5, "fontweight": weight}
            axes.text(14, middle(number), row.label, color=SOFT if row.series == 0 else INK, **place)
        for number, name in enumerate(sets):
            draw_set(axes, record["sets"][name], name, rows, LEFT + number * (COLUMN + GAP))
        note = "● mean of the seeds, ± and line: 95% interval of the mean;  ○ one or two seeds"
        axes.text(14, height - 12, note, fontsize=11, color=SOFT, va="baseline")
        drawn = to_svg(figure, "contest", spoken(title, rows, sets), width)
    return stand_alone(drawn, width, height)


def middle(number: int) -> float:
    return TOP + ROW * (number + 0.5)


def draw_set(axes: Axes, facts: dict[str, Any], name: str, rows: list[Row], left: float) -> None:
    """One column, from 0 to 100 % like all of them."""
    found = [row.scores[name] for row in rows if name in row.scores]
    low, high = 0.0, 100.0
    span = COLUMN - NUMBER

    def place(value: float) -> float:
        return left + span * (value - low) / (high - low)

    axes.text(left, 50, SETS.get(name, name), fontsize=12.5, fontweight="bold", va="baseline")
    counts = f"{facts['train']:,} images, {facts['classes']} classes"
    axes.text(left, 65, counts, fontsize=11, color=SOFT, va="baseline")
    bottom = TOP + ROW * len(rows)
    for tick in (low, high):
        axes.plot([place(tick)] * 2, [TOP, bottom], color=LINE, linewidth=1)
        side = "left" if tick == low else "center"
        axes.text(place(tick), bottom + 2, f"{tick:.0f}%", fontsize=10, color=SOFT, va="top", ha=side)
    best = max(one.mean for one in found)
    for number, row in enumerate(rows):
        if one := row.scores.get(name):
            draw_score(axes, one, row.series, place, middle(number), left + COLUMN, best=one.mean == best)


def draw_score(axes: Axes, one: Score, series: int, place: Any, y: float, right: float, best: bool) -> None:
    tone = FLOOR if series == 0 else color(series)
    if one.interval:
        axes.plot([place(end) for end in one.interval], [y, y], color=tone, linewidth=2, solid_capstyle="butt")
    filled = {"markerfacecolor": tone if one.interval or series == 0 else "none", "markeredgecolor": tone}
    axes.plot([place(one.mean)], [y], linestyle="", marker="o", markersize=8, markeredgewidth=2, **filled)
    weight = "bold" if best else "normal"
    axes.text(right - MARGIN, y, f"{one.mean:.1f}", fontsize=12, ha="right", va="center_baseline", fontweight=weight)
    if one.interval:
        off = (one.interval[1] - one.interval[0]) / 2
        axes.text(right, y, f"±{off:.1f}", fontsize=10.5, ha="right", va="center_baseline", color=SOFT)


def spoken(title: str, rows: list[Row], sets: list[str]) -> str:
    said = "; ".join(
        f"{row.label} " + ", ".join(f"{name} {row.scores[name].mean:.1f}%" for name in sets if name in row.scores)
        for row in rows
    )
    return f"{title}. {said}"


if __name__ == "__main__":
    main()
