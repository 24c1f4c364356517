"""Augmentation of whole batches: no Python per sample, yet every sample draws its own parameters.

    uint8 image -> crop, resize, flip -> colour -> normalise -> erase

A crop that does not scale is one gather; one that scales is two batched matrix products; flipping is free in
both. All colour changes of a sample are one small matrix and one offset. Every draw is a hash of (key,
position): there are no generators to seed, and what happens to a sample does not depend on its batch.

B images, C channels, H by W pixels before the crop, h by w after it, P of them in all; K draws each;
E images have a part erased, N pixels in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from smallvit.randomness import key_of, uniform
from smallvit.recipe import AugmentSpec, known

_ERASE_RATIO = (0.3, 3.3)
_LUMA = (0.299, 0.587, 0.114)


class Augmenter:
    """Turns cached uint8 images into normalised float32 views."""

    def __init__(self, spec: AugmentSpec, mean: Sequence[float], std: Sequence[float]) -> None:
        if len(mean) != len(std) or not len(mean):
            raise ValueError(f"mean has {len(mean)} channels and std {len(std)}: give one of each per channel")
        if min(std) <= 0:
            raise ValueError(f"std must be positive in every channel, got {tuple(std)}")
        self.spec = spec
        self.crop = known(spec.crop)
        self.flip = known(spec.flip)
        self.channels = len(mean)
        # Pixels stay in 0..255 until they are normalised: scaling to 0..1 is part of the same product.
        self._gain_C11 = torch.tensor([1 / (255 * s) for s in std])[:, None, None]
        self._shift_C11 = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)])[:, None, None]

    def __call__(
        self,
        images_BCHW: Tensor,
        size: int,
        key: int,
        positions_B: Tensor,
        scale: tuple[float, float] | None = None,
    ) -> Tensor:
        """A random view of `size` pixels a side of each image, (B, C, size, size).

        `key` says which epoch and view this is, `positions_B` each sample's place in the epoch's order.
        `scale`, the area shares that a `View` asks for, makes it a resized crop whatever the recipe says.
        """
        self._check(images_BCHW)
        positions_B = positions_B.to(images_BCHW.device, torch.int64)
        pixels_BCHW = self._crop(images_BCHW, size, key, positions_B, scale)
        views_BCHW = self._normalise(self._colour(pixels_BCHW, key, positions_B))
        return self._erase(views_BCHW, key, positions_B)

    def prepare(self, images_BCHW: Tensor, size: int) -> Tensor:
        """The view for evaluation: the centre, normalised. Nothing is drawn."""
        self._check(images_BCHW)
        top, left = _centre(images_BCHW, size)
        return self._normalise(images_BCHW[..., top : top + size, left : left + size])

    def _crop(
        self, images_BCHW: Tensor, size: int, key: int, positions_B: Tensor, scale: tuple[float, float] | None
    ) -> Tensor:
        height, width = images_BCHW.shape[-2:]
        flip_B = uniform(key_of(key, "flip"), positions_B, 1)[:, 0] < self.flip if self.flip else None
        if scale or self.crop == "resized":
            draws_KB = uniform(key_of(key, "crop"), positions_B, 4).T
            window = draw_window(draws_KB, scale or self.spec.scale, self.spec.ratio, height, width)
            return resample(images_BCHW, window, size, flip_B)
        top, left = _centre(images_BCHW, size)
        if self.crop == "none":
            zero_B = torch.zeros_like(positions_B)
            return cut(images_BCHW, zero_B + top, zero_B + left, size, flip_B)
        reach = round(self.spec.padding * size)
        y_B, x_B = uniform(key_of(key, "crop"), positions_B, 2).T
        top_B = (y_B * (height - size + 2 * reach + 1)).long() - reach
        left_B = (x_B * (width - size + 2 * reach + 1)).long() - reach
        return cut(images_BCHW, top_B, left_B, size, flip_B)

    def _colour(self, pixels_BCHW: Tensor, key: int, positions_B: Tensor) -> Tensor:
        spec, is_rgb = self.spec, self.channels == 3
        strengths = (spec.brightness, spec.contrast, spec.saturation * is_rgb, spec.hue * is_rgb)
        if not spec.color_prob or not any(strengths):
            return pixels_BCHW
        chosen_B, *draws = uniform(key_of(key, "colour"), positions_B, 5).T
        chosen_B = chosen_B < spec.color_prob
        changes = [
            chosen_B * strength * (2 * draw_B - 1) if strength else None
            for strength, draw_B in zip(strengths, draws, strict=True)
        ]
        return jitter(pixels_BCHW, *changes)

    def _normalise(self, pixels_BCHW: Tensor) -> Tensor:
        gain_C11, shift_C11 = self._gain_C11.to(pixels_BCHW.device), self._shift_C11.to(pixels_BCHW.device)
        # Written into a new tensor in the usual order: resampling leaves the channels inside the rows.
        views_BCHW = torch.empty(pixels_BCHW.shape, device=pixels_BCHW.device)
        return torch.mul(pixels_BCHW, gain_C11, out=views_BCHW).add_(shift_C11)

    def _erase(self, views_BCHW: Tensor, key: int, positions_B: Tensor) -> Tensor:
        if not self.spec.erase:
            return views_BCHW
        height, width = views_BCHW.shape[-2:]
        # Noise is made for the erased pixels only; finding them waits for the device, twice per batch.
        chosen_B, *draws = uniform(key_of(key, "erase"), positions_B, 5).T
        chosen_E = (chosen_B < self.spec.erase).nonzero()[:, 0]
        draws_KE = torch.stack(draws)[:, chosen_E]
        window = draw_window(draws_KE, self.spec.erase_area, _ERASE_RATIO, height, width)
        rows_EH = _inside(window.top_B, window.height_B, height)
        columns_EW = _inside(window.left_B, window.width_B, width)
        e_N, y_N, x_N = (rows_EH[:, :, None] & columns_EW[:, None, :]).nonzero(as_tuple=True)
        b_N = chosen_E[e_N]
        pixel_N = (positions_B[b_N] * height + y_N) * width + x_N
        views_BCHW[b_N, :, y_N, x_N] = _normal(key_of(key, "noise"), pixel_N, self.channels)
        return views_BCHW

    def _check(self, images_BCHW: Tensor) -> None:
        if images_BCHW.dtype != torch.uint8 or images_BCHW.ndim != 4:
            raise ValueError(f"expected uint8 images (B, C, H, W), got {images_BCHW.dtype} {tuple(images_BCHW.shape)}")
        if images_BCHW.shape[1] != self.channels:
            raise ValueError(
                f"images have {images_BCHW.shape[1]} channels, mean and std {self.channels}: they must agree"
            )


# ---- geometry: crop, resize and flip -----------------------------------------------------------------


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


def resample(images_BCHW: Tensor, window: Window, size: int, flip_B: Tensor | None = None) -> Tensor:
    """The window of each image at `size` by `size` pixels; `flip_B` mirrors left and right.

    The same as cutting the window out and resizing it with antialiased bilinear interpolation, as separable
    resampling: one matrix product along the rows of each image and one along its columns.
    """
    B, C, H, W = images_BCHW.shape
    rows_BhH = _weights(window.top_B, window.height_B, size, H)
    columns_BwW = _weights(window.left_B, window.width_B, size, W, flip_B)
    # With the channels inside the rows, both products are plain batched ones and nothing else is copied.
    pixels_BHCW = images_BCHW.float().transpose(1, 2).contiguous()
    pixels_BhCW = torch.bmm(rows_BhH, pixels_BHCW.view(B, H, C * W)).view(B, size * C, W)
    pixels_BhCw = torch.bmm(pixels_BhCW, columns_BwW.transpose(1, 2)).view(B, size, C, size)
    return pixels_BhCw.transpose(1, 2)


def _weights(start_B: Tensor, length_B: Tensor, count: int, side: int, mirror_B: Tensor | None = None) -> Tensor:
    """(B, count, side): how much of each of `side` pixels goes into each of `count` new ones.

    A triangle filter around each new pixel's centre, as wide as the step between centres but at least one
    pixel, cut off at the window's border and then scaled to sum 1.
    """
    step_B1 = (length_B / count)[:, None]
    reach_B1 = step_B1.clamp(min=1)
    centres_Bc = (torch.arange(count, device=start_B.device) + 0.5) * step_B1
    if mirror_B is not None:
        centres_Bc = torch.where(mirror_B[:, None], length_B[:, None] - centres_Bc, centres_Bc)
    pixels_BS = torch.arange(side, device=start_B.device) + 0.5 - start_B[:, None]
    pixels_BS = (pixels_BS / reach_B1).masked_fill_(~_inside(start_B, length_B, side), torch.inf)
    distance_BcS = (pixels_BS[:, None, :] - (centres_Bc / reach_B1)[:, :, None]).abs_()
    weights_BcS = (1 - distance_BcS).clamp_(min=0)
    return weights_BcS.div_(weights_BcS.sum(2, keepdim=True))


def _inside(start_B: Tensor, length_B: Tensor, side: int) -> Tensor:
    """(B, side): which pixels lie in [start, start + length)."""
    offset_BS = torch.arange(side, device=start_B.device) - start_B[:, None]
    return (offset_BS >= 0) & (offset_BS < length_B[:, None])


def _centre(images_BCHW: Tensor, size: int) -> tuple[int, int]:
    height, width = images_BCHW.shape[-2:]
    if size > min(height, width):
        raise ValueError(
            f"a view of {size} pixels does not fit in images of {height} x {width}: "
            f'ask for at most {min(height, width)}, or use crop = "resized"'
        )
    return (height - size) // 2, (width - size) // 2


# ---- colour ------------------------------------------------------------------------------------------


def jitter(
    pixels_BCHW: Tensor,
    brightness_B: Tensor | None = None,
    contrast_B: Tensor | None = None,
    saturation_B: Tensor | None = None,
    hue_B: Tensor | None = None,
) -> Tensor:
    """Changes colours in 0..255 by these amounts (hue in turns; the last two for RGB only).

    All four are linear, so a sample's changes become one matrix and one offset, and values are cut to 0..255
    once, at the end; torchvision cuts after each and loses more. Hue turns the chroma plane of YIQ: linear,
    and it keeps the luma, where a shift in HSV sorts the channels of every pixel and changes brightness.
    """
    B, C, H, W = pixels_BCHW.shape
    pixels_BCHW = pixels_BCHW.float()
    pixels_BCP = pixels_BCHW.reshape(B, C, H * W)
    gain_B = pixels_BCHW.new_ones(B) if brightness_B is None else 1 + brightness_B
    offset_B = pixels_BCHW.new_zeros(B)
    if contrast_B is not None:
        luma_C = pixels_BCHW.new_tensor(_LUMA if C == 3 else [1 / C] * C)
        offset_B = -contrast_B * gain_B * (pixels_BCP.mean(2) @ luma_C)
        gain_B = gain_B * (1 + contrast_B)
    if saturation_B is None and hue_B is None:
        mixed_BCP = pixels_BCP * gain_B[:, None, None]
    else:
        matrix_B33 = gain_B[:, None, None] * _chroma(saturation_B, hue_B, like=pixels_BCHW)
        mixed_BCP = torch.bmm(matrix_B33, pixels_BCP)
    return mixed_BCP.add_(offset_B[:, None, None]).clamp_(0, 255).view(B, C, H, W)


def _chroma(saturation_B: Tensor | None, hue_B: Tensor | None, like: Tensor) -> Tensor:
    """(B, 3, 3) or (1, 3, 3): keeps the grey part of a colour, scales and turns the rest."""
    grey_33, colour_33, turn_33 = like.new_tensor(_chroma_parts()).unbind()
    none_B = like.new_zeros(1)
    factor_B = (none_B if saturation_B is None else saturation_B) + 1
    angle_B = (none_B if hue_B is None else hue_B) * (2 * math.pi)
    along_B, across_B = factor_B * angle_B.cos(), factor_B * angle_B.sin()
    return grey_33 + along_B[:, None, None] * colour_33 + across_B[:, None, None] * turn_33


@cache
def _chroma_parts() -> list[list[list[float]]]:
    """The projection on grey along constant luma, the rest, and the rest turned by 90 degrees in YIQ."""
    yiq_33 = torch.tensor(
        [_LUMA, (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135)], dtype=torch.float64
    )
    quarter_33 = torch.tensor([(0, 0, 0), (0, 0, -1), (0, 1, 0)], dtype=torch.float64)
    grey_33 = yiq_33[0].expand(3, 3)
    turn_33 = torch.linalg.solve(yiq_33, quarter_33 @ yiq_33)
    rest_33 = torch.eye(3, dtype=torch.float64) - grey_33
    return [part_33.tolist() for part_33 in (grey_33, rest_33, turn_33)]


# ---- noise -------------------------------------------------------------------------------------------


def _normal(key: int, positions_B: Tensor, count: int) -> Tensor:
    """(B, K) standard normal numbers by inversion. The half step keeps 0 and 1, and so infinity, out."""
    return torch.erfinv(2 * uniform(key, positions_B, count) - 1 + 2**-24) * math.sqrt(2)
