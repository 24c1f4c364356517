"""DINO: a student that sees small crops guesses what a slow teacher makes of the large ones. No negatives.

Caron et al. 2021. B images, T teacher views, S student views, O outputs. The loss is the mean over pairs of a teacher's
and another view of the student of

    -sum softmax((teacher - centre) / t_teacher) log softmax(student / t_student).

The centre follows the mean of the teacher's outputs after every step; without it one output would win for all images.
Where the authors end in 65,536 outputs, a set of thousands of images has no use for more than 4,096.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from smallvit.models.features import Backbone
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.heads import Teacher, cosine_momentum, full_precision, projector
from smallvit.objectives.selfsupervised import MultiCropOptions, SelfSupervised, forward_views
from smallvit.recipe import Rate
from smallvit.types import Batch, Context, Loss, Seen


class DinoOptions(MultiCropOptions):
    outputs: Annotated[int, Field(ge=2, le=4096)] = 2048
    hidden: Annotated[int, Field(ge=1)] = 512  # of the head; 2048 in the paper
    bottleneck: Annotated[int, Field(ge=1)] = 128  # 256 in the paper
    student_temperature: Annotated[float, Field(gt=0)] = 0.1
    teacher_temperature: Annotated[float, Field(gt=0)] = 0.04
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.996  # of the teacher at the start; it ends at 1
    centre_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    frozen_epochs: Annotated[int, Field(ge=0)] = 1  # of the last layer, at the start
    large_scale: tuple[Rate, Rate] = (0.4, 1.0)  # of the two large crops


class DINO(SelfSupervised):
    name = "dino"
    Options = DinoOptions
    options: DinoOptions
    centre_O: Tensor

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        o = self.options
        self.views = o.views(2, setting.img_size)
        self.head = Prototypes(backbone.width, o.hidden, o.bottleneck, o.outputs)
        self.teacher = Teacher(backbone, self.head)
        self.register_buffer("centre_O", torch.zeros(o.outputs))
        self.mean_O = self.centre_O.clone()  # of the teacher's outputs in the step under way

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        o = self.options
        features = forward_views(backbone, batch.views)
        pooled = torch.cat([view.pooled_BD for view in features])
        student = self.head(pooled, learns=ctx.epoch >= o.frozen_epochs).chunk(2 + o.small_crops)
        teacher = self.teacher(batch.views[0])
        self.mean_O = teacher.mean(0)
        total = dino(teacher.chunk(2), student, self.centre_O, o.teacher_temperature, o.student_temperature)
        return Loss(total, {"dino": total.detach()}, Seen.of(batch, batch.views[0], features[0]))

    @torch.no_grad()
    def after_step(self, backbone: Backbone, ctx: Context) -> None:
        self.teacher.follow(backbone, self.head, cosine_momentum(self.options.momentum, ctx.progress))
        self.centre_O.lerp_(self.mean_O, 1 - self.options.centre_momentum)


class Prototypes(nn.Module):
    """Three layers to a unit vector, and its cosine with a direction for each output."""

    def __init__(self, width: int, hidden: int, bottleneck: int, outputs: int) -> None:
        super().__init__()
        self.layers = projector((width, hidden, hidden, bottleneck), norm=False, act=nn.GELU)
        self.directions = nn.Parameter(torch.empty(outputs, bottleneck))
        nn.init.trunc_normal_(self.directions, std=0.02)
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)  # torch's own would be larger than what such weights make of an image

    def forward(self, pooled_BD: Tensor, learns: bool = True) -> Tensor:
        directions = self.directions if learns else self.directions.detach()
        point_BP = self.layers(pooled_BD)
        with full_precision(point_BP):
            return F.linear(F.normalize(point_BP.float(), dim=1), F.normalize(directions, dim=1))


def dino(
    teacher: tuple[Tensor, ...], student: tuple[Tensor, ...], centre_O: Tensor, teacher_temperature: float,
    student_temperature: float,
) -> Tensor:  # fmt: skip
    """`teacher` and `student` are logits (B, O) of each view, the same views first; the teacher gets no gradient."""
    with full_precision(centre_O):
        guesses = [F.log_softmax(logits_BO.float() / student_temperature, dim=1) for logits_BO in student]
        targets = [
            F.softmax((logits_BO.detach().float() - centre_O) / teacher_temperature, dim=1) for logits_BO in teacher
        ]
        pairs = [
            -(target_BO * guess_BO).sum(1).mean()
            for a, target_BO in enumerate(targets)
            for b, guess_BO in enumerate(guesses)
            if a != b
        ]
        return torch.stack(pairs).mean()
