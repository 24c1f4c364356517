"""Where pixels come from: crops, resizing and affine maps of whole batches.

A crop that does not scale is one gather. One that scales mixes a few neighbouring rows into each new row, and
then columns likewise. Any other map is an affine matrix and one bilinear lookup.

B images, C channels, H by W pixels before, h by w after, P of them in all; N new pixels along a side, T
neighbours that go into each of them. A 2 in front is the two axes, down and across.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_IN_CACHE = 400_000  # values

# ---- boxes -------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """A box inside each image, in whole pixels (kept as floats)."""

    top_B: Tensor
    left_B: Tensor
    height_B: Tensor
    width_B: Tensor


def draw_window(
    draws_4B: Tensor, share: tuple[float, float], ratio: tuple[float, float], height: int, width: int
) -> Window:
    """A box inside the image: area share uniform, aspect log-uniform, place uniform.

    Sides longer than the image are cut to it. torchvision draws again instead, up to ten times, which a batch
    cannot do at once; it matters only for shares near 1, which here come out a little smaller.
    """
    share_B, aspect_B = draws_4B[:2]
    most_21 = _sides(height, width, draws_4B.device)
    area_B = share_B * ((share[1] - share[0]) * height * width) + share[0] * height * width
    log_low, log_high = math.log(ratio[0]) / 2, math.log(ratio[1]) / 2
    root_B = (aspect_B * (log_high - log_low) + log_low).exp_()
    side_B = area_B.sqrt_()
    sides_2B = torch.stack([side_B / root_B, side_B * root_B]).round_().clamp_(min=1).minimum(most_21)
    start_2B = ((most_21 + 1 - sides_2B) * draws_4B[2:]).floor_()
    return Window(*start_2B.unbind(), *sides_2B.unbind())


@cache
def _sides(height: int, width: int, device: torch.device) -> Tensor:
    return torch.tensor([[float(height)], [float(width)]], device=device)


def inside(start_B: Tensor, length_B: Tensor, side: int) -> Tensor:
    """(B, side): which pixels lie in [start, start + length)."""
    offset_BS = torch.arange(side, device=start_B.device) - start_B[:, None]
    return (offset_BS >= 0) & (offset_BS < length_B[:, None])


def both(rows_BH: Tensor, columns_BW: Tensor) -> Tensor:
    """(B, H, W): 1 where row and column are true, else 0, as bytes: torch multiplies many of them at a time."""
    return rows_BH.view(torch.uint8)[:, :, None] * columns_BW.view(torch.uint8)[:, None, :]


def centre(images_BCHW: Tensor, size: int) -> tuple[int, int]:
    """Top and left of the square of `size` pixels in the middle."""
    height, width = images_BCHW.shape[-2:]
    if size > min(height, width):
        raise ValueError(
            f"a view of {size} pixels does not fit in images of {height} x {width}: "
            f'ask for at most {min(height, width)}, or use crop = "resized"'
        )
    return (height - size) // 2, (width - size) // 2


# ---- crops -------------------------------------------------------------------------------------------


def cut(images_BCHW: Tensor, top_B: Tensor, left_B: Tensor, size: int, flip_B: Tensor | None = None) -> Tensor:
    """A square of `size` pixels from each image, copied; beyond the image lies black."""
    B, C, H, W = images_BCHW.shape
    places_h = torch.arange(size, device=images_BCHW.device)
    rows_Bh, columns_Bw = top_B.long()[:, None] + places_h, left_B.long()[:, None] + places_h
    if flip_B is not None:
        columns_Bw = torch.where(flip_B[:, None], columns_Bw.flip(1), columns_Bw)
    rows_in_Bh, columns_in_Bw = rows_Bh.clamp(0, H - 1), columns_Bw.clamp(0, W - 1)
    source_B1P = ((rows_in_Bh * W)[:, :, None] + columns_in_Bw[:, None, :]).view(B, 1, size * size)
    pixels_BCP = images_BCHW.reshape(B, C, H * W).gather(2, source_B1P.expand(B, C, size * size))
    inside_Bhw = both(rows_Bh == rows_in_Bh, columns_Bw == columns_in_Bw)
    return pixels_BCP.view(B, C, size, size).mul_(inside_Bhw[:, None])


def resample(
    images_BCHW: Tensor, window: Window, size: int, flip_B: Tensor | None = None, rounded: bool = False
) -> Tensor:
    """The window of each image at `size` by `size` pixels, as floats or `rounded` to uint8; `flip_B` mirrors it.

    The same as cutting the window out and resizing it with antialiased bilinear interpolation.
    """
    n = _few(images_BCHW)
    whole = len(images_BCHW) // n * n
    parts = (slice(0, whole), slice(whole, None)) if 0 < whole < len(images_BCHW) else (slice(None),)
    views = []
    for part in parts:
        window_part, flip_part = Window(*(side[part] for side in window)), None if flip_B is None else flip_B[part]
        views.append(_resample(images_BCHW[part], window_part, size, flip_part, rounded))
    return torch.cat(views) if len(views) > 1 else views[0]


def _resample(images_BCHW: Tensor, window: Window, size: int, flip_B: Tensor | None, rounded: bool) -> Tensor:
    """In groups of n images, if they are large."""
    B, C, H, W = images_BCHW.shape
    n = _few(images_BCHW)
    place_B11 = torch.arange(B, dtype=torch.int32, device=images_BCHW.device).view(B, 1, 1) % n
    rows, row_weights = _neighbours(window.top_B, window.height_B, size, H)
    columns, column_weights = _neighbours(window.left_B, window.width_B, size, W, flip_B)
    # An image's row is a row of a table that holds the n images one below the other, channel after channel...
    first_BC11 = (place_B11 * C)[..., None] + torch.arange(C, dtype=torch.int32, device=place_B11.device)[:, None, None]
    rows = (first_BC11 * H + rows[:, None]).view(B // n, n * C * size, rows.shape[2])
    row_weights = row_weights[:, None].expand(-1, C, -1, -1).reshape(rows.shape)
    # ... and its column, all channels of it, a row of a table that holds the first columns of all, then the second.
    columns, column_weights = (
        each.unflatten(0, (B // n, n)).transpose(1, 2).reshape(B // n, size * n, each.shape[2])
        for each in (columns * n + place_B11, column_weights)
    )
    dtype = torch.uint8 if rounded else torch.float32
    views = torch.empty((B // n, n * C * size, size), dtype=dtype, device=images_BCHW.device)
    for group, images in enumerate(images_BCHW.reshape(B // n, n * C * H, W)):
        mixed = _mix(images.float(), rows[group], row_weights[group])
        mixed = _mix(mixed.t().contiguous().view(W * n, C * size), columns[group], column_weights[group])
        mixed = mixed.view(size, n * C * size).t().contiguous()
        views[group] = mixed.add_(0.5).to(torch.int16) if rounded else mixed
    return views.view(B, C, size, size)


def _mix(table_RS: Tensor, rows_NT: Tensor, weights_NT: Tensor) -> Tensor:
    """(N, S): weighted sums of T rows of a table.

    Which is what a bag of embeddings is, and an order of magnitude quicker than a product with a matrix that is
    nearly all zeros.
    """
    return F.embedding_bag(rows_NT, table_RS, per_sample_weights=weights_NT, mode="sum")


def few_at_a_time(images_BCHW: Tensor) -> Iterator[slice]:
    """Parts of a batch so small that what one step passes to the next stays in the processor's cache."""
    few = _few(images_BCHW)
    return (slice(start, start + few) for start in range(0, len(images_BCHW), few))


def _few(images_BCHW: Tensor) -> int:
    B, C, H, W = images_BCHW.shape
    return max(1, min(B, _IN_CACHE // (C * H * W)) if images_BCHW.device.type == "cpu" else B)


def _neighbours(
    start_B: Tensor, length_B: Tensor, count: int, side: int, mirror_B: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Which of `side` pixels go into each of `count` new ones, (B, N, T), and with which weights.

    A triangle filter around each new pixel's centre, as wide as the step between centres but at least one
    pixel, cut off at the window's border and then scaled to sum 1.
    """
    device = start_B.device
    step_B1 = (length_B / count)[:, None]
    reach_B1 = step_B1.clamp(min=1)
    centres_BN = torch.arange(0.5, count, device=device) * step_B1
    if mirror_B is not None:
        centres_BN = torch.where(mirror_B[:, None], length_B[:, None] - centres_BN, centres_BN)
    taps_T = torch.arange(math.ceil(2 * max(1, side / count)), device=device)  # enough for the longest step
    pixels_BNT = (centres_BN - reach_B1 + 0.5).floor()[:, :, None] + taps_T
    distance_BNT = (pixels_BNT + 0.5 - centres_BN[:, :, None]).abs_().div_(reach_B1[:, :, None])
    last_B11 = length_B[:, None, None] - 1
    outside_BNT = (pixels_BNT < 0) | (pixels_BNT > last_B11)
    weights_BNT = (1 - distance_BNT).clamp_(min=0).masked_fill_(outside_BNT, 0)
    weights_BNT = weights_BNT.div_(weights_BNT.sum(2, keepdim=True))
    source_BNT = torch.minimum(pixels_BNT.clamp_(min=0), last_B11) + start_B[:, None, None]
    return source_BNT.to(torch.int32), weights_BNT


# ---- affine maps -------------------------------------------------------------------------------------


def warp(images_BCHW: Tensor, grid_B23: Tensor, fill_C: Tensor) -> Tensor:
    """Each image seen through its affine map, bilinear, as floats; what lies outside has the colour `fill_C`.

    The map takes places of the new image, in pixels from the top left corner, to places of the old one, which runs
    from -1 to 1. The border is hard, as Pillow's is: the last half pixel of an image is not mixed with the fill.
    """
    x_W, y_H1 = _places(*images_BCHW.shape[-2:], images_BCHW.device)
    by_x_B2, by_y_B2, start_B2 = grid_B23[..., None, None].unbind(2)
    # Not a matrix product: its last bits depend on the size of the batch, and with them the rounding of a few pixels.
    grid_B2HW = by_x_B2 * x_W + torch.addcmul(start_B2, by_y_B2, y_H1)
    fill_C11 = fill_C[:, None, None]
    views_BCHW = F.grid_sample(
        images_BCHW - fill_C11, grid_B2HW.permute(0, 2, 3, 1), padding_mode="border", align_corners=False
    )
    seen_BHW = torch.maximum(*grid_B2HW.abs_().unbind(1)) <= 1
    return views_BCHW.mul_(seen_BHW[:, None]).add_(fill_C11)


@cache
def _places(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """x and y of the middle of each pixel."""
    return torch.arange(0.5, width, device=device), torch.arange(0.5, height, device=device)[:, None]


def affine(turn_B: Tensor, shear_B2: Tensor, shift_B2: Tensor, height: int, width: int) -> Tensor:
    """(B, 2, 3) for `warp`: shears, turns and then shifts images, around their middle, as torchvision's `affine`.

    Angles in radians, a positive turn is clockwise; the shift is in pixels, across and down.
    """
    cos_B, sin_B = turn_B.cos(), turn_B.sin()
    x_B, y_B = shear_B2.tan().unbind(1)
    unturn_B22 = torch.stack([cos_B, sin_B, -sin_B, cos_B], -1).view(-1, 2, 2)
    unshear_B22 = torch.stack([1 + x_B * y_B, x_B, y_B, torch.ones_like(x_B)], -1).view(-1, 2, 2)
    middle_2 = torch.tensor([width / 2, height / 2], device=turn_B.device)
    linear_B22 = unshear_B22 @ unturn_B22
    start_B21 = linear_B22 @ -(shift_B2 + middle_2)[:, :, None]
    # The middle of the old image is 0 in its units, so nothing is added for it.
    return torch.cat([linear_B22, start_B21], 2) / middle_2[:, None]


def to_bytes(pixels_BCHW: Tensor) -> Tensor:
    """Pixels in 0..255 as uint8; floats are rounded (in place), by way of int16, to which torch knows a quick way."""
    if pixels_BCHW.dtype == torch.uint8:
        return pixels_BCHW
    return pixels_BCHW.add_(0.5).to(torch.int16).to(torch.uint8)
