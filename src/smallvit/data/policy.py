"""RandAugment and TrivialAugment: which operations happen to a sample, and how strongly.

The operations, their ranges and their probabilities are those of timm's `rand-m9-mstd0.5-inc1`: every layer
draws one of fifteen operations, which then happens with probability 0.5, at a level around 9 of 10. Geometric
operations are bilinear (timm draws bilinear or bicubic) and leave the mean colour where the image ends.

In each layer the samples are sorted by operation, so that an operation is one call on a slice of the batch.
L layers, B samples, n of them with the same kind of operation; C channels, H by W pixels, V = 256 values.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from smallvit.data import operations as op
from smallvit.data.draws import normal_from
from smallvit.data.geometry import rotation, to_bytes, warp
from smallvit.randomness import key_of, uniform

HIGHEST = 10.0  # levels run from 0 to 10
FIXED = ("Invert", "Posterize", "Solarize", "SolarizeAdd")  # their tables do not depend on the image
MAPS = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
OPERATIONS = ("AutoContrast", "Equalize", "Contrast", "Brightness", *FIXED, "Color", "Sharpness", *MAPS)
NOTHING = len(OPERATIONS)
_FIRST_FIXED, _FIRST_MAP = OPERATIONS.index(FIXED[0]), OPERATIONS.index(MAPS[0])


class Layer(NamedTuple):
    """What happens to B samples: an operation (or NOTHING), its level in 0..10, and +1 or -1. L B before sorting."""

    kind: Tensor
    level: Tensor
    sign: Tensor


class Policy(NamedTuple):
    """`layers` operations one after the other; a magnitude of None draws levels uniformly (TrivialAugment)."""

    layers: int
    probability: float
    magnitude: float | None
    std: float
    fill_C: Tensor

    def __call__(self, pixels_BCHW: Tensor, key: int, positions_B: Tensor) -> Tensor:
        """The uint8 images after all layers."""
        drawn = self.draw(key, positions_B)
        order_LB = drawn.kind.argsort(stable=True, dim=1)
        place_LB = order_LB.argsort(dim=1)  # where each sample went
        sorted_LB = Layer(*(part.gather(1, order_LB) for part in drawn))
        edges = torch.arange(NOTHING + 1, device=positions_B.device).expand(self.layers, -1).contiguous()
        ends = torch.searchsorted(sorted_LB.kind, edges, right=True).tolist()  # the only wait for the device
        move_B = order_LB[0]
        for index in range(self.layers):
            pixels_BCHW = pixels_BCHW.index_select(0, move_B)
            apply(pixels_BCHW, Layer(*(part[index] for part in sorted_LB)), ends[index], self.fill_C)
            move_B = place_LB[index]
            if index + 1 < self.layers:
                move_B = move_B[order_LB[index + 1]]
        return pixels_BCHW.index_select(0, move_B)

    def draw(self, key: int, positions_B: Tensor) -> Layer:
        draws_BLK = uniform(key_of(key, "policy"), positions_B, 4 * self.layers).view(-1, self.layers, 4)
        which_LB, happens_LB, level_LB, sign_LB = draws_BLK.permute(2, 1, 0)
        kind_LB = (which_LB * NOTHING).long().masked_fill_(happens_LB >= self.probability, NOTHING)
        if self.magnitude is None:
            level_LB = level_LB * HIGHEST
        else:
            level_LB = (self.magnitude + self.std * normal_from(level_LB)).clamp_(0, HIGHEST)
        return Layer(kind_LB, level_LB, torch.sign(0.5 - sign_LB - 2**-25))


def apply(pixels_BCHW: Tensor, layer: Layer, ends: list[int], fill_C: Tensor) -> None:
    """One layer, in place, on samples sorted by operation: `ends` says where each operation's samples end.

    Color needs red, green and blue, and does nothing without them.
    """
    H, W = pixels_BCHW.shape[-2:]
    bounds = dict(zip(OPERATIONS, zip([0, *ends], ends), strict=False))  # start and end
    factor_B = (1 + layer.sign * layer.level * (0.9 / HIGHEST)).clamp(min=0.1)
    tables_end = bounds[FIXED[-1]][1]
    if tables_end:
        tables_nCV = make_tables(pixels_BCHW, layer, factor_B, bounds)
        pixels_BCHW[:tables_end] = op.lookup(pixels_BCHW[:tables_end], tables_nCV)
    for name, blended in (("Color", op.saturated), ("Sharpness", op.sharpened)):
        start, end = bounds[name]
        if start < end and (name != "Color" or pixels_BCHW.shape[1] == 3):
            pixels_BCHW[start:end] = blended(pixels_BCHW[start:end], factor_B[start:end])
    start, end = bounds[MAPS[0]][0], bounds[MAPS[-1]][1]
    if start < end:
        matrix_n23 = make_maps(layer.kind[start:end], (layer.level * layer.sign)[start:end], H, W)
        pixels_BCHW[start:end] = to_bytes(warp(pixels_BCHW[start:end], matrix_n23, fill_C))


def make_tables(
    pixels_BCHW: Tensor, layer: Layer, factor_B: Tensor, bounds: dict[str, tuple[int, int]]
) -> Tensor:
    """(n, C, V): one table for each of the first n samples, whose operations are tables."""
    parts = {name: slice(*bounds[name]) for name in OPERATIONS[:_FIRST_FIXED]}
    fixed = slice(bounds[FIXED[0]][0], bounds[FIXED[-1]][1])
    tables = [
        op.stretched(pixels_BCHW[parts["AutoContrast"]]),
        op.equalized(pixels_BCHW[parts["Equalize"]]),
        op.contrasted(pixels_BCHW[parts["Contrast"]], factor_B[parts["Contrast"]]),
        op.brightened(factor_B[parts["Brightness"]]),
        fixed_tables(layer.kind[fixed], layer.level[fixed]),
    ]
    return torch.cat([table.expand(-1, pixels_BCHW.shape[1], -1) for table in tables])


def fixed_tables(kind_n: Tensor, level_n: Tensor) -> Tensor:
    """(n, 1, V) for the operations of which there are only so many tables: a level picks one."""
    steps_K = torch.tensor([0, 4, 256, 110], device=kind_n.device)
    first_K = torch.tensor([0, 1, 6, 263], device=kind_n.device)
    kind_n = kind_n - _FIRST_FIXED
    table_n = first_K[kind_n] + (level_n / HIGHEST * steps_K[kind_n]).long()
    return _all_fixed_tables(kind_n.device).index_select(0, table_n)


@cache
def _all_fixed_tables(device: torch.device) -> Tensor:
    """Invert, then Posterize, Solarize and SolarizeAdd from their weakest to their strongest."""
    # timm's strongest Posterize keeps no bit: a black image, which teaches nothing (and Pillow refuses it).
    bits = torch.tensor([4.0, 3, 2, 1, 1])
    threshold, amount = torch.arange(256.0, -1, -1), torch.arange(111.0)
    tables = (op.solarized(torch.zeros(1)), op.posterized(bits), op.solarized(threshold), op.lifted(amount))
    return torch.cat(tables).to(device)


def make_maps(kind_n: Tensor, amount_n: Tensor, height: int, width: int) -> Tensor:
    """(n, 2, 3) for geometric operations. Shears hold on to the top left corner, as in timm."""
    share_n = amount_n / HIGHEST
    kind_n = kind_n - _FIRST_MAP
    slopes = torch.zeros(len(MAPS), 2, 3, device=kind_n.device)
    slopes[1, 0, 1] = slopes[2, 1, 0] = 0.3
    slopes[3, 0, 2], slopes[4, 1, 2] = 0.45 * width, 0.45 * height
    turned_n23 = rotation(30 * share_n * (kind_n == 0), height, width)
    return turned_n23 + share_n[:, None, None] * slopes[kind_n]
