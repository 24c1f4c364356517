"""RandAugment and TrivialAugment: which operations happen to a sample, and how strongly.

The operations, their ranges and their probabilities are those of timm's `rand-m9-mstd0.5-inc1`: every layer
draws one of fifteen operations, which then happens with probability 0.5, at a level around 9 of 10. Geometric
operations are bilinear (timm draws bilinear or bicubic) and leave the mean colour where the image ends.

In each layer the samples are sorted by operation, so that an operation is one call on a slice of the batch.
L layers, B samples, n of them with the same kind of operation; C channels, H by W pixels, V = 256 values,
K = 15 operations and nothing at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from smallvit.data import operations as op
from smallvit.data.draws import normal
from smallvit.data.geometry import few_at_a_time, to_bytes, warp

HIGHEST = 10.0  # levels run from 0 to 10
# Sorted by how they are computed: a table that is known beforehand, a table, a mixture of two images, a map.
OPERATIONS = (
    *("Invert", "Posterize", "Solarize", "SolarizeAdd"),
    *("Brightness", "AutoContrast", "Equalize", "Contrast"),
    *("Color", "Sharpness"),
    *("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"),
)
NOTHING = len(OPERATIONS)


class Drawn(NamedTuple):
    """For each layer and sample an operation (or NOTHING), its level in 0..10, and the level with a random sign."""

    kind_LB: Tensor
    level_LB: Tensor
    signed_LB: Tensor


class Arguments(NamedTuple):
    """What each kind of operation takes, for all samples: those that drew another kind ignore it."""

    table_B: Tensor  # which of the tables that are known beforehand
    factor_B: Tensor  # how much of the image to mix with its plain version
    grid_B23: Tensor


class Policy(NamedTuple):
    """`layers` operations one after the other; a magnitude of None draws levels uniformly (TrivialAugment)."""

    layers: int
    probability: float
    magnitude: float | None
    std: float = 0.0

    def __call__(self, pixels_BCHW: Tensor, draws_KB: Tensor, fill_C: Tensor) -> Tensor:
        """The uint8 images after all layers, as new images; `fill_C` is the colour beyond them."""
        drawn = self.draw(draws_KB)
        order_LB = drawn.kind_LB.argsort(stable=True, dim=1)
        drawn = Drawn(*(part_LB.gather(1, order_LB) for part_LB in drawn))
        arguments_LB = arguments(drawn, *pixels_BCHW.shape[-2:])
        where_LB = order_LB.argsort(dim=1)  # the place to which each sample was sorted
        from_B = order_LB[0]
        for layer, ends in enumerate(ends_of(drawn.kind_LB)):
            pixels_BCHW = pixels_BCHW.index_select(0, from_B)
            apply(pixels_BCHW, ends, Arguments(*(part_LB[layer] for part_LB in arguments_LB)), fill_C)
            from_B = where_LB[layer] if layer + 1 == self.layers else where_LB[layer][order_LB[layer + 1]]
        return pixels_BCHW.index_select(0, from_B)

    def draw(self, draws_KB: Tensor) -> Drawn:
        """Takes 3 draws for each layer."""
        which_LB, level_LB, sign_LB = draws_KB[: 3 * self.layers].view(3, self.layers, -1)
        # Whether an operation happens is part of the draw that chooses it: beyond the last one lies nothing.
        kind_LB = (which_LB * (NOTHING / self.probability)).long().clamp_(max=NOTHING)
        if self.magnitude is None:
            level_LB = level_LB * HIGHEST
        else:
            level_LB = normal(level_LB, self.magnitude, self.std).clamp_(0, HIGHEST)
        return Drawn(kind_LB, level_LB, torch.copysign(level_LB, sign_LB - 0.5))


def ends_of(kind_LB: Tensor) -> list[list[int]]:
    """Where each operation's samples end, in every layer of sorted ones. Waits for the device, once per batch."""
    edges_LK = _edges(len(kind_LB), kind_LB.device)
    ends: list[list[int]] = torch.searchsorted(kind_LB, edges_LK, right=True).tolist()
    return ends


@cache
def _edges(layers: int, device: torch.device) -> Tensor:
    return torch.arange(NOTHING, device=device).repeat(layers, 1)


def arguments(drawn: Drawn, height: int, width: int) -> Arguments:
    """From levels to arguments, with timm's ranges."""
    slopes_K9, turning_26 = _ranges(height, width, drawn.kind_LB.device)
    level_LB, signed_LB1 = drawn.level_LB, drawn.signed_LB[..., None]
    first_LB1, steps_LB1, angle_LB1, moves_LB6 = slopes_K9[drawn.kind_LB].split([1, 1, 1, 6], -1)
    table_LB = torch.addcmul(first_LB1[..., 0], level_LB, steps_LB1[..., 0]).long()
    factor_LB = torch.add(1, drawn.signed_LB, alpha=0.9 / HIGHEST).clamp_(min=0.1)
    angle_LB1 = signed_LB1 * angle_LB1
    grid_LB6 = angle_LB1.cos() * turning_26[0]
    grid_LB6.addcmul_(angle_LB1.sin(), turning_26[1]).addcmul_(signed_LB1, moves_LB6)
    return Arguments(table_LB, factor_LB, grid_LB6.unflatten(-1, (2, 3)))


@cache
def _ranges(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What a level of 1 does to the arguments of each operation (K, 9), and what cosine and sine do to a map (2, 6).

    The nine are the operation's first table, the steps to further ones, the angle, and six for the map. Maps are in
    the units of `warp`; those of angle 0 leave everything in place. Shears hold on to the top left corner, as in timm.
    """
    x, y = 2 / width, 2 / height
    first = {"Posterize": 1, "Solarize": 6, "SolarizeAdd": 263}
    steps = {"Posterize": 4, "Solarize": 256, "SolarizeAdd": 110}
    angle = {"Rotate": math.radians(30)}
    moves = {
        "ShearX": (0, 0.3 * x, 0, 0, 0, 0),
        "ShearY": (0, 0, 0, 0.3 * y, 0, 0),
        "TranslateX": (0, 0, 0.45 * 2, 0, 0, 0),
        "TranslateY": (0, 0, 0, 0, 0, 0.45 * 2),
    }
    slopes_K9 = torch.tensor(
        [
            [first.get(name, 0), steps.get(name, 0), angle.get(name, 0), *moves.get(name, (0,) * 6)]
            for name in (*OPERATIONS, "nothing")
        ]
    )
    slopes_K9[:, 1:] /= HIGHEST
    turning_26 = torch.tensor([(x, 0, -1, 0, y, -1), (0, -x, height / width, y, 0, -width / height)])
    return slopes_K9.to(device), turning_26.to(device)


@cache
def _known_tables(device: torch.device) -> Tensor:
    """Invert, then Posterize, Solarize and SolarizeAdd, each from its weakest to its strongest table: (373, 1, V)."""
    # timm's strongest Posterize keeps no bit: a black image, which teaches nothing (and Pillow refuses it).
    bits = torch.tensor([4.0, 3, 2, 1, 1])
    threshold, amount = torch.arange(256.0, -1, -1), torch.arange(111.0)
    tables = (op.solarized(torch.zeros(1)), op.posterized(bits), op.solarized(threshold), op.lifted(amount))
    return torch.cat(tables).to(device)


def apply(pixels_BCHW: Tensor, ends: list[int], args: Arguments, fill_C: Tensor) -> None:
    """One layer, in place, on samples sorted by operation. Color does nothing where there is no colour."""
    part = {name: slice(*bounds) for name, bounds in zip(OPERATIONS, pairwise([0, *ends]), strict=True)}
    tables = slice(0, part["Contrast"].stop)
    maps = slice(part["Rotate"].start, part["TranslateY"].stop)
    if tables.stop:
        listed_nCHW, table_nCV = pixels_BCHW[tables], make_tables(pixels_BCHW, part, args)
        for few in few_at_a_time(listed_nCHW):
            listed_nCHW[few] = op.lookup(listed_nCHW[few], table_nCV[few])
    for name, operate in (("Color", op.saturated), ("Sharpness", op.sharpened)):
        here = part[name]
        if here.stop > here.start and (name != "Color" or pixels_BCHW.shape[1] == 3):
            pixels_BCHW[here] = operate(pixels_BCHW[here], args.factor_B[here])
    mapped_nCHW, grid_n23 = pixels_BCHW[maps], args.grid_B23[maps]
    for few in few_at_a_time(mapped_nCHW):
        mapped_nCHW[few] = to_bytes(warp(mapped_nCHW[few], grid_n23[few], fill_C))


def make_tables(pixels_BCHW: Tensor, part: dict[str, slice], args: Arguments) -> Tensor:
    """(n, C, V) for the first n samples, those whose operations are tables."""
    known = slice(0, part["SolarizeAdd"].stop)
    tables = []
    if known.stop:
        tables.append(_known_tables(pixels_BCHW.device).index_select(0, args.table_B[known]))
    for name, make in _TABLES.items():
        here = part[name]
        if here.stop > here.start:
            tables.append(make(pixels_BCHW[here], args.factor_B[here]))
    return torch.cat([table_nCV.expand(-1, pixels_BCHW.shape[1], -1) for table_nCV in tables])


_TABLES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Brightness": lambda pixels_nCHW, factor_n: op.brightened(factor_n),
    "AutoContrast": lambda pixels_nCHW, factor_n: op.stretched(pixels_nCHW),
    "Equalize": lambda pixels_nCHW, factor_n: op.equalized(pixels_nCHW),
    "Contrast": op.contrasted,
}
