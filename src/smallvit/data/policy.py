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
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from smallvit.data import operations as op
from smallvit.data.draws import normal_from
from smallvit.data.geometry import about_centre, to_bytes, turned, warp
from smallvit.randomness import key_of, uniform

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
    """For each layer and sample an operation (or NOTHING), its level in 0..10, and +1 or -1."""

    kind_LB: Tensor
    level_LB: Tensor
    sign_LB: Tensor


class Arguments(NamedTuple):
    """What each kind of operation takes, for all samples: those that drew another kind ignore it."""

    table_B: Tensor  # which of the tables that are known beforehand
    factor_B: Tensor  # how much of the image to mix with its plain version
    matrix_B23: Tensor


class Policy(NamedTuple):
    """`layers` operations one after the other; a magnitude of None draws levels uniformly (TrivialAugment)."""

    layers: int
    probability: float
    magnitude: float | None
    std: float
    fill_C: Tensor

    def __call__(self, pixels_BCHW: Tensor, key: int, positions_B: Tensor) -> Tensor:
        """The uint8 images after all layers, as new images."""
        drawn = self.draw(key, positions_B)
        order_LB = drawn.kind_LB.argsort(stable=True, dim=1)
        drawn = Drawn(*(part_LB.gather(1, order_LB) for part_LB in drawn))
        arguments_LB = arguments(drawn, *pixels_BCHW.shape[-2:])
        where_LB = order_LB.argsort(dim=1)  # the place to which each sample was sorted
        from_B = order_LB[0]
        for layer, ends in enumerate(ends_of(drawn.kind_LB)):
            pixels_BCHW = pixels_BCHW.index_select(0, from_B)
            apply(pixels_BCHW, ends, Arguments(*(part_LB[layer] for part_LB in arguments_LB)), self.fill_C)
            from_B = where_LB[layer] if layer + 1 == self.layers else where_LB[layer][order_LB[layer + 1]]
        return pixels_BCHW.index_select(0, from_B)

    def draw(self, key: int, positions_B: Tensor) -> Drawn:
        draws_BLK = uniform(key_of(key, "policy"), positions_B, 4 * self.layers).view(-1, self.layers, 4)
        which_LB, happens_LB, level_LB, sign_LB = draws_BLK.permute(2, 1, 0)
        kind_LB = (which_LB * NOTHING).long().masked_fill_(happens_LB >= self.probability, NOTHING)
        if self.magnitude is None:
            level_LB = level_LB * HIGHEST
        else:
            level_LB = (self.magnitude + self.std * normal_from(level_LB)).clamp_(0, HIGHEST)
        return Drawn(kind_LB, level_LB, torch.where(sign_LB < 0.5, 1.0, -1.0))


def ends_of(kind_LB: Tensor) -> list[list[int]]:
    """Where each operation's samples end, in every layer of sorted ones. Waits for the device, once per batch."""
    edges_LK = torch.arange(NOTHING, device=kind_LB.device).repeat(len(kind_LB), 1)
    ends: list[list[int]] = torch.searchsorted(kind_LB, edges_LK, right=True).tolist()
    return ends


def arguments(drawn: Drawn, height: int, width: int) -> Arguments:
    """From levels to arguments, with timm's ranges. Shears hold on to the top left corner, as they do there."""
    first_K, steps_K, angle_K, slopes_K6 = _ranges(height, width, drawn.kind_LB.device)
    share_LB = drawn.level_LB / HIGHEST
    signed_LB = share_LB * drawn.sign_LB
    table_LB = first_K[drawn.kind_LB] + (share_LB * steps_K[drawn.kind_LB]).long()
    factor_LB = (1 + 0.9 * signed_LB).clamp_(min=0.1)
    matrix_LB23 = about_centre(turned(signed_LB * angle_K[drawn.kind_LB]), height, width)
    moved_LB23 = signed_LB[..., None, None] * slopes_K6[drawn.kind_LB].unflatten(-1, (2, 3))
    return Arguments(table_LB, factor_LB, matrix_LB23 + moved_LB23)


@cache
def _ranges(height: int, width: int, device: torch.device) -> tuple[Tensor, ...]:
    """Per operation: its first table and how many more there are; the largest angle; the largest change of a map."""
    tables = {"Invert": (0, 0), "Posterize": (1, 4), "Solarize": (6, 256), "SolarizeAdd": (263, 110)}
    slopes = {
        "ShearX": (0, 0.3, 0, 0, 0, 0),
        "ShearY": (0, 0, 0, 0.3, 0, 0),
        "TranslateX": (0, 0, 0.45 * width, 0, 0, 0),
        "TranslateY": (0, 0, 0, 0, 0, 0.45 * height),
    }
    names = (*OPERATIONS, "nothing")
    columns = (
        [tables.get(name, (0, 0))[0] for name in names],
        [tables.get(name, (0, 0))[1] for name in names],
        [math.radians(30.0 * (name == "Rotate")) for name in names],
        [slopes.get(name, (0.0,) * 6) for name in names],
    )
    return tuple(torch.tensor(column, device=device) for column in columns)


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
    C = pixels_BCHW.shape[1]
    starts = [0, *ends]
    part = {name: slice(start, end) for name, start, end in zip(OPERATIONS, starts, ends, strict=False)}
    known, tables = slice(0, part["SolarizeAdd"].stop), slice(0, part["Contrast"].stop)
    contrasts, greyed = part["Contrast"], slice(part["Contrast"].start, part["Color"].stop)
    maps = slice(part["Rotate"].start, part["TranslateY"].stop)
    grey_nHW = op.luma(pixels_BCHW[greyed])
    if tables.stop:
        made = (
            _known_tables(pixels_BCHW.device).index_select(0, args.table_B[known]),
            op.brightened(args.factor_B[part["Brightness"]]),
            op.stretched(pixels_BCHW[part["AutoContrast"]]),
            op.equalized(pixels_BCHW[part["Equalize"]]),
            op.contrasted(grey_nHW[: contrasts.stop - contrasts.start], args.factor_B[contrasts]),
        )
        table_nCV = torch.cat([table_nCV.expand(-1, C, -1) for table_nCV in made])
        pixels_BCHW[tables] = op.lookup(pixels_BCHW[tables], table_nCV)
    if (color := part["Color"]).stop > color.start and C == 3:
        grey_nHW = grey_nHW[contrasts.stop - contrasts.start :]
        pixels_BCHW[color] = op.saturated(pixels_BCHW[color], grey_nHW, args.factor_B[color])
    if (sharp := part["Sharpness"]).stop > sharp.start:
        pixels_BCHW[sharp] = op.sharpened(pixels_BCHW[sharp], args.factor_B[sharp])
    if maps.stop > maps.start:
        pixels_BCHW[maps] = to_bytes(warp(pixels_BCHW[maps], args.matrix_B23[maps], fill_C))
