"""What a model holds: the features of its layers, one vector for each image, and its table of positions.

N images (or cells of a table), B of a batch, D width, C channels, H by W cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smallvit.diagnosis.distances import distances
from smallvit.errors import UsageError
from smallvit.evaluation.predictor import evaluating
from smallvit.models.positions import is_table, layout_of_model


def layer_vectors(model: nn.Module, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """(N, D) of every block or stage: the mean over its cells, named as the model's `feature_info` names them."""
    taken: list[list[Tensor]] = []
    with evaluating(model):
        for images_BCHW in batches:
            grids = model.forward_intermediates(images_BCHW, intermediates_only=True)  # type: ignore[operator]
            taken.append([grid_BDHW.float().mean((2, 3)).cpu() for grid_BDHW in grids])
    if not taken:
        raise UsageError("probes need at least one batch of images")
    names = [info["module"] for info in model.feature_info]  # type: ignore[union-attr]
    return {name: torch.cat(parts) for name, parts in zip(names, zip(*taken, strict=True), strict=True)}


class Positions(NamedTuple):
    """How like each other the position embeddings of cells are."""

    similarity_NN: Tensor  # cosines
    correlation: float  # of the cosine with nearness: 1 where neighbours are alike, about 0 where nothing was learned
    grid: tuple[int, int]


def position_similarity(model: nn.Module) -> Positions | None:
    """None where the model has no table of positions or one that was not learned."""
    tables = [parameter for name, parameter in model.named_parameters() if is_table(name, parameter)]
    layout = layout_of_model(model, tables[0]) if tables else None
    if layout is None or layout.grid[0] * layout.grid[1] < 3:
        return None
    cells_ND = tables[0][0, layout.front :].detach().cpu().double()
    cells_ND = nn.functional.normalize(cells_ND - cells_ND.mean(0), dim=1)
    similarity_NN = cells_ND @ cells_ND.T
    pairs = torch.ones_like(similarity_NN, dtype=torch.bool).triu(1)
    both = torch.stack([similarity_NN[pairs], -distances(layout.grid).double()[pairs]])
    return Positions(similarity_NN.float(), float(torch.corrcoef(both)[0, 1].nan_to_num()), layout.grid)
