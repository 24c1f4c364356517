"""How far a layer looks: distance, spread and nearness of attention, head by head.

B images, M heads, Q queries, K keys, N cells. Tokens that are no cells are left out, and reduced keys count as the cells
that they cover, so that layers of all models can be compared.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from smallvit.diagnosis.attention import AttentionMap, Grid, Tokens, among_its_tokens

AT_ONCE = 2**21  # weights: over 32 x 32 cells even one image takes its room


class Locality(NamedTuple):
    """One layer, head by head, on average over images and cells."""

    layer: str
    grid: Grid
    distance_M: Tensor  # between a cell and what it looks at, in widths of the image
    entropy_M: Tensor  # 0: every cell looks at one cell; 1: at all of them alike
    near_M: Tensor  # share of the attention that stays within the 3 x 3 cells around its own


def locality_of(attention: AttentionMap) -> Locality:
    """Of a layer whose cells attend among each other, on average over the images of the map."""
    B, M = attention.weights_BMQK.shape[:2]
    cells, N = attention.queries.cells, math.prod(attention.queries.grid)
    mean_MNN = torch.zeros(M, N, N, dtype=torch.float64)
    entropy_M = torch.zeros(M, dtype=torch.float64)
    for some_BMQK in attention.weights_BMQK.split(max(1, AT_ONCE // (M * N * N))):
        among_BMNN = among_its_tokens(attention._replace(weights_BMQK=some_BMQK))[:, :, cells, cells]
        among_BMNN = among_BMNN / among_BMNN.sum(-1, keepdim=True).clamp_min(1e-12)
        mean_MNN += among_BMNN.sum(0) / B
        entropy_M += torch.special.entr(among_BMNN).sum((0, 2, 3)) / (B * N * math.log(N))
    apart_NN = distances(attention.queries.grid, attention.high).double()
    near_NN = (places(attention.queries.grid)[:, None] - places(attention.queries.grid)).abs().amax(-1) <= 1
    distance_M, near_M = ((mean_MNN * table_NN).sum((1, 2)) / N for table_NN in (apart_NN, near_NN))
    return Locality(attention.layer, attention.queries.grid, distance_M, entropy_M, near_M)


def uniform_locality(grid: Grid) -> Locality:
    """What a layer that looks at every cell alike would give."""
    count = math.prod(grid)
    weights = torch.full((1, 1, count, count), 1 / count)
    return locality_of(AttentionMap("uniform", weights, Tokens(0, grid), Tokens(0, grid)))


def distances(grid: Grid, high: float = 1.0) -> Tensor:
    """(N, N): between the centres of cells, in widths of an image that is `high` times as high as wide."""
    places_N2 = places(grid) * torch.tensor([high / grid[0], 1 / grid[1]], dtype=torch.float64)
    return torch.cdist(places_N2, places_N2).float()


def places(grid: Grid) -> Tensor:
    """(N, 2): row and column of every cell."""
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    return torch.stack([rows, columns], dim=-1).reshape(-1, 2).double()
