"""Where pixels come from: crops, resizing, and affine maps of whole batches.

A crop that does not scale is one gather. One that scales mixes two or three neighbours, first along the
columns and then along the rows. Every other map is an affine matrix and one bilinear lookup.

B images, C channels, H by W pixels before, h by w after, P of them in all; N new pixels along a side, T
neighbours that go into each of them; R rows of S pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# ---- boxes -------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """A box inside each image, in whole pixels (kept as floats)."""

    top_B: Tensor
    left_B: Tensor
    height_B: Tensor
    width_B: Tensor


def draw_window(
    draws_KB: Tensor, share: tuple[float, float], ratio: tuple[float, float], height: int, width: int
) -> Window:
    """A box inside the image: area share uniform, aspect log-uniform, place uniform. Takes 4 draws.

    Sides longer than the image are cut to it. torchvision draws again instead, up to ten times, which a batch
    cannot do at once; it matters only for shares near 1, which here come out a little smaller.
    """
    share_B, aspect_B, y_B, x_B = draws_KB
    area_B = (share[0] + (share[1] - share[0]) * share_B) * (height * width)
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    root_B = torch.exp((log_low + (log_high - log_low) * aspect_B) / 2)
    height_B = (area_B.sqrt() / root_B).round().clamp(1, height)
    width_B = (area_B.sqrt() * root_B).round().clamp(1, width)
    top_B = (y_B * (height - height_B + 1)).floor()
    left_B = (x_B * (width - width_B + 1)).floor()
    return Window(top_B, left_B, height_B, width_B)


def inside(start_B: Tensor, length_B: Tensor, side: int) -> Tensor:
    """(B, side): which pixels lie in [start, start + length)."""
    offset_BS = torch.arange(side, device=start_B.device) - start_B[:, None]
    return (offset_BS >= 0) & (offset_BS < length_B[:, None])


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
    places_Bw = places_h.expand(B, size)
    if flip_B is not None:
        places_Bw = torch.where(flip_B[:, None], places_h.flip(0), places_h)
    rows_Bh, columns_Bw = top_B[:, None] + places_h, left_B[:, None] + places_Bw
    rows_in_Bh, columns_in_Bw = rows_Bh.clamp(0, H - 1), columns_Bw.clamp(0, W - 1)
    source_B1P = (rows_in_Bh[:, :, None] * W + columns_in_Bw[:, None, :]).view(B, 1, size * size)
    pixels_BCP = images_BCHW.reshape(B, C, H * W).gather(2, source_B1P.expand(B, C, size * size))
    inside_Bhw = (rows_Bh == rows_in_Bh)[:, :, None] & (columns_Bw == columns_in_Bw)[:, None, :]
    return pixels_BCP.view(B, C, size, size).mul_(inside_Bhw[:, None])


def resample(images_BCHW: Tensor, window: Window, size: int, flip_B: Tensor | None = None) -> Tensor:
    """The window of each image at `size` by `size` float pixels; `flip_B` mirrors left and right.

    The same as cutting the window out and resizing it with antialiased bilinear interpolation.
    """
    H, W = images_BCHW.shape[-2:]
    # A new row is a mixture of whole rows, which lie together in memory; columns are turned into rows first,
    # while a pixel is still one byte.
    pixels_BCWH = images_BCHW.transpose(2, 3).contiguous().float()
    pixels_BCwH = _mix(pixels_BCWH, *_neighbours(window.left_B, window.width_B, size, W, flip_B))
    pixels_BCHw = pixels_BCwH.transpose(2, 3).contiguous()
    return _mix(pixels_BCHw, *_neighbours(window.top_B, window.height_B, size, H))


def _mix(pixels_BCRS: Tensor, source_BNT: Tensor, weights_BNT: Tensor) -> Tensor:
    """(B, C, N, S): each of N new rows is the weighted sum of T old ones."""
    B, C, R, S = pixels_BCRS.shape
    _, N, T = source_BNT.shape
    first_BC11 = torch.arange(0, B * C * R, R, dtype=torch.int32, device=pixels_BCRS.device).view(B, C, 1, 1)
    rows_NT = (first_BC11 + source_BNT[:, None]).view(B * C * N, T)
    weights_NT = weights_BNT[:, None].expand(B, C, N, T).reshape(B * C * N, T)
    # A bag of embeddings is just that, a weighted sum of rows of a table, and is an order of magnitude quicker
    # than a matrix product with a matrix that is nearly all zeros.
    mixed_NS = F.embedding_bag(rows_NT, pixels_BCRS.view(B * C * R, S), per_sample_weights=weights_NT, mode="sum")
    return mixed_NS.view(B, C, N, S)


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
    centres_BN = (torch.arange(count, device=device) + 0.5) * step_B1
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


def warp(images_BCHW: Tensor, matrix_B23: Tensor, fill_C: Tensor) -> Tensor:
    """Each image seen through its affine map, bilinear, as floats; what lies outside has the colour `fill_C`.

    The matrix maps places of the new image to places of the old one, in pixels from the top left corner. The
    border is hard, as Pillow's is: the last half pixel of an image is not mixed with the fill.
    """
    H, W = images_BCHW.shape[-2:]
    matrix_B23 = matrix_B23 * matrix_B23.new_tensor([[2 / W], [2 / H]])  # grid_sample's units: -1..1 over the image
    x_W = torch.arange(0.5, W, device=images_BCHW.device)
    y_H1 = torch.arange(0.5, H, device=images_BCHW.device)[:, None]
    by_x_B2, by_y_B2, start_B2 = matrix_B23[..., None, None].unbind(2)
    places_B2HW = by_x_B2 * x_W + (by_y_B2 * y_H1 + (start_B2 - 1))
    fill_C11 = fill_C[:, None, None]
    places_BHW2 = places_B2HW.permute(0, 2, 3, 1)
    views_BCHW = F.grid_sample(images_BCHW - fill_C11, places_BHW2, padding_mode="border", align_corners=False)
    seen_BHW = torch.maximum(*places_B2HW.abs_().unbind(1)) <= 1
    return views_BCHW.mul_(seen_BHW[:, None]).add_(fill_C11)


def about_centre(linear_B22: Tensor, height: int, width: int) -> Tensor:
    """(..., 2, 3): the linear maps around the middle of the image instead of its corner."""
    middle_2 = linear_B22.new_tensor([width / 2, height / 2])
    return torch.cat([linear_B22, (middle_2 - linear_B22 @ middle_2)[..., None]], -1)


def turned(angle_B: Tensor) -> Tensor:
    """(..., 2, 2): the map that turns images counter-clockwise."""
    cos_B, sin_B = angle_B.cos(), angle_B.sin()
    return torch.stack([cos_B, -sin_B, sin_B, cos_B], -1).unflatten(-1, (2, 2))


def to_bytes(pixels_BCHW: Tensor) -> Tensor:
    """Floats in 0..255 rounded to uint8, by way of int16: torch has a quick path for each half of it."""
    return pixels_BCHW.add_(0.5).to(torch.int16).to(torch.uint8)
