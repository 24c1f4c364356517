"""Projectors, and the teacher that follows a student: what the self-supervised objectives are built from.

B images, D width, P width of a projection.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from smallvit.models.features import Backbone
from smallvit.objectives.selfsupervised import forward_views
from smallvit.types import Features


def projector(
    widths: Sequence[int], *, norm: bool = True, last_norm: bool = False, act: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Linear layers from widths[0] to widths[-1], BatchNorm and activation between; a last norm has no affine part."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(widths), start=2):
        last = number == len(widths)
        normed = last_norm if last else norm
        layers.append(nn.Linear(before, after, bias=not normed))
        if normed:
            layers.append(nn.BatchNorm1d(after, affine=not last))
        if not last:
            layers.append(act())
    return nn.Sequential(*layers)


class Teacher(nn.Module):
    """A copy of a backbone and its head that follows them slowly and never learns by itself.

    It has no drop-path. BatchNorm has the statistics of the batch, as the authors of MoCo and DINO have it: those of the student,
    whose weights are others, would make the keys of all images alike.
    """

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(backbone).requires_grad_(False)
        self.head = copy.deepcopy(head).requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> Teacher:
        super().train(False)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train()
        return self

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        features: Features = forward_views(self.backbone, [images])[0]
        return self.head(features.pooled_BD).float()

    @torch.no_grad()
    def follow(self, backbone: Backbone, head: nn.Module, momentum: float) -> None:
        for own, student in ((self.backbone, backbone), (self.head, head)):
            for mine, theirs in zip(own.parameters(), student.parameters(), strict=True):
                mine.lerp_(theirs, 1 - momentum)
            for known, seen in zip(own.buffers(), student.buffers(), strict=True):
                known.copy_(seen)


def cosine_momentum(start: float, progress: float) -> float:
    """From `start` to 1 along half a cosine."""
    return 1 - (1 - start) * 0.5 * (1 + math.cos(math.pi * progress))


@contextmanager
def full_precision(like: Tensor) -> Iterator[None]:
    """Products of similarities over a temperature of 0.1 need more digits than bf16 has."""
    with torch.autocast(like.device.type, enabled=False):
        yield
