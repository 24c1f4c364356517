"""Augmentation of whole batches: no Python per sample, yet every sample draws its own parameters.

    uint8 image -> crop, resize, flip -> affine map -> RandAugment or TrivialAugment
                -> colour and grey -> blur -> solarize -> normalise -> erase

Every draw is a hash of (key, position): there are no generators to seed, and what happens to a sample does not
depend on its batch. Images may have any number of channels; what needs colour (saturation, hue, grey, and the
policies' Color) happens to images of three channels and is left out for others.

B images, C channels, H by W pixels; K draws each; E images have a part erased, N pixels in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from smallvit.data.colour import blur, jitter, solarize
from smallvit.data.draws import between, draw_steps, noise, rows_below
from smallvit.data.geometry import (
    affine,
    both,
    centre,
    cut,
    draw_window,
    few_at_a_time,
    inside,
    resample,
    to_bytes,
    warp,
)
from smallvit.data.policy import NOTHING, Policy
from smallvit.recipe import AugmentSpec, resolved

_ERASE_RATIO = (0.3, 3.3)


class Augmenter:
    """Turns cached uint8 images into normalised float32 views."""

    def __init__(self, spec: AugmentSpec, mean: Sequence[float], std: Sequence[float]) -> None:
        if len(mean) != len(std) or not len(mean):
            raise ValueError(f"mean has {len(mean)} channels and std {len(std)}: give one of each per channel")
        if min(std) <= 0:
            raise ValueError(f"std must be positive in every channel, got {tuple(std)}")
        self.spec = spec
        self.crop = resolved(spec.crop)
        self.flip = resolved(spec.flip)
        self.channels = len(mean)
        # Pixels stay in 0..255 until they are normalised: scaling to 0..1 is part of the same product.
        self.gain_C11 = torch.tensor([1 / (255 * s) for s in std])[:, None, None]
        self.shift_C11 = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)])[:, None, None]
        self._fill_C = torch.tensor([float(min(255, round(255 * m))) for m in mean])
        self._policy = policy_of(spec)

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
        views_BCHW = torch.empty((*images_BCHW.shape[:2], size, size), device=images_BCHW.device)
        # Small batches spend a tenth of the time on autograd's bookkeeping. The views themselves are made outside:
        # a backward pass may keep them.
        with torch.inference_mode():
            positions_B = positions_B.to(images_BCHW.device, torch.int64)
            draws = draw_steps(key, positions_B)
            pixels_BCHW = self._crop(images_BCHW, size, draws, scale)
            pixels_BCHW = self._move(pixels_BCHW, draws["affine"])
            if self._policy is not None:
                fill_C = self._fill_C.to(images_BCHW.device)
                pixels_BCHW = self._policy(to_bytes(pixels_BCHW), draws["policy"], fill_C)
            pixels_BCHW = self._colour(pixels_BCHW, draws)
            pixels_BCHW = self._soften(pixels_BCHW, draws)
            self._normalise(pixels_BCHW, views_BCHW)
            self._erase(views_BCHW, draws["erase"])
        return views_BCHW

    def prepare(self, images_BCHW: Tensor, size: int) -> Tensor:
        """The view for evaluation: the centre, normalised. Nothing is drawn."""
        self._check(images_BCHW)
        top, left = centre(images_BCHW, size)
        pixels_BCHW = images_BCHW[..., top : top + size, left : left + size]
        return self._normalise(pixels_BCHW, torch.empty(pixels_BCHW.shape, device=images_BCHW.device))

    def _crop(
        self, images_BCHW: Tensor, size: int, draws: dict[str, Tensor], scale: tuple[float, float] | None
    ) -> Tensor:
        height, width = images_BCHW.shape[-2:]
        flip_B = draws["flip"][0] < self.flip if self.flip else None
        if scale or self.crop == "resized":
            window = draw_window(draws["crop"], scale or self.spec.scale, self.spec.ratio, height, width)
            return resample(images_BCHW, window, size, flip_B, rounded=self._policy is not None)
        top, left = centre(images_BCHW, size)
        y_B, x_B = draws["crop"][:2]
        if self.crop == "none":
            return cut(images_BCHW, torch.full_like(y_B, top), torch.full_like(x_B, left), size, flip_B)
        reach = round(resolved(self.spec.padding) * size)
        top_B = (y_B * (height - size + 2 * reach + 1)).floor() - reach
        left_B = (x_B * (width - size + 2 * reach + 1)).floor() - reach
        return cut(images_BCHW, top_B, left_B, size, flip_B)

    def _move(self, pixels_BCHW: Tensor, draws_KB: Tensor) -> Tensor:
        spec, size = self.spec, pixels_BCHW.shape[-1]
        if not (spec.rotate or spec.shear or spec.translate):
            return pixels_BCHW
        draws_B5 = (2 * draws_KB - 1).T
        matrix_B23 = affine(
            draws_B5[:, 0] * math.radians(spec.rotate),
            draws_B5[:, 1:3] * math.radians(spec.shear),
            draws_B5[:, 3:5] * (spec.translate * size),
            size,
            size,
        )
        return warp(pixels_BCHW, matrix_B23, self._fill_C.to(pixels_BCHW.device))

    def _colour(self, pixels_BCHW: Tensor, draws: dict[str, Tensor]) -> Tensor:
        spec, is_rgb = self.spec, self.channels == 3
        brightness, contrast, saturation = map(resolved, (spec.brightness, spec.contrast, spec.saturation))
        strengths = (brightness, contrast, saturation * is_rgb, spec.hue * is_rgb)
        changes: list[Tensor | None] = [None] * 4
        if spec.color_prob and any(strengths):
            chosen_B, *amounts = draws["colour"]
            chosen_B = chosen_B < spec.color_prob
            changes = [
                chosen_B * strength * (2 * amount_B - 1) if strength else None
                for strength, amount_B in zip(strengths, amounts, strict=True)
            ]
        if spec.gray and is_rgb:
            kept = 0.0 if changes[2] is None else changes[2]
            changes[2] = torch.where(draws["gray"][0] < spec.gray, -1.0, kept)
        if all(change is None for change in changes):
            return pixels_BCHW
        return jitter(pixels_BCHW, *changes)

    def _soften(self, pixels_BCHW: Tensor, draws: dict[str, Tensor]) -> Tensor:
        spec = self.spec
        if spec.blur:
            chosen_B, width_B = draws["blur"]
            rows_E = rows_below(chosen_B, spec.blur)
            pixels_BCHW = pixels_BCHW.float()
            if len(rows_E):
                sigma_E = between(width_B[rows_E], *spec.blur_sigma)
                pixels_BCHW[rows_E] = blur(pixels_BCHW[rows_E], sigma_E, math.ceil(3 * spec.blur_sigma[1]))
        if spec.solarize:
            pixels_BCHW = solarize(pixels_BCHW, draws["solarize"][0] < spec.solarize)
        return pixels_BCHW

    def _normalise(self, pixels_BCHW: Tensor, views_BCHW: Tensor) -> Tensor:
        gain_C11, shift_C11 = self.gain_C11.to(pixels_BCHW.device), self.shift_C11.to(pixels_BCHW.device)
        for part in few_at_a_time(pixels_BCHW):
            views_BCHW[part].copy_(pixels_BCHW[part]).mul_(gain_C11).add_(shift_C11)
        return views_BCHW

    def _erase(self, views_BCHW: Tensor, draws_KB: Tensor) -> None:
        if not self.spec.erase:
            return
        C, height, width = views_BCHW.shape[1:]
        # Noise is made for the erased pixels only; finding them waits for the device, twice per batch.
        rows_E = rows_below(draws_KB[0], self.spec.erase)
        draws_KE = draws_KB[1:].index_select(1, rows_E)
        window = draw_window(draws_KE[:4], self.spec.erase_area, _ERASE_RATIO, height, width)
        rows_EH = inside(window.top_B, window.height_B, height)
        columns_EW = inside(window.left_B, window.width_B, width)
        e_N, pixel_N = both(rows_EH, columns_EW).flatten(1).nonzero(as_tuple=True)
        pixel_CN = pixel_N + torch.arange(0, C * height * width, height * width, device=pixel_N.device)[:, None]
        values_CN = noise(draws_KE[4].index_select(0, e_N), pixel_CN)
        places_CN = pixel_CN.add_((rows_E * (C * height * width)).index_select(0, e_N))
        views_BCHW.view(-1).scatter_(0, places_CN.view(-1), values_CN.view(-1))

    def _check(self, images_BCHW: Tensor) -> None:
        if images_BCHW.dtype != torch.uint8 or images_BCHW.ndim != 4:
            raise ValueError(f"expected uint8 images (B, C, H, W), got {images_BCHW.dtype} {tuple(images_BCHW.shape)}")
        if images_BCHW.shape[1] != self.channels:
            raise ValueError(
                f"images have {images_BCHW.shape[1]} channels, mean and std {self.channels}: they must agree"
            )


def policy_of(spec: AugmentSpec) -> Policy | None:
    if resolved(spec.trivial):  # one of the operations or none, all equally likely
        return Policy(layers=1, probability=NOTHING / (NOTHING + 1), magnitude=None)
    if spec.randaugment and spec.randaugment_prob:
        return Policy(spec.randaugment, spec.randaugment_prob, spec.randaugment_magnitude, spec.randaugment_std)
    return None
