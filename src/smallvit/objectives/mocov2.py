"""MoCo v2: a crop should be nearer to its image's other crop, as a slow teacher sees it, than to a queue of earlier ones.

He et al. 2020, Chen et al. 2020. B images, Q places in the queue, P width of a projection. With unit vectors, q of the
student and k of the teacher, the loss is the cross-entropy of [q k, q queue] / t with the first as the answer: ln(Q + 1)
where all features are equal. The queue takes the new keys after the step, and is part of a checkpoint.

A queue as long as the set would hold keys of the very images that are asked about: here it is half of it at most.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from smallvit.errors import UsageError
from smallvit.models.features import Backbone
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.heads import Teacher, full_precision, projector
from smallvit.objectives.selfsupervised import PretrainingOptions, SelfSupervised
from smallvit.planning.choices import Choices
from smallvit.recipe import Auto
from smallvit.types import Batch, Context, Features, Loss, Seen, View

LONGEST = 4096


class Mocov2Options(PretrainingOptions):
    temperature: Annotated[float, Field(gt=0)] = 0.2
    queue: Annotated[int, Field(ge=1)] | Auto = "auto"  # keys of earlier images
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.99  # of the teacher
    hidden: Annotated[int, Field(ge=1)] = 512  # of the projector
    width: Annotated[int, Field(ge=1)] = 128  # of its output


class MoCov2(SelfSupervised):
    name = "mocov2"
    Options = Mocov2Options
    options: Mocov2Options
    queue_QP: Tensor
    next_place: Tensor

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        o = self.options
        self.views = (View(2, setting.img_size),)
        self.head = projector((backbone.width, o.hidden, o.width), norm=False)
        self.teacher = Teacher(backbone, self.head)
        self.register_buffer("queue_QP", F.normalize(torch.randn(queue_length(o.queue, setting), o.width), dim=1))
        self.register_buffer("next_place", torch.zeros((), dtype=torch.int64))
        self.keys_BP = self.queue_QP[:0]  # of the step under way

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        first_BCSS, second_BCSS = batch.views[0].chunk(2)
        features: Features = backbone(first_BCSS)
        self.keys_BP = F.normalize(self.teacher(second_BCSS), dim=1)
        total = moco(self.head(features.pooled_BD), self.keys_BP, self.queue_QP, self.options.temperature)
        return Loss(total, {"info_nce": total.detach()}, Seen.of(batch, first_BCSS, features))

    @torch.no_grad()
    def after_step(self, backbone: Backbone, ctx: Context) -> None:
        self.teacher.follow(backbone, self.head, self.options.momentum)
        Q = len(self.queue_QP)
        keys_BP = self.keys_BP[-Q:]
        places_B = (self.next_place + torch.arange(len(keys_BP), device=keys_BP.device)) % Q
        self.queue_QP[places_B] = keys_BP
        self.next_place.add_(len(keys_BP)).remainder_(Q)

    @classmethod
    def resolve(cls, options: Any, task: TaskInfo, choices: Choices) -> None:
        length = queue_length(options.queue, task)
        choices.choose("queue", length, f"half of {task.num_trained:,} training images, at most {LONGEST:,}")


def queue_length(asked: int | Auto, setting: TaskInfo) -> int:
    longest = max(1, setting.num_trained // 2)
    if asked == "auto":
        return min(LONGEST, longest)
    if asked > longest:
        raise UsageError(
            f"objective.queue = {asked}: with {setting.num_trained:,} training images it may hold {longest:,} at most, "
            "or it would hold the images that it is to be told from; leave it out for that number"
        )
    return asked


def moco(query_BP: Tensor, key_BP: Tensor, queue_QP: Tensor, temperature: float) -> Tensor:
    """One direction; keys get no gradient."""
    with full_precision(query_BP):
        q_BP, k_BP = F.normalize(query_BP.float(), dim=1), F.normalize(key_BP.detach().float(), dim=1)
        logits_BQ = torch.cat([(q_BP * k_BP).sum(1, keepdim=True), q_BP @ queue_QP.T], dim=1) / temperature
        return F.cross_entropy(logits_BQ, torch.zeros(len(q_BP), dtype=torch.int64, device=q_BP.device))
