"""How far a model looks: distance, spread and nearness of attention, by layer and head.

B images, L layers, M heads, N cells. Tokens that are no cells are left out, and reduced keys count as the cells that
they cover, so that layers of all models can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smallvit.diagnosis.attention import AttentionMap, Grid, Tokens, among_its_tokens, laid_out
from smallvit.diagnosis.capture import recorded_attention
from smallvit.errors import UsageError


class Locality(NamedTuple):
    """One layer, head by head, on average over images and cells."""

    layer: str
    grid: Grid
    distance_M: Tensor  # between a cell and what it looks at, in widths of the image
    entropy_M: Tensor  # 0: every cell looks at one cell; 1: at all of them alike
    near_M: Tensor  # share of the attention that stays within the 3 x 3 cells around its own


def locality(model: nn.Module, batches: Iterable[Tensor]) -> list[Locality]:
    """Of every layer that attends among at least two cells; empty for a CNN."""
    sums: dict[str, list[Tensor]] = {}
    grids: dict[str, Grid] = {}
    images = 0
    for images_BCHW in batches:
        images += len(images_BCHW)
        with recorded_attention(model) as calls:
            model(images_BCHW)
        for call in calls:
            found = laid_out(call, images_BCHW.shape)
            if math.prod(found.queries.grid) > 1:
                for weights_1MQK in found.weights_BMQK.split(1):  # over 32 x 32 cells even one image takes its room
                    measured = _measure(found._replace(weights_BMQK=weights_1MQK))
                    before = sums.get(call.layer)
                    sums[call.layer] = [a + b for a, b in zip(before, measured, strict=True)] if before else measured
                grids[call.layer] = found.queries.grid
    if not images:
        raise UsageError("locality needs at least one batch of images")
    return [Locality(layer, grids[layer], *(total / images for total in totals)) for layer, totals in sums.items()]


def uniform_locality(grid: Grid) -> Locality:
    """What a layer that looks at every cell alike would give."""
    count = math.prod(grid)
    weights = torch.full((1, 1, count, count), 1 / count)
    distance_M, entropy_M, near_M = _measure(AttentionMap("", weights, Tokens(0, grid), Tokens(0, grid)))
    return Locality("uniform", grid, distance_M, entropy_M, near_M)


def distances(grid: Grid) -> Tensor:
    """(N, N): between the centres of cells, in widths of the image; cells are square."""
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    places = torch.stack([rows, columns], dim=-1).reshape(-1, 2).double() / grid[1]
    return torch.cdist(places, places).float()


def _measure(found: AttentionMap) -> list[Tensor]:
    """Distance, entropy and nearness."""
    tokens = found.queries
    among_BMNN = among_its_tokens(found)[:, :, tokens.cells, tokens.cells].double()
    among_BMNN = among_BMNN / among_BMNN.sum(-1, keepdim=True).clamp_min(1e-12)
    apart_NN = distances(tokens.grid).to(among_BMNN)
    near_NN = apart_NN * tokens.grid[1] < 1.5  # a diagonal neighbour is 1.41 cells away
    distance_M = (among_BMNN * apart_NN).sum(-1).mean((0, 2))
    entropy_M = torch.special.entr(among_BMNN).sum(-1).mean((0, 2)) / math.log(among_BMNN.shape[-1])
    return [distance_M, entropy_M, (among_BMNN * near_NN).sum(-1).mean((0, 2))]
