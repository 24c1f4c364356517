"""Where a layer looks from a cell: its attention by the offset from the cell that asks, head by head.

B images, M heads, N cells, R cells in each direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from smallvit.diagnosis.attention import AttentionMap, among_its_tokens
from smallvit.models.starting_weights import neighbours

IMAGES = 8  # whose mean is taken: the offset hardly depends on the image


def among_cells(attention: AttentionMap) -> Tensor:
    """(M, N, N): how much a cell gives each other one, on average over a few images; other tokens are left out."""
    cells = attention.queries.cells
    some = attention._replace(weights_BMQK=attention.weights_BMQK[:IMAGES])
    return among_its_tokens(some)[:, :, cells, cells].mean(0)


def by_offset(attention: AttentionMap, reach: int) -> Tensor:
    """(M, 2R+1, 2R+1): the mean attention to the cell at each offset, over all cells that have one there; 0 where none has."""
    among_MNN = among_cells(attention)
    steps = range(-reach, reach + 1)
    table = torch.zeros(len(among_MNN), len(steps), len(steps))
    for row in steps:
        for column in steps:
            cells, theirs = neighbours(attention.queries.grid, (row, column))
            if len(cells):
                table[:, row + reach, column + reach] = among_MNN[:, cells, theirs].mean(1)
    return table


def offset_hits(attention: AttentionMap, offsets: Sequence[tuple[int, int]]) -> Tensor:
    """Per head: the share of the cells with a neighbour at the head's offset that look at it more than at any other cell."""
    looked_at_MN = among_cells(attention).argmax(2)
    shares = []
    for looked_at_N, offset in zip(looked_at_MN, offsets, strict=True):
        cells, theirs = neighbours(attention.queries.grid, offset)
        shares.append((looked_at_N[cells] == theirs).float().mean() if len(cells) else torch.tensor(math.nan))
    return torch.stack(shares)
