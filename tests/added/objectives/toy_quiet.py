"""Toy quiet: the features of every cell should be small."""

from __future__ import annotations

from typing import Any

from smallvit.models.features import Backbone
from smallvit.objectives.base import Auxiliary, TaskInfo
from smallvit.recipe import Section
from smallvit.runs.curves import CurvePanel
from smallvit.types import Context, Loss, Seen


class ToyOptions(Section):
    weight: float = 0.01


class ToyQuiet(Auxiliary):
    name = "toy_quiet"
    Options = ToyOptions
    curves = (CurvePanel("toy-quiet", "How loud its cells are", keys=("loudness",), spoken="Mean square of cells"),)

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.weight = options.weight

    def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
        loudness = seen.features.grids[-1].square().mean()
        return Loss(self.weight * loudness, {"loudness": loudness.detach()}, seen)
