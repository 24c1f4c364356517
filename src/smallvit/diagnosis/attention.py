"""Where a model looks: the attention of every layer laid out over the image, and rollout through the layers.

B images, M heads, Q queries, K keys, N tokens; a set of tokens is some in front (the class token), H by W cells, and
some behind (DHVT's head tokens). Where only the class token asks (CaiT), the queries have no cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from timm.models.swin_transformer import SwinTransformerBlock
from timm.models.xcit import XCA
from torch import Tensor, nn

from smallvit.diagnosis.capture import AttentionCall, recorded_attention
from smallvit.errors import UsageError
from smallvit.models.architectures.dhvt_parts import HeadInteractedAttention

Grid = tuple[int, int]
MOST_FRONT = 2  # class and distillation token


class Tokens(NamedTuple):
    """How a row of tokens is to be read."""

    front: int
    grid: Grid
    behind: int = 0
    covered: tuple[float, float] = (1.0, 1.0)  # share of the image's height and width: a stride may leave its end out

    @property
    def cells(self) -> slice:
        return slice(self.front, self.front + math.prod(self.grid))


class AttentionMap(NamedTuple):
    """The attention of one layer over the whole image; every row sums to 1."""

    layer: str
    weights_BMQK: Tensor
    queries: Tokens
    keys: Tokens
    high: float = 1.0  # how many times as high as wide the image is

    @property
    def tokens(self) -> Tokens:
        """What there is after the layer: its queries; where none of them is a cell, also the cells as they were."""
        return Tokens(self.queries.front, self.queries.grid if math.prod(self.queries.grid) else self.keys.grid)


def attention_maps(model: nn.Module, images_BCHW: Tensor) -> list[AttentionMap]:
    """One map for every layer with softmax attention, in the order in which they run; none for a CNN."""
    with recorded_attention(model) as calls:
        model(images_BCHW)
    return [laid_out(call, images_BCHW.shape) for call in calls]


def looks(attention: AttentionMap) -> Tensor:
    """(B, M, H, W): what the class token of this layer looks at; without one, what all cells look at on average.

    Attention to other tokens than cells is left out, so a map may sum to less than 1.
    """
    rows = slice(0, 1) if attention.queries.front else attention.queries.cells
    return attention.weights_BMQK[:, :, rows, attention.keys.cells].mean(2).unflatten(2, attention.keys.grid)


def head_token_looks(attention: AttentionMap) -> Tensor:
    """(B, T, M, H, W): what each of DHVT's head tokens T looks at, by each head M."""
    if not attention.queries.behind:
        raise UsageError(f"layer {attention.layer} has no head tokens: they are a part of DHVT")
    rows_BMTN = attention.weights_BMQK[:, :, attention.queries.cells.stop :, attention.keys.cells]
    return rows_BMTN.transpose(1, 2).unflatten(3, attention.keys.grid)


# ---- rollout -----------------------------------------------------------------------------------------


def rollout(maps: Sequence[AttentionMap]) -> list[Tensor]:
    """(B, Q, N) for every layer: how much of each of the first layer's tokens a query holds, if attention were all.

    Heads are averaged, the identity is added for the residual connection, rows are normalised, layers are multiplied
    (Abnar and Zuidema, 2020). Reduced keys count as the cells that they cover, a coarser stage as the mean of the
    cells below it. A class token that enters later holds nothing of the image until it has attended.
    """
    joints: list[Tensor] = []
    for place, layer in enumerate(maps):
        mixing_BQQ = among_its_tokens(layer).mean(1)
        mixing_BQQ = mixing_BQQ + torch.eye(mixing_BQQ.shape[-1], device=mixing_BQQ.device)
        mixing_BQQ = mixing_BQQ / mixing_BQQ.sum(-1, keepdim=True)
        if joints:
            mixing_BQQ = mixing_BQQ @ (regrid(layer.tokens, maps[place - 1].tokens).to(mixing_BQQ) @ joints[-1])
        joints.append(mixing_BQQ)
    return joints


def rollout_looks(maps: Sequence[AttentionMap]) -> list[Tensor]:
    """(B, H, W) for every layer on the first layer's grid: the row of the class token, or the mean of the cells."""
    if not maps:
        return []
    first = maps[0].tokens
    looks_LBHW = []
    for layer, joint_BQN in zip(maps, rollout(maps), strict=True):
        rows = slice(0, 1) if layer.queries.front else layer.queries.cells
        looks_LBHW.append(joint_BQN[:, rows, first.cells].mean(1).unflatten(1, first.grid))
    return looks_LBHW


def scaled(looks_LBHW: Sequence[Tensor], common: bool = False) -> list[Tensor]:
    """Masks from 0 to 1 for drawing: divided by the maximum of the image in this layer, or in all layers."""
    largest = [layer.amax((-2, -1), keepdim=True) for layer in looks_LBHW]
    if common:
        largest = [torch.stack(largest).amax(0)] * len(largest)
    return [layer / most.clamp_min(1e-12) for layer, most in zip(looks_LBHW, largest, strict=True)]


def on_image(mask_BHW: Tensor, size: Grid) -> Tensor:
    """A mask as large as the image, bilinear."""
    return F.interpolate(mask_BHW[:, None], size, mode="bilinear", align_corners=False)[:, 0]


# ---- one set of tokens in terms of another -----------------------------------------------------------


def among_its_tokens(attention: AttentionMap) -> Tensor:
    """(B, M, N, N) over the class token and the cells of the queries: whatever else there is, stands for them.

    A reduced key stands for the cells that it covers. A head token is made of all tokens alike, and what it saw is
    added to the class token. Cells that do not ask stay what they are.
    """
    queries, keys = attention.queries, attention.keys
    own = queries.front + math.prod(queries.grid)
    weights_BMQK = attention.weights_BMQK
    if own == queries.front:
        asked = weights_BMQK @ regrid(keys, attention.tokens).to(weights_BMQK)
        stay_NN = torch.eye(asked.shape[-1]).to(asked)[own:]
        return torch.cat([asked, stay_NN.expand(*asked.shape[:2], *stay_NN.shape)], dim=2)
    if keys.behind:
        seen, heads = weights_BMQK.split((weights_BMQK.shape[-1] - keys.behind, keys.behind), dim=-1)
        weights_BMQK = seen + heads.sum(-1, keepdim=True) / seen.shape[-1]
    if queries.behind:
        rows, heads = weights_BMQK[:, :, :own], weights_BMQK[:, :, own:]
        to_class = (rows[:, :, : queries.front] + heads.mean(2, keepdim=True)) / 2
        weights_BMQK = torch.cat([to_class, rows[:, :, queries.front :]], dim=2)
    spread = keys._replace(behind=0), queries._replace(behind=0)
    return weights_BMQK if spread[0] == spread[1] else weights_BMQK @ regrid(*spread).to(weights_BMQK)


def regrid(of: Tokens, into: Tokens) -> Tensor:
    """(tokens of `of`, tokens of `into`): the shares by which each token of the one lies on those of the other.

    Cells lie by area over the unit square. A token in front is its own counterpart; one without has a row of zeros.
    """
    table = torch.zeros(of.front + math.prod(of.grid), into.front + math.prod(into.grid))
    for place in range(min(of.front, into.front)):
        table[place, place] = 1.0
    rows, columns = (_overlap(of.grid[axis], into.grid[axis], of.covered[axis]) for axis in (0, 1))
    table[of.front :, into.front :] = torch.kron(rows, columns)
    return table


def _overlap(of: int, into: int, covered: float = 1.0) -> Tensor:
    """(of, into): the share of each of `of` equal parts of the covered line that lies in each of `into` parts of the whole."""
    wide = covered / max(of, 1)
    starts, edges = torch.arange(of)[:, None] * wide, torch.arange(into)[None] / into
    shared = torch.minimum(starts + wide, edges + 1 / into) - torch.maximum(starts, edges)
    shared = shared.clamp_min(0.0) / wide
    return torch.where(shared < 1e-5, 0.0, shared)


# ---- from a call to a map of the image ---------------------------------------------------------------


def laid_out(call: AttentionCall, images: torch.Size) -> AttentionMap:
    """The attention of a call over the cells of images of this shape (B, C, H, W)."""
    size, high = (images[-2], images[-1]), images[-2] / images[-1]
    block = next((frame for frame in reversed(call.frames) if isinstance(frame.module, SwinTransformerBlock)), None)
    if block is not None:
        grid = (block.shapes[0][1], block.shapes[0][2])
        weights = _from_windows(call.weights_BMQK, grid, block.module.window_size, block.module.shift_size)
        return AttentionMap(call.layer, weights, Tokens(0, grid), Tokens(0, grid), high)
    if call.weights_BMQK.ndim != 4 or len(call.weights_BMQK) != images[0]:
        raise UsageError(f"layer {call.layer} attends within groups of cells that cannot be put back: only Swin's can")
    caller = call.frames[-1].module
    if isinstance(caller, XCA):
        raise UsageError(f"layer {call.layer} attends among channels, not among cells")
    behind = caller.num_heads if isinstance(caller, HeadInteractedAttention) else 0
    queries, keys = (count - behind for count in call.weights_BMQK.shape[-2:])
    if queries < keys and queries <= MOST_FRONT:
        grid = _grid_of(call, keys, size)
        asked = Tokens(keys - math.prod(grid), grid)
        return AttentionMap(call.layer, call.weights_BMQK, Tokens(queries, (0, 0)), asked, high)
    grid = _grid_of(call, queries, size)
    front = queries - math.prod(grid)
    key_grid = grid if keys == queries else _shaped_like(keys - front, grid)
    reduced = Tokens(front, key_grid, behind, _covered(caller, key_grid, grid))
    return AttentionMap(call.layer, call.weights_BMQK, Tokens(front, grid, behind), reduced, high)


def _covered(caller: nn.Module, key_grid: Grid, grid: Grid) -> tuple[float, float]:
    """PVT reduces keys by a convolution without padding: what its stride does not reach, no key stands for."""
    reduction = getattr(caller, "sr", None)
    if key_grid == grid or not isinstance(reduction, nn.Conv2d):
        return 1.0, 1.0
    rows, columns = (min(1.0, key_grid[axis] * reduction.stride[axis] / grid[axis]) for axis in (0, 1))
    return rows, columns


def _grid_of(call: AttentionCall, tokens: int, size: Grid) -> Grid:
    """The cells of the queries: as a module on the way says (as an argument or as an attribute), else by count."""
    said = [grid for frame in reversed(call.frames) for grid in frame.others if _is_grid(grid)]
    root = call.frames[0].module
    embed = vars(root).get("_modules", {}).get("patch_embed")
    said += [getattr(embed, "grid_size", None), *getattr(embed, "grids", [])]
    most = int(getattr(root, "num_prefix_tokens", 1)) + 1  # a distillation token beside the class token
    fitting = [grid for grid in said if _is_grid(grid) and 0 <= tokens - math.prod(grid) <= most]
    if fitting:
        rows, columns = min(fitting, key=lambda grid: tokens - math.prod(grid))
        return int(rows), int(columns)
    for front in dict.fromkeys((0, most - 1, 1, 2)):
        if tokens > front and _distortion(grid := _shaped_like(tokens - front, size), size) < 0.1:
            return grid
    raise UsageError(f"{tokens} tokens of layer {call.layer} are no grid over an image of {size[0]}x{size[1]} px")


def _is_grid(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(side, int) for side in value)


def _shaped_like(count: int, grid: Grid) -> Grid:
    """So many cells in the shape that comes nearest to a grid's."""
    shapes = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
    return min(shapes, key=lambda shape: _distortion(shape, grid))


def _distortion(grid: Grid, other: Grid) -> float:
    return abs(math.log(grid[0] * other[1] / (grid[1] * other[0])))


def _from_windows(weights_BMAA: Tensor, grid: Grid, window: Grid, shift: Grid) -> Tensor:
    """(B, M, N, N) from windows of A cells each, put back where Swin's block cut them out of its shifted grid.

    Cells that only fill up the last windows are left out, and rows sum to 1 without them.
    """
    count = math.prod(grid)
    cells = torch.arange(count).view(grid).roll((-shift[0], -shift[1]), (0, 1))
    short = (-grid[0] % window[0], -grid[1] % window[1])
    cells = F.pad(cells, (0, short[1], 0, short[0]), value=count)  # `count`: a row and a column for what fills up
    cells_WA = cells.unfold(0, window[0], window[0]).unfold(1, window[1], window[1]).flatten(2).flatten(0, 1)
    weights_BMWAA = weights_BMAA.unflatten(0, (-1, len(cells_WA))).transpose(1, 2)
    whole = weights_BMAA.new_zeros(*weights_BMWAA.shape[:2], count + 1, count + 1)
    whole[:, :, cells_WA[:, :, None], cells_WA[:, None, :]] = weights_BMWAA
    whole = whole[:, :, :count, :count]
    return whole / whole.sum(-1, keepdim=True) if any(short) else whole
