"""What benchmarks/scaling.py has stored, as one picture for light and dark pages, and as the table of docs/scaling.md.

python benchmarks/scaling_chart.py [--store docs/results/scaling.json] [--out docs/images/scaling.svg]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from smallvit.drawing.svg import INK, LINE, SOFT, color, pixel_axes, stand_alone, style, to_svg
from smallvit.runs.atomic import write_text

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"images": "images", "size": "image size in px", "depth": "blocks", "classes": "classes"}
PANEL, GAP, TOP, HEIGHT, BOTTOM, LEFT = 150, 46, 62, 150, 58, 52


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=ROOT / "docs" / "results" / "scaling.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "scaling.svg")
    given = parser.parse_args()
    points = list(json.loads(given.store.read_text(encoding="utf-8"))["points"].values())
    write_text(given.out, chart(points))
    print(table(points))


def table(points: list[dict[str, Any]]) -> str:
    lines = [
        "| what | value | start, CPU s | a step, CPU ms | on the wall, ms | steps | an epoch, CPU s | memory |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in points:
        kind = f"{one['kind']}{', streamed' if one['streamed'] else ''}"
        lines.append(
            f"| {kind} | {one['value']:,} | {one['start_cpu_seconds']:.1f} | {1000 * one['step_cpu_seconds']:.0f} | "
            f"{1000 * one['step_seconds']:.0f} | {one['steps_an_epoch']:,.0f} | {one['epoch_cpu_seconds']:.1f} | {one['memory_mb']:,.0f} MB |"
        )
    return "\n".join(lines)


def chart(points: list[dict[str, Any]]) -> str:
    """Processor seconds of an epoch over each kind, both on logarithmic scales: linear growth is the dashed slope."""
    width, height = LEFT + len(KINDS) * (PANEL + GAP), TOP + HEIGHT + BOTTOM
    with style("scaling"):
        figure, axes = pixel_axes(width, height, left=0, right=0, top=0, bottom=0)
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        title = "Processor seconds of an epoch (vit_nano, batch 64, one thread, fp32)"
        axes.text(14, 24, title, fontsize=14, fontweight="bold", va="baseline")
        note = "● measured   ○ streamed from files   dashed: growth in proportion"
        axes.text(14, height - 10, note, fontsize=11, color=SOFT, va="baseline")
        for number, (kind, label) in enumerate(KINDS.items()):
            left = LEFT + number * (PANEL + GAP)
            place = (left / width, BOTTOM / height, PANEL / width, HEIGHT / height)
            panel(figure.add_axes(place), [one for one in points if one["kind"] == kind], label)
        drawn = to_svg(figure, "scaling", f"{title}, over images, image size, depth and classes", width)
    return stand_alone(drawn, width, height)


def panel(axes: Axes, points: list[dict[str, Any]], label: str) -> None:
    axes.set(xscale="log", yscale="log")
    axes.minorticks_off()
    axes.set_title(label, fontsize=12.5, fontweight="bold", loc="left", color=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.spines["bottom"].set_visible(True)
    axes.tick_params(length=0)
    axes.grid(axis="y", color=LINE, linewidth=1)
    kept = [one for one in points if not one["streamed"]]
    values, seconds = ([one[name] for one in kept] for name in ("value", "epoch_cpu_seconds"))
    axes.plot(values, [seconds[0] * value / values[0] for value in values], color=SOFT, linewidth=1, linestyle="--")
    axes.plot(values, seconds, color=color(1), linewidth=2, marker="o", markersize=6)
    streamed = [(one["value"], one["epoch_cpu_seconds"]) for one in points if one["streamed"]]
    if streamed:
        axes.plot(*zip(*streamed, strict=True), "o", color=color(2), markersize=8, markerfacecolor="none")
    axes.set_xticks(values, [f"{value // 1000}k" if value >= 1000 else str(value) for value in values])
    low, high = axes.get_ylim()
    ticks = [tick for tick in (0.1, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


if __name__ == "__main__":
    main()
