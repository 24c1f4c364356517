"""Figures that stand alone, outside of a page: matplotlib's own, in our light colours, without pyplot.

H by W pixels or cells, L layers, A by C layers of two models.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

from smallvit.drawing.svg import LINE, SOFT, VARIABLES, fit, page_colours, style

_LIGHT = dict(re.findall(r"(--[\w-]+):(#\w+)", page_colours()[0]))
_COLOURS = {sentinel: _LIGHT[name] for sentinel, name in VARIABLES.items()}
_PARTS = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
INCH = 72  # pixels, as in the report
SHARP = 2  # pixels of the picture for one of the notebook


class NotebookFigure(Figure):
    """A figure that a notebook shows without pyplot or %matplotlib; everything else is matplotlib's."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        with style("notebook"):
            self.savefig(buffer, format="png", dpi=SHARP * INCH)
        width, height = (round(INCH * side) for side in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


def panels(count: int, width: float, height: float, **grid: Any) -> tuple[NotebookFigure, list[Axes]]:
    """So many plots side by side, each so many pixels; without frames, as on the page. Inside `style`."""
    figure = NotebookFigure(figsize=(count * width / INCH, height / INCH), layout="constrained")
    axes = list(figure.subplots(1, count, squeeze=False, **grid).flat)
    for one in axes:
        for spine in one.spines.values():
            spine.set_visible(False)
        one.tick_params(length=0)
        one.set_axisbelow(True)
    return figure, axes


def alone(figure: Figure) -> NotebookFigure:
    """What was drawn for a page, in the colours of its light scheme. Inside `style`: what is drawn later follows the user's."""
    figure.__class__ = NotebookFigure  # adds a method and nothing else
    assert isinstance(figure, NotebookFigure)
    figure.draw_without_rendering()  # all ticks and their texts are made now, and taken literally
    for artist in figure.findobj():
        _recolour(artist)
    return figure


def _recolour(artist: Artist) -> None:
    for part in _PARTS:
        get, put = getattr(artist, f"get_{part}", None), getattr(artist, f"set_{part}", None)
        if get is None or put is None:
            continue
        value = get()
        if isinstance(value, np.ndarray):  # of a collection: one for each of its members
            value = value[0] if value.ndim == 2 and len(value) == 1 else value
        try:
            found = _COLOURS.get(to_hex(value))
        except (TypeError, ValueError):  # several colours, or none
            continue
        if found:
            put(found)


def overlays(
    picture_HW: NDArray[Any], masks: Sequence[NDArray[Any]], names: Sequence[str], title: str
) -> NotebookFigure:
    """An image, and once more for every mask with it on top: yellow is the most. As many in a row as fit."""
    columns = min(6, 1 + len(masks))
    rows = -(-(1 + len(masks)) // columns)
    with style("notebook"):
        figure = NotebookFigure(figsize=(columns * 130 / INCH, (rows * 150 + 30) / INCH), layout="constrained")
        figure.suptitle(fit(title, 18 * columns), fontsize=13)
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for one in axes:
            one.set_axis_off()
        height, width = picture_HW.shape[:2]
        for one, mask, name in zip(axes, [None, *masks], ["", *names], strict=False):
            one.imshow(
                picture_HW, cmap="gray", vmin=0, vmax=255, interpolation="none" if width <= 64 else "antialiased"
            )
            if mask is not None:
                extent = (-0.5, width - 0.5, height - 0.5, -0.5)
                most = max(float(mask.max()), 1e-12)
                one.imshow(
                    mask / most, cmap="viridis", vmin=0, vmax=1, alpha=0.6, extent=extent, interpolation="bilinear"
                )
            one.set_title(fit(name, 22), fontsize=10, color=SOFT)
        return alone(figure)


def likeness_map(
    cka_AC: NDArray[Any], rows: Sequence[str], columns: Sequence[str], models: tuple[str, str], title: str
) -> NotebookFigure:
    """CKA of every layer of the one model with every layer of the other; the first layers are at the bottom left."""
    with style("notebook"):
        figure = NotebookFigure(figsize=(560 / INCH, 520 / INCH), layout="constrained")
        axes = figure.add_subplot()
        drawn = axes.imshow(cka_AC, origin="lower", cmap="viridis", vmin=0, vmax=1, interpolation="none", aspect="auto")
        for axis, names, model in ((axes.yaxis, rows, models[0]), (axes.xaxis, columns, models[1])):
            few = np.unique(np.linspace(0, len(names) - 1, min(12, len(names))).round().astype(int)).tolist()
            axis.set_ticks(few, labels=[fit(names[place], 26) for place in few], fontsize=9)
            axis.set_label_text(fit(model, 50), fontsize=12, color=SOFT)
        axes.tick_params(axis="x", rotation=90)
        axes.set_title(fit(title, 70), fontsize=13)
        for spine in axes.spines.values():
            spine.set_color(LINE)
        figure.colorbar(drawn, ax=axes, shrink=0.6, label="CKA")
        return alone(figure)
