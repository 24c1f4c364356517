"""MoCo v3: each crop finds its image's other crop, as a slow teacher sees it, among those of the batch.

Chen et al. 2021. B images, P width of a projection. With unit vectors, q of the student (after a predictor) and k of the
teacher, the loss is 2t CE(q k^T / t, the same image), summed over both directions: 4t ln B where all features are equal.

The authors freeze the patch embedding of a ViT at its initial values and blur and solarize the two crops differently;
here the patches learn, and both crops go through the same augmentation.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from smallvit.models.features import Backbone
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.heads import Teacher, cosine_momentum, full_precision, projector
from smallvit.objectives.selfsupervised import PretrainingOptions, SelfSupervised
from smallvit.types import Batch, Context, Features, Loss, Seen, View


class Mocov3Options(PretrainingOptions):
    temperature: Annotated[float, Field(gt=0)] = 0.2
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.99  # of the teacher at the start; it ends at 1
    hidden: Annotated[int, Field(ge=1)] = 1024  # of projector and predictor; 4096 in the paper
    width: Annotated[int, Field(ge=1)] = 256  # of their outputs


class MoCov3(SelfSupervised):
    name = "mocov3"
    Options = Mocov3Options
    options: Mocov3Options

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        o = self.options
        self.views = (View(2, setting.img_size),)
        self.head = projector((backbone.width, o.hidden, o.hidden, o.width), last_norm=True)
        self.predictor = projector((o.width, o.hidden, o.width), last_norm=True)
        self.teacher = Teacher(backbone, self.head)

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        features: Features = backbone(batch.views[0])
        first_BP, second_BP = self.predictor(self.head(features.pooled_BD)).chunk(2)
        first_key_BP, second_key_BP = self.teacher(batch.views[0]).chunk(2)
        t = self.options.temperature
        total = mocov3(first_BP, second_key_BP, t) + mocov3(second_BP, first_key_BP, t)
        return Loss(total, {"info_nce": total.detach()}, Seen.of(batch, batch.views[0], features))

    def after_step(self, backbone: Backbone, ctx: Context) -> None:
        self.teacher.follow(backbone, self.head, cosine_momentum(self.options.momentum, ctx.progress))


def mocov3(query_BP: Tensor, key_BP: Tensor, temperature: float) -> Tensor:
    """One direction; keys get no gradient."""
    with full_precision(query_BP):
        q_BP, k_BP = F.normalize(query_BP.float(), dim=1), F.normalize(key_BP.detach().float(), dim=1)
        same_B = torch.arange(len(q_BP), device=q_BP.device)
        return 2 * temperature * F.cross_entropy(q_BP @ k_BP.T / temperature, same_B)
