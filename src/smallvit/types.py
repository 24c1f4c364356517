"""The types that pass between the parts. B images, C channels, H by W grid, D width."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Features(NamedTuple):
    """What a backbone returns: one vector per image, and the grids of its stages (the last stage last)."""

    pooled_BD: Tensor
    grids: tuple[Tensor, ...]  # each B D H W


class View(NamedTuple):
    """A kind of crop that an objective asks for. Views of equal size share one forward pass."""

    copies: int
    size: int
    scale: tuple[float, float] | None = None  # None: the scale of the augmentation recipe


class Batch(NamedTuple):
    """One training batch: a tensor of `copies * B` images per view kind, view-major."""

    views: tuple[Tensor, ...]
    labels_B: Tensor
    index_B: Tensor  # row of each image in its ImageSet; self-supervised objectives use it as the instance


class Context(NamedTuple):
    """Where training stands, and the only source of randomness an objective may draw from."""

    epoch: int
    step: int
    progress: float  # 0 at the first step, 1 at the last
    generator: torch.Generator


class Loss(NamedTuple):
    """`total` is what is minimised; `parts` are logged; `features` are what auxiliary losses look at."""

    total: Tensor
    parts: dict[str, Tensor]
    features: Features


class Prediction(NamedTuple):
    """What a model says of one image file."""

    file: str
    label: str | None  # None: the file could not be read
    probability: float | None
    problem: str = ""
