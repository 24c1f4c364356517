"""Mixup and CutMix: each image is mixed with a partner from the same batch.

An objective calls `mix` on its views and trains on lam * loss(own label) + (1 - lam) * loss(partner's
label), so no dense targets are needed. All draws come from the given generator; nothing waits for the device.

B images, C channels, H by W pixels; G draws: 1 for a whole batch, B for each element its own.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Mixed(NamedTuple):
    """`lam_B` is the share of its own image that each sample kept; the rest comes from `partner_B`."""

    images_BCHW: Tensor
    partner_B: Tensor
    lam_B: Tensor


def mix(
    images_BCHW: Tensor,
    generator: torch.Generator,
    *,
    mixup: float,
    cutmix: float,
    prob: float = 1.0,
    switch: float = 0.5,
    per: Literal["batch", "element"] = "batch",
    keep_larger: bool = False,
) -> Mixed:
    """Mixes with probability `prob`; `mixup` and `cutmix` are Beta parameters, 0 switches one off.

    If both are on, `switch` is the probability of CutMix. `keep_larger` makes the own image the larger part,
    lam = max(lam, 1 - lam), as IDMM does. Draws are made on the generator's device.
    """
    _check(mixup, cutmix, prob, switch, per)
    B, _, H, W = images_BCHW.shape
    device = images_BCHW.device
    partner_B = torch.randperm(B, generator=generator, device=generator.device).to(device)
    if not (mixup or cutmix) or not prob:
        return Mixed(images_BCHW, partner_B, torch.ones(B, device=device))

    G = B if per == "element" else 1
    mixed_G, cut_G, y_G, x_G = torch.rand((4, G), generator=generator, device=generator.device).to(device)
    cut_G = cut_G < (switch if mixup and cutmix else float(cutmix > 0))
    lam_G = torch.where(cut_G, _beta(cutmix, G, generator, device), _beta(mixup, G, generator, device))
    lam_G = torch.maximum(lam_G, 1 - lam_G) if keep_larger else lam_G
    lam_G = torch.where(mixed_G < prob, lam_G, 1.0)

    # Both are one formula: how much of its own image each pixel keeps. CutMix keeps all or nothing.
    box = cutmix_box((y_G * H).floor(), (x_G * W).floor(), lam_G, H, W)
    rows_GH1 = _between(box.top, box.bottom, H)[:, :, None]
    columns_G1W = _between(box.left, box.right, W)[:, None, :]
    kept_GHW = torch.where(cut_G[:, None, None], (~(rows_GH1 & columns_G1W)).float(), lam_G[:, None, None])
    lam_G = torch.where(cut_G, box.lam, lam_G)
    kept_G1HW = kept_GHW[:, None].to(images_BCHW.dtype)
    return Mixed(torch.lerp(images_BCHW[partner_B], images_BCHW, kept_G1HW), partner_B, lam_G.expand(B))


class Box(NamedTuple):
    """Rows top..bottom and columns left..right come from the partner; `lam` is the share that does not."""

    top: Tensor
    bottom: Tensor
    left: Tensor
    right: Tensor
    lam: Tensor


def cutmix_box(centre_y: Tensor, centre_x: Tensor, lam: Tensor, height: int, width: int) -> Box:
    """The box of share 1 - lam around a centre, cut off at the image's border, and the share really kept.

    Sides are rounded down to whole pixels and halved downwards, as the original code does: an odd side loses
    one pixel.
    """
    side = torch.sqrt(1 - lam)
    half_y, half_x = (height * side).floor() // 2, (width * side).floor() // 2
    top, bottom = (centre_y - half_y).clamp(min=0), (centre_y + half_y).clamp(max=height)
    left, right = (centre_x - half_x).clamp(min=0), (centre_x + half_x).clamp(max=width)
    return Box(top, bottom, left, right, 1 - (bottom - top) * (right - left) / (height * width))


def _between(low_G: Tensor, high_G: Tensor, side: int) -> Tensor:
    place_S = torch.arange(side, device=low_G.device)
    return (place_S >= low_G[:, None]) & (place_S < high_G[:, None])


def _beta(alpha: float, count: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Numbers from Beta(alpha, alpha), each from two uniform ones; torch's own sampler takes no generator.

    Exact for every alpha: with U, V uniform, T = sqrt(2a (U^(-1/a) - 1)) cos(2 pi V) has Student's t
    distribution with 2a degrees of freedom (Bailey 1994), and 1/2 + T / (2 sqrt(2a + T^2)) is Beta(a, a)
    (Devroye 1996). Below, r = T^2 / 2a, and the smaller of the two shares comes first: it keeps its digits.
    """
    u_G, v_G = torch.rand((2, count), generator=generator, device=generator.device).to(device)
    if alpha == 0:
        return torch.ones_like(u_G)
    cosine_G = torch.cos(2 * math.pi * v_G)
    r_G = (u_G ** (-1 / alpha) - 1) * cosine_G.square()
    smaller_G = 0.5 / ((1 + r_G) * (1 + torch.rsqrt(1 + 1 / r_G)))
    return torch.where(cosine_G < 0, smaller_G, 1 - smaller_G)


def _check(mixup: float, cutmix: float, prob: float, switch: float, per: str) -> None:
    if mixup < 0 or cutmix < 0:
        raise ValueError(f"mixup = {mixup} and cutmix = {cutmix}: Beta parameters are 0 (off) or more")
    if not (0 <= prob <= 1 and 0 <= switch <= 1):
        raise ValueError(f"prob = {prob} and switch = {switch}: probabilities lie in 0..1")
    if per not in ("batch", "element"):
        raise ValueError(f"per = {per!r}: choices are batch, element")
