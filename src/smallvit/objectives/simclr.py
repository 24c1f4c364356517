"""SimCLR: two crops of an image should be nearer to each other than to the crops of all other images in the batch.

Chen et al. 2020. B images, two crops each, A = 2B crops, P width of a projection. With unit vectors z and temperature t,

    loss = mean over the 2B crops of -log( exp(z_i z_i' / t) / sum over a != i of exp(z_i z_a / t) ),

where i' is the other crop of the image of i. It is ln(2B - 1) where all features are equal.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from smallvit.models.features import Backbone
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.heads import full_precision, projector
from smallvit.objectives.selfsupervised import PretrainingOptions, SelfSupervised
from smallvit.types import Batch, Context, Features, Loss, Seen, View


class SimclrOptions(PretrainingOptions):
    temperature: Annotated[float, Field(gt=0)] = 0.2
    hidden: Annotated[int, Field(ge=1)] = 512  # of the projector
    width: Annotated[int, Field(ge=1)] = 128  # of its output


class SimCLR(SelfSupervised):
    name = "simclr"
    Options = SimclrOptions
    options: SimclrOptions

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.views = (View(2, setting.img_size),)
        self.head = projector((backbone.width, self.options.hidden, self.options.width))

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        features: Features = backbone(batch.views[0])
        first_BP, second_BP = self.head(features.pooled_BD).chunk(2)
        total = nt_xent(first_BP, second_BP, self.options.temperature)
        return Loss(total, {"nt_xent": total.detach()}, Seen.of(batch, batch.views[0], features))


def nt_xent(first_BP: Tensor, second_BP: Tensor, temperature: float) -> Tensor:
    """The loss of two crops of B images; the vectors need not be unit vectors yet."""
    with full_precision(first_BP):
        z_AP = F.normalize(torch.cat([first_BP, second_BP]).float(), dim=1)
        logits_AA = z_AP @ z_AP.T / temperature
        logits_AA.fill_diagonal_(float("-inf"))  # no crop is its own neighbour
        A = len(z_AP)
        other_A = torch.arange(A, device=z_AP.device).roll(A // 2)
        return F.cross_entropy(logits_AA, other_A)
