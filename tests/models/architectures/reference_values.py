"""Weights and images by formula, so that numbers of the authors' code need no file.

h(n, a) = ((31 n^2 + 17 n + 101 a) mod 1009) / 1009 - 0.5, where n counts the numbers of a tensor and a is the place
of its name among the authors' names in alphabetical order.
"""

from __future__ import annotations

import torch
from torch import Tensor


def by_formula(shape: tuple[int, ...], a: int) -> Tensor:
    n = torch.arange(torch.Size(shape).numel())
    return (((31 * n**2 + 17 * n + 101 * a) % 1009).double() / 1009 - 0.5).float().reshape(shape)


def weights_by_formula(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {name: by_formula(shapes[name], rank) for rank, name in enumerate(sorted(shapes))}


def images_by_formula() -> Tensor:
    return 4 * by_formula((2, 3, 8, 8), 50)
