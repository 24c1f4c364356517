"""Toy match: the features of two crops of an image should be equal, and as long as 1."""

from __future__ import annotations

from typing import Any

from smallvit.models.features import Backbone
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.selfsupervised import PretrainingOptions, SelfSupervised
from smallvit.runs.curves import CurvePanel
from smallvit.types import Batch, Context, Features, Loss, Seen, View


class ToyMatch(SelfSupervised):
    name = "toy_match"
    Options = PretrainingOptions
    curves = (
        *SelfSupervised.curves,
        CurvePanel("toy-match", "How far two crops are apart", keys=("apart",), spoken="Distance of two crops"),
    )

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.views = (View(2, setting.img_size),)

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        features: Features = backbone(batch.views[0])
        first_BD, second_BD = features.pooled_BD.chunk(2)
        apart = (first_BD - second_BD).square().mean()
        length = (features.pooled_BD.square().sum(1) - 1).square().mean()
        return Loss(apart + length, {"apart": apart.detach()}, Seen.of(batch, batch.views[0], features))
