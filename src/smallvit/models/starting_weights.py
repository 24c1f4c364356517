"""Weights of attention that know something before the first step: `model.weights = mimetic | impulse`.

*Mimetic* (Trockman and Kolter 2023): queries and keys start alike, so that a token first looks at tokens like itself, and
values and projections start as nearly the opposite of each other, as in trained models. Positions are sines and cosines.

*Impulse* (Zheng et al. 2025): every head starts out looking at one neighbour of each cell, head by head another cell of a
3 x 3 window, as a convolution does. It is solved for by positions, which are drawn anew, large and random. A head of E
numbers can tell only about so many places apart: `hits` says for how many cells its neighbour is what it looks at most.

With y = x W (torch stores the transpose), D width, E = D / heads, N cells, P the positions, Z of variance 1 / D:

    mimetic  of a head  0.7 Z + 0.7 I = U S V'   W_Q = U S^1/2, W_K = V S^1/2, the first E columns
    both     of a layer 0.4 Z - 0.4 I = U S V'   W_V = U S^1/2, W_proj = S^1/2 V'
    impulse  of a head  P+ M P+' = U S V'        W_Q, W_K as above, each of norm 7

M is 1000 where the neighbour is, else 3 times a truncated normal of deviation 0.6; P+ is the pseudo-inverse of the normed P
through its E largest singular values. Cells at the border whose neighbour is outside the image have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import build_sincos2d_pos_embed
from torch import Tensor, nn

from smallvit.console import several
from smallvit.errors import UsageError
from smallvit.models.positions import Layout, layout_of_model

QUERY_KEY, VALUE_PROJECTION = (0.7, 0.7), (0.4, -0.4)  # shares of noise and of the identity
SINES = 0.5  # their size: patches are of about the same
RANDOM_POSITIONS = 0.36
NEIGHBOUR, ELSEWHERE, DEVIATION = 1000.0, 3.0, 0.6
IMPULSE_NORM = 7.0
LEAST_SINGULAR = 1e-5  # of the largest: rows are normed, so in one direction there is rounding alone
WINDOW = [(0, 0), *((row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if (row, column) != (0, 0))]


class Positions(NamedTuple):
    table: Tensor  # 1 x N x D, rows of class tokens first
    layout: Layout


@torch.no_grad()
def give_weights(model: nn.Module, kind: str, name: str) -> str:
    """Set the attention of a model, and its positions where it has a table; say what that came to."""
    if kind == "usual":
        return "as the model's authors draw them"
    layers = list(plain_attention(model))
    if not layers:
        raise UsageError(
            f"model.weights = {kind}: {name} has no attention of one qkv layer and a projection; take usual"
        )
    positions = table_of_positions(model)
    if kind == "mimetic":
        if positions:
            _set_cells(positions, SINES * _sines(positions))
        for layer in layers:
            _mimetic(layer)
        return f"{several(len(layers), 'layer')} of attention with weights as trained ones look"
    if positions is None:
        raise UsageError(f"model.weights = impulse: {name} has no table of positions to tell cells apart; take mimetic")
    _set_cells(positions, RANDOM_POSITIONS * torch.randn_like(positions.table[:, positions.layout.front :]))
    normed_ND = normed_cells(positions)
    for layer in layers:
        _impulse(layer, normed_ND, positions.layout.grid)
    share = hits(layers[0], normed_ND, positions.layout.grid).mean().item()
    return f"of {share:.0%} of the cells a head first looks at the neighbour that it is meant to, with {_width(layers[0])} numbers a head"


def plain_attention(model: nn.Module) -> Iterator[Any]:
    """Layers with queries, keys and values in one linear layer of the whole width, and a projection behind them."""
    for layer in model.modules():
        qkv, proj = getattr(layer, "qkv", None), getattr(layer, "proj", None)
        if isinstance(qkv, nn.Linear) and isinstance(proj, nn.Linear) and hasattr(layer, "num_heads"):
            width = qkv.in_features
            if qkv.out_features == 3 * width and proj.weight.shape == (width, width):
                yield layer


def table_of_positions(model: nn.Module) -> Positions | None:
    table = getattr(model, "pos_embed", None)
    if not isinstance(table, Tensor) or table.ndim != 3:
        return None
    layout = layout_of_model(model, table)
    return Positions(table, layout) if layout else None


def normed_cells(positions: Positions) -> Tensor:
    """N x D: positions as the norm in front of attention leaves them."""
    cells_ND = positions.table[0, positions.layout.front :]
    return F.layer_norm(cells_ND, cells_ND.shape[1:])


def neighbours(grid: tuple[int, int], offset: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Cells, and their neighbours at an offset, of all cells that have one."""
    height, width = grid
    rows_N = torch.arange(height).repeat_interleave(width) + offset[0]
    columns_N = torch.arange(width).repeat(height) + offset[1]
    inside_N = (rows_N >= 0) & (rows_N < height) & (columns_N >= 0) & (columns_N < width)
    return inside_N.nonzero()[:, 0], (rows_N * width + columns_N)[inside_N]


def hits(layer: Any, normed_ND: Tensor, grid: tuple[int, int]) -> Tensor:
    """Per head: the share of the cells with such a neighbour that look at it more than at any other cell."""
    query_DD, key_DD, _ = layer.qkv.weight.T.chunk(3, dim=1)
    shares = []
    for head, columns in enumerate(_columns(layer)):
        looked_at_N = ((normed_ND @ query_DD[:, columns]) @ (normed_ND @ key_DD[:, columns]).T).argmax(1)
        cells, theirs = neighbours(grid, WINDOW[head % len(WINDOW)])
        shares.append((looked_at_N[cells] == theirs).float().mean())
    return torch.stack(shares)


# ---- the two -----------------------------------------------------------------------------------------


def _mimetic(layer: Any) -> None:
    width, wide = layer.qkv.in_features, _width(layer)
    pairs = [_halves(_noisy_identity(width, *QUERY_KEY), wide) for _ in range(layer.num_heads)]
    _set_layer(layer, *(torch.cat(parts, dim=1) for parts in zip(*pairs, strict=True)))


def _impulse(layer: Any, normed_ND: Tensor, grid: tuple[int, int]) -> None:
    wide = _width(layer)
    left, values, right = torch.linalg.svd(normed_ND.double(), full_matrices=False)
    known = min(wide, int((values > LEAST_SINGULAR * values[0]).sum()))
    inverse_DN = (right[:known].T / values[:known]) @ left[:, :known].T
    queries, keys = [], []
    for head in range(layer.num_heads):
        target_NN = ELSEWHERE * nn.init.trunc_normal_(
            normed_ND.new_empty(len(normed_ND), len(normed_ND)), std=DEVIATION
        )
        cells, theirs = neighbours(grid, WINDOW[head % len(WINDOW)])
        target_NN[cells, theirs] = NEIGHBOUR
        query_DE, key_DE = _halves((inverse_DN @ target_NN.double() @ inverse_DN.T).to(normed_ND), wide)
        queries.append(IMPULSE_NORM * query_DE / query_DE.norm())
        keys.append(IMPULSE_NORM * key_DE / key_DE.norm())
    _set_layer(layer, torch.cat(queries, dim=1), torch.cat(keys, dim=1))


def _set_layer(layer: Any, query_DD: Tensor, key_DD: Tensor) -> None:
    """Queries and keys as given, values and projection as trained ones look, no biases."""
    width = layer.qkv.in_features
    left_DD, values_D, right_DD = torch.linalg.svd(_noisy_identity(width, *VALUE_PROJECTION))
    roots_D = values_D.sqrt()
    layer.qkv.weight.copy_(torch.cat([query_DD, key_DD, left_DD * roots_D], dim=1).T)
    layer.proj.weight.copy_((roots_D[:, None] * right_DD).T)
    for linear in (layer.qkv, layer.proj):
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


def _noisy_identity(width: int, noise: float, identity: float) -> Tensor:
    return noise * torch.randn(width, width) / width**0.5 + identity * torch.eye(width)


def _halves(matrix_DD: Tensor, wide: int) -> tuple[Tensor, Tensor]:
    """Two D x E matrices, the first times the other transposed being the nearest of that rank to the given one."""
    left_DD, values_D, right_DD = torch.linalg.svd(matrix_DD)
    roots_E = values_D[:wide].sqrt()
    return left_DD[:, :wide] * roots_E, right_DD[:wide].T * roots_E


def _width(layer: Any) -> int:
    return layer.qkv.in_features // layer.num_heads


def _columns(layer: Any) -> list[slice]:
    wide = _width(layer)
    return [slice(head * wide, (head + 1) * wide) for head in range(layer.num_heads)]


def _sines(positions: Positions) -> Tensor:
    width = positions.table.shape[2]
    if width % 4:
        raise UsageError(
            f"model.weights = mimetic: sines and cosines of two axes need a width that 4 divides, not {width}"
        )
    return build_sincos2d_pos_embed(list(positions.layout.grid), width)[None]


def _set_cells(positions: Positions, cells_1ND: Tensor) -> None:
    positions.table[:, positions.layout.front :] = cells_1ND
