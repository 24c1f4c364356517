"""SupCon: crops of images with the same label should be nearer to each other than to all others. It needs labels.

Khosla et al. 2020, the loss L_out. B images, two crops each, A = 2B crops, P width of a projection:

    loss = mean over crops i of -(1 / |P(i)|) sum over p in P(i) of log( exp(z_i z_p / t) / sum over a != i of exp(z_i z_a / t) ),

where P(i) are the other crops with the label of i. The authors' code multiplies by t / 0.07, which the paper does not.
With a label of its own for every image it is SimCLR's loss.
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


class SupconOptions(PretrainingOptions):
    temperature: Annotated[float, Field(gt=0)] = 0.1
    width: Annotated[int, Field(ge=1)] = 128  # of the projector's output; its hidden layer is as wide as the model


class SupCon(SelfSupervised):
    name = "supcon"
    Options = SupconOptions
    needs_labels = True
    least_rank = 1.0  # two classes that are told apart well lie on a line: no collapse
    options: SupconOptions

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.views = (View(2, setting.img_size),)
        width = backbone.width
        self.head = projector((width, width, self.options.width), norm=False)

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        features: Features = backbone(batch.views[0])
        total = supcon(self.head(features.pooled_BD), batch.labels_B.repeat(2), self.options.temperature)
        return Loss(total, {"supcon": total.detach()}, Seen.of(batch, batch.views[0], features))


def supcon(crops_AP: Tensor, labels_A: Tensor, temperature: float) -> Tensor:
    """L_out; every crop needs another one with its label, which the second crop of an image is."""
    with full_precision(crops_AP):
        z_AP = F.normalize(crops_AP.float(), dim=1)
        logits_AA = z_AP @ z_AP.T / temperature
        self_AA = torch.eye(len(z_AP), dtype=torch.bool, device=z_AP.device)
        log_share_AA = logits_AA - logits_AA.masked_fill(self_AA, float("-inf")).logsumexp(1, keepdim=True)
        alike_AA = (labels_A[:, None] == labels_A) & ~self_AA
        return -((log_share_AA * alike_AA).sum(1) / alike_AA.sum(1)).mean()
