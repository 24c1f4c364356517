"""From uniform numbers to what augmentation draws. B samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def normal_from(uniform: Tensor) -> Tensor:
    """Standard normal numbers by inversion. The half step keeps 0 and 1, and so infinity, out."""
    return torch.erfinv(2 * uniform - 1 + 2**-24) * math.sqrt(2)


def between(draw_B: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * draw_B


def rows_below(draw_B: Tensor, probability: float) -> Tensor:
    """The rows of the samples to which something of this probability happens. Waits for the device."""
    return (draw_B < probability).nonzero()[:, 0]
