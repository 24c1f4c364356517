"""Cross-entropy on the model's own classifier, with label smoothing, Mixup and CutMix. B images, K classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from smallvit.data.mixing import mix
from smallvit.models.features import Backbone
from smallvit.objectives.base import Objective, Setting
from smallvit.recipe import Rate, Section
from smallvit.types import Batch, Context, Loss, View


class SupervisedOptions(Section):
    label_smoothing: Rate = 0.1
    mixup: Annotated[float, Field(ge=0)] = 0.0  # alpha of Beta(alpha, alpha); 0 is off
    cutmix: Annotated[float, Field(ge=0)] = 0.0
    mix_prob: Rate = 1.0
    mix_switch: Rate = 0.5  # share of CutMix where both are on
    mix_per: Literal["batch", "element"] = "element"


class Supervised(Objective):
    name = "supervised"
    Options = SupervisedOptions

    def __init__(self, backbone: Backbone, options: Any, setting: Setting) -> None:
        super().__init__(backbone, options, setting)
        self.options: SupervisedOptions = options
        self.views = (View(1, setting.img_size),)

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        o = self.options
        mixed = mix(
            batch.views[0], ctx.generator, mixup=o.mixup, cutmix=o.cutmix, prob=o.mix_prob, switch=o.mix_switch,
            per=o.mix_per,
        )  # fmt: skip
        features = backbone(mixed.images_BCHW)
        logits_BK = backbone.classify(features.pooled_BD)
        own_B = self._loss(logits_BK, batch.labels_B)
        if o.mixup or o.cutmix:
            other_B = self._loss(logits_BK, batch.labels_B[mixed.partner_B])
            own_B = mixed.lam_B * own_B + (1 - mixed.lam_B) * other_B
        total = own_B.mean()
        return Loss(total, {"cross_entropy": total.detach()}, features)

    def _loss(self, logits_BK: Tensor, labels_B: Tensor) -> Tensor:
        return F.cross_entropy(logits_BK, labels_B, label_smoothing=self.options.label_smoothing, reduction="none")
