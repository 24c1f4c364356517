"""Tables of positions for another image size: the grid is interpolated, the rows of class tokens are kept.

N rows, of which some stand in front for class tokens and the others for H by W cells; D width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from smallvit.errors import UsageError

Grid = tuple[int, int]


class Layout(NamedTuple):
    """How the rows of a table are to be read."""

    front: int
    grid: Grid

    def __str__(self) -> str:
        return f"{self.grid[0]}x{self.grid[1]}"


def is_table(name: str, tensor: Tensor) -> bool:
    """Learnable or not, but of the whole image: tables inside blocks mean something else."""
    return name.startswith("pos") and "." not in name and tensor.ndim == 3 and tensor.shape[0] == 1


def is_offset_table(name: str, tensor: Tensor) -> bool:
    """Of our hybrids: what each head adds for the offset between two cells, M by offsets."""
    return name.endswith(".offsets") and tensor.ndim == 3


def stretched(table_MRR: Tensor, size: tuple[int, ...]) -> Tensor:
    """The offsets of another grid, at the places of this one's: the largest stay the largest."""
    return F.interpolate(table_MRR[None], size, mode="bilinear", align_corners=True)[0]


def resample(table_1ND: Tensor, of: Layout, own_1ND: Tensor, to: Layout) -> Tensor:
    """Bicubic as in the authors' scripts. Where class tokens were added or left out, the model keeps its own rows."""
    cells = resample_abs_pos_embed(table_1ND[:, of.front :], list(to.grid), list(of.grid), 0, antialias=False)
    front = (table_1ND if of.front == to.front else own_1ND)[:, : to.front]
    return torch.cat([front.to(cells), cells], dim=1)


def layout_of_model(model: nn.Module, own_1ND: Tensor) -> Layout | None:
    """From the patches' grid where the model tells it, else a square behind at most two class tokens."""
    rows = own_1ND.shape[1]
    grid: Grid | None = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    if grid is not None and rows >= math.prod(grid):
        return Layout(rows - math.prod(grid), grid)
    return next((Layout(front, (side, side)) for front in range(3) if (side := _side(rows - front))), None)


def layout_of_checkpoint(
    table_1ND: Tensor, class_tokens: int, model: Layout, from_grid: Grid | None = None
) -> Layout | None:
    """A table does not say whether 24 cells are 4x6 or 6x4: `from_grid` does.

    Without it, it is a square if it can be one with as many class tokens as the model or the checkpoint has; else
    the shape that is nearest to the model's.
    """
    rows = table_1ND.shape[1]
    if from_grid is not None:
        if rows - math.prod(from_grid) not in (model.front, class_tokens, 0):
            raise UsageError(f"a table of {rows} positions cannot be a grid of {from_grid[0]}x{from_grid[1]}")
        return Layout(rows - math.prod(from_grid), from_grid)
    for front in dict.fromkeys((model.front, class_tokens, 0)):
        if side := _side(rows - front):
            return Layout(front, (side, side))
    cells = rows - model.front
    wanted = math.log(model.grid[0] / model.grid[1])
    shapes = [(height, cells // height) for height in range(1, cells + 1) if cells % height == 0]
    if not shapes:
        return None
    return Layout(model.front, min(shapes, key=lambda shape: abs(math.log(shape[0] / shape[1]) - wanted)))


def _side(cells: int) -> int:
    """Of a square of so many cells; 0 where there is none."""
    side = math.isqrt(max(cells, 0))
    return side if side * side == cells else 0
