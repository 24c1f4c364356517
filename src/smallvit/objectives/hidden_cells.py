"""Which cells of an image are hidden, their pixels, and what a guess of them costs: the formulas of MAE.

B images, C channels, N = H W cells, V visible, M hidden, X = C p q values of a patch of p by q pixels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from smallvit.objectives.heads import full_precision

EPSILON = 1e-6

Grid = tuple[int, int]


class Cells(NamedTuple):
    """Of each image, counted row by row."""

    visible_BV: Tensor
    hidden_BM: Tensor


def visible_cells(cells: int, mask_ratio: float) -> int:
    """At least one is visible and one hidden."""
    return min(max(1, round(cells * (1 - mask_ratio))), cells - 1)


def drawn_cells(draws_BN: Tensor, mask_ratio: float) -> Cells:
    order_BN = draws_BN.argsort(dim=1, stable=True)
    visible = visible_cells(draws_BN.shape[1], mask_ratio)
    return Cells(order_BN[:, :visible], order_BN[:, visible:])


def patches(images_BCSS: Tensor, grid: Grid) -> Tensor:
    """(B, N, X): the pixels of every cell by row, column and channel, the channel fastest."""
    height, width = grid
    cut = images_BCSS.unflatten(3, (width, -1)).unflatten(2, (height, -1))  # B C H p W q
    return cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def images_of(patches_BNX: Tensor, grid: Grid, channels: int) -> Tensor:
    """The other way round; images are square, patches may be none."""
    side = math.isqrt(math.prod(patches_BNX.shape[1:]) // channels)
    cut = patches_BNX.unflatten(2, (side // grid[0], side // grid[1], channels)).unflatten(1, grid)  # B H W p q C
    return cut.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


def hidden_error(guess_BNX: Tensor, true_BNX: Tensor, hidden_BM: Tensor, norm_pixels: bool) -> Tensor:
    """The mean squared error over the hidden cells."""
    with full_precision(guess_BNX):
        places_BMX = hidden_BM[:, :, None].expand(-1, -1, true_BNX.shape[2])
        guess_BMX, true_BMX = (table_BNX.float().gather(1, places_BMX) for table_BNX in (guess_BNX, true_BNX))
        if norm_pixels:
            true_BMX = (true_BMX - true_BMX.mean(-1, keepdim=True)) / deviation(true_BMX)
        return (guess_BMX - true_BMX).square().mean()


def deviation(true_BNX: Tensor) -> Tensor:
    """Of the values of every patch, never 0."""
    return (true_BNX.var(-1, keepdim=True) + EPSILON).sqrt()
