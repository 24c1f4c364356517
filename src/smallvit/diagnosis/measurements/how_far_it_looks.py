"""How far attention reaches in every layer and head: a learned model beside an untrained one and one that looks everywhere.

L layers, M heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smallvit.diagnosis.findings import Array, Finding, ragged
from smallvit.diagnosis.measurements.base import Canvas, Findings, Measurement, Panel, Said, StoredFindings
from smallvit.diagnosis.measurements.fit import under_fits
from smallvit.drawing.svg import INK, LINE, SOFT, color, few_ticks, pixel_axes, style, to_svg
from smallvit.planning.evidence import best_gain

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs

EVERYWHERE = 0.90  # attention distance of the first layer, as a share of that of one that looks at all cells alike
LEGEND = (
    ("", "mean of the heads"),
    (' class="dot"', "a head"),
    (' style="border-top-style:dashed"', "untrained"),
    (' class="thin" style="border-top-style:dotted"', "all cells alike"),
)
TITLES = {
    "distance": "How far heads look, in widths of the image",
    "near": "Share of attention on the 3 x 3 cells around",
    "entropy": "Spread (0: one cell, 1: all alike)",
}


class HowFarItLooks(Measurement):
    name = "locality"
    place = 30
    label = "attention"

    def measure(self, inputs: Inputs) -> Finding | None:
        """Distance, entropy and nearness by layer and head: of the model, of an untrained one, of one that looks everywhere."""
        from smallvit.diagnosis.distances import uniform_locality

        now = inputs.attended.locality
        if not now:
            return None
        initial, even = inputs.attended_untrained.locality, [uniform_locality(layer.grid) for layer in now]
        arrays: dict[str, Array] = {}
        for key in ("distance", "entropy", "near"):
            for suffix, layers in (("", now), ("_initial", initial), ("_uniform", even)):
                arrays[key + suffix] = ragged([getattr(layer, f"{key}_M").numpy() for layer in layers])
        numbers = {name: float(np.nanmean(arrays[name][0])) for name in arrays if not name.startswith("entropy")}
        numbers["mixes_neighbours"] = float(mixes_neighbours(inputs.model))
        labels = {
            "layers": [layer.layer for layer in now],
            "model": [inputs.known.model],
            "weights": [inputs.known.weights],
        }
        return Finding("locality", arrays, numbers, labels)

    def say(self, findings: Findings) -> Said | None:
        """Where convolutions mix neighbours, attention that looks far is no fault."""
        numbers = findings["locality"].numbers
        distance, even = numbers["distance"], numbers["distance_uniform"]
        if numbers["mixes_neighbours"] or distance < EVERYWHERE * even:
            return None
        if under_fits(findings):  # what it will look at is not decided yet
            return None
        return Said(
            f"the first layer looks {distance:.2f} of the image's width away on average, where looking at all cells alike "
            f"would give {even:.2f}",
            "it has learned next to nothing about what is near, and nothing in the model tells it; try --model dhvt_nano or "
            f"cvt_nano, which have convolutions that do, or --aux drloc{_measured_to_help(findings['locality'])}",
            0.4,
        )

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel:
        figures, arrays = [], findings["locality"].arrays
        for key, title in TITLES.items():
            tables = (arrays[key], arrays[f"{key}_initial"], arrays[f"{key}_uniform"])
            drawn = locality_figure(*tables, name=f"{key}-{canvas.series}", title=title, series=canvas.series)
            figures.append((title, drawn))
        return Panel(
            20,
            "How far it looks",
            "Where the line stays at the dotted one, the layer looks at all cells alike; CNNs look near in their first layers "
            "by construction.",
            tuple(figures),
            LEGEND,
        )


def _measured_to_help(locality: Finding) -> str:
    """Starting weights that have helped this very model beyond chance, where the run does without."""
    model, weights = (next(iter(locality.labels.get(key, ())), "") for key in ("model", "weights"))
    best = best_gain("model.weights", model, weights)
    return f"; {best.lever.on} gained {best.measured} and costs nothing" if best else ""


def mixes_neighbours(model: Any) -> bool:
    """Whether something other than attention looks beyond a cell's own pixels; a plain patch embedding does not."""
    from torch import nn

    from smallvit.models.architectures.spt_lsa import ShiftedPatchEmbed
    from smallvit.models.architectures.t2t import TokensToToken

    return any(
        isinstance(module, TokensToToken | ShiftedPatchEmbed)
        or (isinstance(module, nn.Conv2d) and max(module.kernel_size) > max(module.stride))
        for module in model.modules()
    )


def locality_figure(now_LM: Array, initial_LM: Array, even_L1: Array, *, name: str, title: str, series: int) -> str:
    """A dot for every head, a line for their mean; dashed what it was untrained, dotted what looks everywhere."""
    width, height = 340, 230
    mean_L, initial_L = np.nanmean(now_LM, 1), np.nanmean(initial_LM, 1)
    with style(name):
        figure, axes = pixel_axes(width, height, left=46, right=12, top=10, bottom=46)
        draw_locality(axes, now_LM, initial_LM, even_L1, series)
        spoken = "; ".join(
            f"layer {n}: {a:.2f}, untrained {b:.2f}"
            for n, (a, b) in enumerate(zip(mean_L, initial_L, strict=True), start=1)
        )
        return to_svg(figure, name, f"{title}. {spoken}", width)


def draw_locality(axes: Any, now_LM: Array, initial_LM: Array, even_L1: Array, series: int) -> None:
    x = np.arange(1, len(now_LM) + 1)
    axes.grid(axis="y", color=LINE, linewidth=1)
    axes.plot(x, even_L1[:, 0], color=SOFT, linewidth=1.2, linestyle=(0, (1.5, 1.5)))
    axes.plot(x, np.nanmean(initial_LM, 1), color=INK, linewidth=1.4, linestyle=(0, (5, 2)))
    axes.plot(x, np.nanmean(now_LM, 1), color=color(series), linewidth=2, marker="o" if len(x) < 3 else "")
    for head_L in now_LM.T:
        axes.plot(x, head_L, color=color(series), linestyle="", marker="o", markersize=3.5, alpha=0.55)
    axes.set(xlim=(0.7, len(x) + 0.3), ylim=(0, None))
    axes.tick_params(axis="x", pad=8)
    axes.yaxis.set_major_locator(few_ticks())
    axes.xaxis.set_major_locator(few_ticks(integer=True))
    axes.set_xlabel("layer", fontsize=12, color=SOFT, labelpad=6)
