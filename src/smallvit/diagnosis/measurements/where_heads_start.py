"""Which neighbours each head looks at, before training and after it: what the starting weights were meant to do, and what is left.

L layers, M heads, R cells in each direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smallvit.diagnosis.findings import Array, Finding
from smallvit.diagnosis.measurements.base import Canvas, Measurement, Panel, StoredFindings
from smallvit.drawing.svg import INK, SOFT, pixel_axes, style, to_svg

if TYPE_CHECKING:
    from smallvit.diagnosis.attention import AttentionMap
    from smallvit.diagnosis.inputs import Inputs

MOST_LAYERS, MOST_HEADS = 4, 8  # that are drawn
REACH = 3  # cells in each direction
CELL, GAP = 8, 10  # px
BLUE = (0, 114, 178)


class WhereHeadsStart(Measurement):
    name = "head_offsets"
    place = 45
    label = "attention"

    def measure(self, inputs: Inputs) -> Finding | None:
        """Attention by offset, of some layers; with impulse weights also how many cells look where their head was meant to."""
        from smallvit.diagnosis.offsets import by_offset, offset_hits

        pairs = (
            list(zip(inputs.attended_untrained.maps, inputs.attended.maps, strict=True)) if inputs.attended.maps else []
        )
        pairs = [pair for pair in pairs if math.prod(pair[1].queries.grid) > 1]
        if not pairs:
            return None
        shown = sorted({round(place) for place in np.linspace(0, len(pairs) - 1, MOST_LAYERS)})
        arrays: dict[str, Array] = {}
        for number, place in enumerate(shown):
            for key, layer in zip(("start", "now"), pairs[place], strict=True):
                reach = min(REACH, max(layer.queries.grid) - 1)
                arrays[f"{key}.{number}"] = by_offset(layer, reach)[:MOST_HEADS].numpy().astype(np.float16)
        numbers: dict[str, float] = {}
        if inputs.known.weights == "impulse":
            offsets = meant(pairs[0][1])
            arrays["meant"] = np.array(offsets, dtype=np.int16)
            start, now = (offset_hits(layer, offsets).nanmean().item() for layer in pairs[0])
            cells = float(math.prod(pairs[0][1].queries.grid))
            numbers = {"hits_start": start, "hits_now": now, "head_width": head_width(inputs.model), "cells": cells}
        return Finding(self.name, arrays, numbers, {"layers": [f"layer {place + 1}" for place in shown]})

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel:
        finding = findings[self.name]
        layers, meant_M2 = finding.labels["layers"], finding.arrays.get("meant")
        figures = []
        for key, title in (("start", "A fresh model"), ("now", "Trained")):
            tables = [finding.arrays[f"{key}.{number}"].astype(np.float64) for number in range(len(layers))]
            drawn = offsets_figure(tables, layers, meant_M2, name=f"{key}-{canvas.series}", title=title)
            figures.append((title, drawn))
        return Panel(25, "Which neighbours heads look at", _words(finding.numbers), tuple(figures))


def meant(layer: AttentionMap) -> list[tuple[int, int]]:
    from smallvit.models.starting_weights import WINDOW

    return [WINDOW[head % len(WINDOW)] for head in range(layer.weights_BMQK.shape[1])]


def head_width(model: Any) -> float:
    from smallvit.models.starting_weights import plain_attention

    layer = next(plain_attention(model))
    return float(layer.qkv.in_features // layer.num_heads)


def _words(numbers: dict[str, float]) -> str:
    words = (
        "A square is a head: how much a cell gives itself, in the middle, and the cells around it, on average over cells and "
        "images. A stronger colour is more; a head that gives all cells the same has one colour all over."
    )
    if not numbers:
        return words
    return (
        f"{words} Impulse weights mean each head to start with one neighbour, which has a frame: of {numbers['hits_start']:.0%} of the "
        f"cells it is what the first layer's head looks at most in a fresh model, and of {numbers['hits_now']:.0%} in this one. "
        f"A head of {numbers['head_width']:.0f} numbers can tell about so many of {numbers['cells']:.0f} places apart."
    )


def offsets_figure(
    tables: Sequence[Array], layers: Sequence[str], meant_M2: Array | None, *, name: str, title: str
) -> str:
    """A row for each layer, a square for each of its heads; the shade is the root of the attention, on one scale for all."""
    from matplotlib.patches import Rectangle

    side = max(table_MRR.shape[1] for table_MRR in tables) * CELL
    heads, left, top = max(len(table_MRR) for table_MRR in tables), 66, 18
    width, height = left + heads * (side + GAP), top + len(tables) * (side + GAP)
    with style(name):
        figure, axes = pixel_axes(width, height, 0, 0, 0, 0)
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.set_axis_off()
        for row, table_MRR in enumerate(tables):
            y = top + row * (side + GAP)
            axes.text(0, y + side / 2, layers[row], fontsize=11, color=SOFT, va="center_baseline")
            for head, table_RR in enumerate(table_MRR):
                x = left + head * (side + GAP)
                axes.imshow(_shaded(table_RR), interpolation="none", extent=(x, x + side, y + side, y), aspect="auto")
                if meant_M2 is not None:
                    corner = (len(table_RR) // 2 + meant_M2[head]) * (side / len(table_RR))
                    place, cell = (x + corner[1], y + corner[0]), side / len(table_RR)
                    axes.add_patch(Rectangle(place, cell, cell, fill=False, edgecolor=INK, linewidth=0.8))
        for head in range(heads):
            axes.text(
                left + head * (side + GAP) + side / 2, 10, f"head {head + 1}", fontsize=10, color=SOFT, ha="center"
            )
        strongest = "; ".join(
            f"{layer}: at most {table.max():.2f}" for layer, table in zip(layers, tables, strict=True)
        )
        return to_svg(figure, name, f"{title}: attention by offset. {strongest}", width)


def _shaded(table_RR: Array) -> Array:
    """A pale ground, so that a head without any preference is seen as well."""
    pixels = np.empty((*table_RR.shape, 4), dtype=np.uint8)
    pixels[..., :3] = BLUE
    pixels[..., 3] = np.round(255 * (0.05 + 0.95 * np.sqrt(table_RR.clip(0, 1))))
    return pixels
