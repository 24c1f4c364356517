"""IDMM: every training image is a class of its own; crops of it, mixed with others, are to be recognised.

Cao et al. 2022, "Training Vision Transformers with Only 2040 Images": instance discrimination with multi-crop, CutMix and
label smoothing. B images, V crops of each, A = V B crops of one group, D width, N images of the training part.

The head is a linear layer with one row per training image, on the features that a classifier would stand on; no
normalisation, no temperature, no projector. For a crop x that keeps the share lam of image i, the rest being of image j,

    loss(x) = log sum_k exp(l_k) - (1 - s) (lam l_i + (1 - lam) l_j) - (s / N) sum_k l_k,     l = W z(x) + b,

with the smoothing s. The loss is the mean over the large crops plus the mean over the small ones. Row k of W is moved by
(P_k - C_k) z: without smoothing and CutMix P_k alone moves it once image k was seen, and vanishes as the layer fits.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from smallvit.data.mixing import mix
from smallvit.models.features import Backbone
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.heads import full_precision
from smallvit.objectives.selfsupervised import MultiCropOptions, SelfSupervised, forward_views
from smallvit.recipe import Rate
from smallvit.runs.curves import CurvePanel
from smallvit.types import Batch, Context, Features, Loss, Seen

LIVE = 0.01  # a row is still moved where |P_k - C_k| is more than this share of 1 / N, which is what it starts with
SAMPLE = 64  # crops that the share of such rows is measured on


class IdmmOptions(MultiCropOptions):
    label_smoothing: Rate = 0.1
    cutmix: Annotated[float, Field(ge=0)] = 0.5  # alpha of Beta(alpha, alpha), on every step; 0 is off
    large_crops: Annotated[int, Field(ge=1)] = 2


class IDMM(SelfSupervised):
    name = "idmm"
    Options = IdmmOptions
    curves = (
        *SelfSupervised.curves,
        CurvePanel(
            "live-rows",
            "Rows of the instance layer that still move",
            keys=("live_rows",),
            spoken="Share of rows that move",
            percent=True,
        ),
    )
    options: IdmmOptions
    instance_N: Tensor

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.views = self.options.views(self.options.large_crops, setting.img_size)
        self.instances = nn.Linear(backbone.width, setting.num_trained)
        nn.init.trunc_normal_(self.instances.weight, std=0.02)
        nn.init.zeros_(self.instances.bias)
        # Row of the ImageSet -> row of the layer. The split stands in the run, so the checkpoint does not hold it.
        number = torch.full((setting.num_images,), -1)
        rows = torch.arange(setting.num_images) if setting.train_rows is None else setting.train_rows
        number[rows] = torch.arange(len(rows))
        self.register_buffer("instance_N", number, persistent=False)

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        own_B = self.instance_N[batch.index_B]
        groups = [self._mixed(crops, own_B, ctx) for crops in batch.views]
        features = forward_views(backbone, [group.crops for group in groups])
        logits = [self.instances(group.pooled_BD) for group in features]
        losses = [
            instance_loss(logits_AN, group.target, self.options.label_smoothing)
            for logits_AN, group in zip(logits, groups, strict=True)
        ]
        live = live_rows(logits[0][:SAMPLE], groups[0].target.first(SAMPLE), self.options.label_smoothing)
        parts = dict(zip(("instances_large", "instances_small"), (loss.detach() for loss in losses), strict=False))
        return Loss(torch.stack(losses).sum(), {**parts, "live_rows": live}, self._seen(batch, groups[0], features[0]))

    def _mixed(self, crops: Tensor, own_B: Tensor, ctx: Context) -> _Group:
        """CutMix within one group of crops: one share, one box and one partner for each crop."""
        mixed = mix(crops, ctx.generator, mixup=0.0, cutmix=self.options.cutmix, per="batch", keep_larger=True)
        own_A = own_B.repeat(len(crops) // len(own_B))
        return _Group(mixed.images_BCHW, Target(own_A, own_A[mixed.partner_B], mixed.lam_B), mixed.partner_B)

    def _seen(self, batch: Batch, large: _Group, features: Features) -> Seen:
        mixed = (large.partner_A, large.target.lam_A) if self.options.cutmix else (None, None)
        return Seen.of(batch, large.crops, features, *mixed)


class Target(NamedTuple):
    """The image that a crop shows, the one that a part of it comes from, and the share of the first."""

    own_A: Tensor
    other_A: Tensor
    lam_A: Tensor

    def first(self, count: int) -> Target:
        return Target(*(column[:count] for column in self))


class _Group(NamedTuple):
    crops: Tensor
    target: Target
    partner_A: Tensor  # crop of the group that a part of each crop comes from


def instance_loss(logits_AN: Tensor, target: Target, smoothing: float) -> Tensor:
    """The mean loss of a group of crops. One pass over the logits, which are A x N: with 50,000 images many."""
    with full_precision(logits_AN):
        logits_AN = logits_AN.float()
        own_A, other_A = (logits_AN.gather(1, rows[:, None])[:, 0] for rows in (target.own_A, target.other_A))
        hit_A = target.lam_A * own_A + (1 - target.lam_A) * other_A
        loss_A = logits_AN.logsumexp(1) - (1 - smoothing) * hit_A
        return (loss_A - smoothing * logits_AN.mean(1) if smoothing else loss_A).mean()


@torch.no_grad()
def live_rows(logits_AN: Tensor, target: Target, smoothing: float) -> Tensor:
    """Share of the layer's rows that these crops still move: |P_k - C_k| above a hundredth of 1 / N for one of them."""
    N = logits_AN.shape[1]
    pull_AN = logits_AN.float().softmax(1) - smoothing / N
    lam_A1 = target.lam_A[:, None]
    pull_AN.scatter_add_(1, target.own_A[:, None], -(1 - smoothing) * lam_A1)
    pull_AN.scatter_add_(1, target.other_A[:, None], -(1 - smoothing) * (1 - lam_A1))
    return (pull_AN.abs().amax(0) > LIVE / N).float().mean()
