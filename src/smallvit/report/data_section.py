"""The data section: how many images of each class, what they look like, which files could not be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from smallvit.drawing.pictures import Gallery, Picture, gallery
from smallvit.drawing.svg import INK, LINE, SOFT, fit, pixel_axes, style, to_svg
from smallvit.report.collect import Content, shared
from smallvit.report.verdict import PART_WORDS

MOST_CLASSES, MOST_SKIPPED = 500, 200  # rows of tables that are kept
OPEN_BARS, END_BARS = 40, 12  # up to 40 classes the whole chart is open; beyond, the 12 largest and smallest are
MOST_BARS, PANEL_BARS = 204, 34  # classes in the folded chart, and in one panel of it
OPEN_EXAMPLES = 48  # pictures; the other classes are folded away
SHADES = (0.95, 0.55, 0.28)  # opacity of the parts' bars


def data_section(contents: Sequence[Content], image_bytes: int) -> dict[str, Any]:
    """Once where the runs share their data."""
    examples = shared((run.label, stored_gallery(run, "examples", image_bytes)) for run in contents)
    splits = shared((run.label, split_facts(run.split)) for run in contents)
    return {
        "splits": [(label, facts | _chart(facts, number)) for number, (label, facts) in enumerate(splits, start=1)],
        "examples": [(label, _by_class(gallery)) for label, gallery in examples if gallery.pictures or gallery.dropped],
        "shades": SHADES,
        "channels_note": _channels_note(contents[0].resolved.get("data.in_chans")),
    }


def _channels_note(channels: Any) -> str:
    """Pictures have one or three channels; the model may see others."""
    if not isinstance(channels, int) or channels in (1, 3):
        return ""
    return f"The pictures show {'the first three' if channels > 3 else 'the first'} of {channels} channels."


def stored_gallery(run: Content, kind: str, budget: int) -> Gallery:
    images = run.images.get(kind)
    return Gallery([], 0) if images is None else gallery(images, run.results.get(kind, []), budget)


def split_facts(split: Mapping[str, Any]) -> dict[str, Any]:
    """Images per part and class; files that could not be used."""
    parts = {name: part for name, part in split.get("parts", {}).items() if part.get("n")}
    counts = [
        [str(name) for name in split["class_names"]],
        *(part.get("counts", []) for part in parts.values()),
    ]
    skipped = list(split.get("skipped", []))
    return {
        "source": str(split.get("source", "")),
        "parts": {name: part["n"] for name, part in parts.items()},
        "classes": len(split["class_names"]),
        "rows": list(zip_longest(*counts, fillvalue=0)),
        "most_rows": MOST_CLASSES,
        "skipped": skipped[:MOST_SKIPPED],
        "skipped_total": len(skipped),
    }


def _by_class(gallery: Gallery) -> dict[str, Any]:
    """Pictures of a class side by side, classes in the order of their first picture; the first few in the open."""
    groups: dict[str, list[Picture]] = {}
    for picture in gallery.pictures:
        groups.setdefault(str(picture.about["label"]), []).append(picture)
    shown, open_groups = 0, 0
    for pictures in groups.values():
        if shown and shown + len(pictures) > OPEN_EXAMPLES:
            break
        shown, open_groups = shown + len(pictures), open_groups + 1
    pairs = list(groups.items())
    return {"open": pairs[:open_groups], "folded": pairs[open_groups:], "dropped": gallery.dropped}


# ---- the chart of class counts -----------------------------------------------------------------------


def _chart(facts: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Panels of bars, the largest class first, and a sentence about the sizes; nothing where there are no counts."""
    rows = sorted(facts["rows"], key=lambda row: -sum(row[1:]))
    if not facts["parts"] or not rows or not sum(rows[0][1:]):
        return {"panels": [], "all_panels": [], "balance": "", "left_out": 0}
    parts, most = list(facts["parts"]), max(1, sum(rows[0][1:]))

    def draw(some: Sequence[Sequence[Any]], kind: str) -> list[str]:
        panels = np.array_split(np.arange(len(some)), -(-len(some) // PANEL_BARS))
        return [
            counts_panel([some[row] for row in panel], parts, most, f"counts-{number}-{kind}{index}")
            for index, panel in enumerate(panels)
        ]

    facts_of_chart = {"balance": _balance(facts), "left_out": max(0, len(rows) - MOST_BARS)}
    if len(rows) <= OPEN_BARS:
        return facts_of_chart | {"panels": [("", svg) for svg in draw(rows, "")], "all_panels": []}
    ends = [("The largest classes", rows[:END_BARS], "largest"), ("The smallest classes", rows[-END_BARS:], "smallest")]
    kept = rows if len(rows) <= MOST_BARS else rows[: MOST_BARS // 2] + rows[-MOST_BARS // 2 :]
    return facts_of_chart | {
        "panels": [(caption, svg) for caption, some, kind in ends for svg in draw(some, kind)],
        "all_panels": draw(kept, "all"),
    }


def _balance(facts: Mapping[str, Any]) -> str:
    """How uneven the first part, the training part, is."""
    part = next(iter(facts["parts"]))
    counts = [row[1] for row in facts["rows"]]
    least, most = min(counts), max(counts)
    words = PART_WORDS.get(part, f"images of the part {part}")
    if least == most:
        return f"Every class has {most:,} {words}."
    times = f", {most / least:.1f} times as many" if least and most > 1.5 * least else ""
    return f"The classes have {least:,} to {most:,} {words}{times}."


def counts_panel(rows: Sequence[Sequence[Any]], parts: Sequence[str], most: int, name: str) -> str:
    """A bar per class, its parts stacked in shades of one colour, the total at its end."""
    names = [fit(str(entry[0]), 17) for entry in rows]
    width, row, left, right = 320, 17, 14 + 7 * max(map(len, names)), 40
    with style(name):
        figure, axes = pixel_axes(width, row * len(rows) + 4, left=left, right=right, top=2, bottom=2)
        axes.set(xlim=(0, most), ylim=(len(rows) - 0.5, -0.5))
        starts = np.zeros(len(rows))
        for column in range(len(parts)):
            sizes = np.array([entry[column + 1] for entry in rows], dtype=float)
            shade = SHADES[min(column, len(SHADES) - 1)]
            axes.barh(range(len(rows)), sizes, left=starts, height=0.72, color=SOFT, alpha=shade, linewidth=0)
            starts += sizes
        for place, total in enumerate(starts):
            axes.text(total + most * 0.015, place, f"{total:,.0f}", fontsize=11, color=INK, va="center_baseline")
        axes.set_yticks(range(len(rows)), labels=names, fontsize=12)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set(visible=True, color=LINE)
        spoken = "; ".join(f"{entry[0]} {sum(entry[1:]):,}" for entry in rows)
        return to_svg(figure, name, f"Bar chart of images per class. {spoken}", width)
