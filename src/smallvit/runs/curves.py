"""Which curves a run wants drawn: declared by its losses, written into the folder, read by the report.

The report reads the folder alone: it knows no loss, and needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from smallvit.errors import RunError
from smallvit.runs.folder import RunFolder


class CurvePanel(NamedTuple):
    """A panel over the course of training. Its keys are parts of a loss, or numbers that a judge gives every epoch."""

    name: str  # of the panel: letters and hyphens
    title: str
    keys: tuple[str, ...]
    spoken: str  # what the panel shows, for those who cannot see it
    faint: tuple[str, ...] = ()  # keys that are drawn thin, to compare with
    percent: bool = False
    from_zero: bool = True


class DeclaredCurves(NamedTuple):
    objective: tuple[CurvePanel, ...]
    aux: tuple[CurvePanel, ...]

    def for_folder(self) -> dict[str, list[dict[str, Any]]]:
        return {kind: [panel._asdict() for panel in panels] for kind, panels in self._asdict().items()}


# What version 0.1 drew, whose folders do not say it.
OF_0_1 = DeclaredCurves(
    (
        CurvePanel("spread", "Spread of the features (0: all alike)", ("spread",), "Spread of the normalised features"),
        CurvePanel("rank", "Effective rank of the features", ("effective_rank",), "Effective rank of the features"),
        CurvePanel("live-rows", "Rows of the instance layer that still move", ("live_rows",), "Share of rows that move", percent=True),
    ),
    (
        CurvePanel("drloc", "Localization error, in cells (thin: chance)", ("drloc_error", "drloc_chance"), "Localization error and chance", faint=("drloc_chance",)),
    ),
)  # fmt: skip


def read_curves(run: RunFolder) -> DeclaredCurves:
    """What the folder declares; for one of version 0.1, what that version drew."""
    stored = run.read("recipe.json").get("curves")
    if stored is None:
        return OF_0_1
    try:
        return DeclaredCurves(*(tuple(_panels(stored[kind])) for kind in DeclaredCurves._fields))
    except (TypeError, KeyError, ValueError) as error:
        raise RunError(f"{run.path / 'recipe.json'}: cannot read the curves that it declares: {error!r}") from None


def _panels(stored: Iterable[dict[str, Any]]) -> Iterable[CurvePanel]:
    for entry in stored:
        panel = CurvePanel(**entry)
        words = (panel.title, panel.spoken, *panel.keys, *panel.faint)
        # The name becomes a name inside the page, where nothing is escaped.
        if not re.fullmatch(r"[a-z][a-z0-9-]*", panel.name) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{panel.name!r} is no panel")
        yield panel._replace(keys=tuple(panel.keys), faint=tuple(panel.faint))
