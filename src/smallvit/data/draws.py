"""What a sample draws: numbers that depend on (key, position) only, all made at once. B samples, K draws each."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smallvit.randomness import key_of, uniform

MOST_LAYERS = 4  # of a policy
# How many numbers each step draws. A step that is switched off leaves its numbers unused, so that switching it on
# does not change what the others draw.
STEPS = {
    "flip": 1,
    "crop": 4,
    "affine": 5,
    "policy": 3 * MOST_LAYERS,
    "colour": 5,
    "gray": 1,
    "blur": 2,
    "solarize": 1,
    "erase": 6,
}


def draw_steps(key: int, positions_B: Tensor) -> dict[str, Tensor]:
    """(K, B) numbers in [0, 1) for each step."""
    draws_KB = uniform(key_of(key, "steps"), positions_B, sum(STEPS.values())).T.contiguous()
    return dict(zip(STEPS, draws_KB.split(list(STEPS.values())), strict=True))


def between(draw_B: Tensor, low: float, high: float) -> Tensor:
    return draw_B * (high - low) + low


def rows_below(draw_B: Tensor, probability: float) -> Tensor:
    """The rows of the samples to which something of this probability happens. Waits for the device."""
    return (draw_B < probability).nonzero()[:, 0]


def normal(draw_B: Tensor, mean: float, std: float) -> Tensor:
    """Normal numbers by inversion. The half step keeps 0 and 1, and so infinity, out."""
    return torch.erfinv(draw_B * 2 - (1 - 2**-24)) * (math.sqrt(2) * std) + mean


def noise(draw_N: Tensor, counters_N: Tensor) -> Tensor:
    """A standard normal number for each pair of a draw and a counter: one draw is enough for a whole image.

    A hash as in `uniform`, but of 32 bits, which costs a quarter: this is called for every erased pixel.
    """
    x = (draw_N * 2**32 - 2**31).to(torch.int32) + counters_N.to(torch.int32)
    x = x * -1640531527
    x = (x ^ ((x >> 15) & 0x1FFFF)) * -2048144789
    x = (x ^ ((x >> 13) & 0x7FFFF)) * -1028477387
    return torch.erfinv(x * (2**-31 - 2**-53)) * math.sqrt(2)  # just short of -1 and 1
