"""What the layers of a model hold, in one number each: nearest neighbours, rank, positions, heads.

N images, D width, L layers, M heads, Q queries, K keys, H by W cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smallvit.diagnosis.capture import evaluating, recorded_attention
from smallvit.diagnosis.locality import distances
from smallvit.errors import UsageError
from smallvit.models.positions import is_table, layout_of_model


def layer_vectors(model: nn.Module, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """(N, D) of every block or stage: the mean over its cells, named as the model's `feature_info` names them."""
    taken: list[list[Tensor]] = []
    with evaluating(model):
        for images_BCHW in batches:
            grids = model.forward_intermediates(images_BCHW, intermediates_only=True)  # type: ignore[operator]
            taken.append([grid_BDHW.float().mean((2, 3)) for grid_BDHW in grids])
    if not taken:
        raise UsageError("probes need at least one batch of images")
    names = [info["module"] for info in model.feature_info]  # type: ignore[union-attr]
    return {name: torch.cat(parts) for name, parts in zip(names, zip(*taken, strict=True), strict=True)}


def knn_accuracy(bank_ND: Tensor, bank_labels_N: Tensor, asked_ND: Tensor, labels_N: Tensor, k: int = 10) -> float:
    """Share of images whose nearest neighbours in the bank, weighted by their cosine, vote for the right class."""
    centre_D = bank_ND.mean(0)
    bank_ND, asked_ND = (nn.functional.normalize(one - centre_D, dim=1) for one in (bank_ND, asked_ND))
    close_NK, places_NK = (asked_ND @ bank_ND.T).topk(min(k, len(bank_ND)), dim=1)
    classes = int(torch.maximum(bank_labels_N.max(), labels_N.max())) + 1
    votes_NC = torch.zeros(len(asked_ND), classes).scatter_add_(1, bank_labels_N[places_NK], (close_NK + 1.0).cpu())
    return float((votes_NC.argmax(1) == labels_N).double().mean())


def effective_rank(features_ND: Tensor) -> float:
    """How many directions the features use: exp of the entropy of their variances' shares.

    After Roy and Vetterli (2007), who take singular values, not their squares.
    """
    centred_ND = features_ND.double() - features_ND.double().mean(0)
    variances = torch.linalg.svdvals(centred_ND).square()
    if not variances.sum() > 0:
        return 0.0
    return float(torch.special.entr(variances / variances.sum()).sum().exp())


class Positions(NamedTuple):
    """How like each other the position embeddings of cells are."""

    similarity_NN: Tensor  # cosines
    correlation: float  # of the cosine with nearness: 1 where neighbours are alike, about 0 where nothing was learned
    grid: tuple[int, int]


def position_similarity(model: nn.Module) -> Positions | None:
    """None where the model has no table of positions or one that was not learned."""
    tables = [one for name, one in model.named_parameters() if is_table(name, one)]
    layout = layout_of_model(model, tables[0]) if tables else None
    if layout is None or layout.grid[0] * layout.grid[1] < 3:
        return None
    cells_ND = tables[0][0, layout.front :].detach().double()
    cells_ND = nn.functional.normalize(cells_ND - cells_ND.mean(0), dim=1)
    similarity_NN = cells_ND @ cells_ND.T
    pairs = torch.ones_like(similarity_NN, dtype=torch.bool).triu(1)
    both = torch.stack([similarity_NN[pairs], -distances(layout.grid).double()[pairs]])
    return Positions(similarity_NN.float(), float(torch.corrcoef(both)[0, 1].nan_to_num()), layout.grid)


class Heads(NamedTuple):
    """One layer: what its heads do for the queries, and how like each other they are."""

    layer: str
    selectivity_M: Tensor  # 0: the head gives every query the same; 1: every query something else
    likeness_MM: Tensor  # correlation of two heads' attention


def heads(model: nn.Module, batches: Iterable[Tensor]) -> list[Heads]:
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    images = 0
    for images_BCHW in batches:
        images += len(images_BCHW)
        with recorded_attention(model) as calls:
            model(images_BCHW)
        for call in calls:
            weights_BMQK = call.weights_BMQK
            apart_M = (weights_BMQK - weights_BMQK.mean(2, keepdim=True)).abs().sum(-1).mean((0, 2)) / 2
            maps_BMX = weights_BMQK.flatten(2)
            maps_BMX = nn.functional.normalize(maps_BMX - maps_BMX.mean(2, keepdim=True), dim=2)
            found = len(images_BCHW) * apart_M, len(images_BCHW) * (maps_BMX @ maps_BMX.mT).mean(0)
            before = sums.get(call.layer)
            sums[call.layer] = (before[0] + found[0], before[1] + found[1]) if before else found
    return [Heads(layer, apart / images, like / images) for layer, (apart, like) in sums.items()]
