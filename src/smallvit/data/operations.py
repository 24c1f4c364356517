"""The operations of RandAugment on batches of uint8 images, each sample with its own argument.

Whatever changes a value without looking at its neighbours is a table of 256 entries for every sample and
channel, and one lookup applies it. Results agree with Pillow's, which computes in whole numbers and rounds
down, so that a recipe tuned on timm's pipeline means the same here.

B images, C channels, H by W pixels, V = 256 values.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def lookup(pixels_BCHW: Tensor, table_BCV: Tensor) -> Tensor:
    """Each pixel replaced by the entry of its sample's and channel's table."""
    B, C, H, W = pixels_BCHW.shape
    return table_BCV.view(B * C, 256).gather(1, pixels_BCHW.view(B * C, H * W).long()).view(B, C, H, W)


# ---- tables that depend on an argument only: (B, 1, V) -------------------------------------------------


def solarized(threshold_B: Tensor) -> Tensor:
    """Values from the threshold on are inverted; 0 inverts the whole image."""
    value_V = _values(threshold_B)
    return _table(torch.where(value_V < threshold_B[:, None], value_V, 255 - value_V))


def lifted(amount_B: Tensor) -> Tensor:
    """The amount is added to the darker half of the values (SolarizeAdd, which inverts nothing)."""
    value_V = _values(amount_B)
    return _table(torch.where(value_V < 128, value_V + amount_B[:, None], value_V))


def posterized(bits_B: Tensor) -> Tensor:
    """Only the highest bits of each value are kept."""
    step_B1 = 2 ** (8 - bits_B[:, None])
    return _table((_values(bits_B) / step_B1).floor() * step_B1)


def brightened(factor_B: Tensor) -> Tensor:
    return _table(_values(factor_B) * factor_B[:, None])


# ---- tables that depend on the image: (B, C or 1, V) ---------------------------------------------------


def contrasted(pixels_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Values move away from the image's mean grey, or towards it."""
    mean_B1 = luma(pixels_BCHW).mean((1, 2)).add_(0.5).floor_()[:, None]
    return _table((_values(factor_B) - mean_B1).mul_(factor_B[:, None]).add_(mean_B1))


def stretched(pixels_BCHW: Tensor) -> Tensor:
    """Each channel's darkest value becomes 0 and its lightest 255 (AutoContrast)."""
    pixels_BCP = pixels_BCHW.flatten(2)
    low_BC1, high_BC1 = pixels_BCP.amin(2, keepdim=True).double(), pixels_BCP.amax(2, keepdim=True).double()
    # In double precision and in this order: whether 254.99999 or 255 is rounded down is up to the last bit. (torch
    # would turn 255 / x into a product with 1 / x.)
    value_V = _values(low_BC1)
    scale_BC1 = value_V[255] / (high_BC1 - low_BC1)
    stretched_BCV = value_V * scale_BC1 - low_BC1 * scale_BC1
    return torch.where(high_BC1 > low_BC1, stretched_BCV, value_V).clamp_(0, 255).to(torch.int16).to(torch.uint8)


def equalized(pixels_BCHW: Tensor) -> Tensor:
    """Each channel's values become about equally frequent, by its histogram."""
    B, C, H, W = pixels_BCHW.shape
    pixels_BCP = pixels_BCHW.view(B, C, H * W)
    first_BC1 = torch.arange(0, B * C * 256, 256, dtype=torch.int32, device=pixels_BCHW.device).view(B, C, 1)
    counts_BCV = torch.bincount((pixels_BCP + first_BC1).flatten(), minlength=B * C * 256).view(B, C, 256)
    below_BCV = (counts_BCV.cumsum(2) - counts_BCV).double()
    # The lightest value's own pixels do not count towards the step, and an image of few pixels has no step.
    lightest_BC1 = pixels_BCP.amax(2, keepdim=True).long()
    step_BC1 = (below_BCV.gather(2, lightest_BC1) / 255).floor_()
    equal_BCV = (below_BCV + (step_BC1 / 2).floor_()).div_(step_BC1)
    return torch.where(step_BC1 > 0, equal_BCV, _values(equal_BCV)).clamp_(0, 255).to(torch.int16).to(torch.uint8)


def _values(like: Tensor) -> Tensor:
    return _ramp(like.dtype, like.device)


@cache
def _ramp(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(256, dtype=dtype, device=device)


def _table(values_BV: Tensor) -> Tensor:
    return values_BV.clamp_(0, 255).to(torch.int16).to(torch.uint8)[:, None]


# ---- operations that look at more than one value -------------------------------------------------------


def saturated(pixels_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """RGB images with more or less colour; a factor of 0 leaves grey."""
    return _blend(luma(pixels_BCHW)[:, None], pixels_BCHW, factor_B)


def sharpened(pixels_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Away from the smoothed image, or towards it; the outermost pixels stay as they are."""
    if min(pixels_BCHW.shape[-2:]) < 3:
        return pixels_BCHW
    sharp_BCHW = pixels_BCHW.float()
    across_BCHW = sharp_BCHW[..., :-2] + sharp_BCHW[..., 1:-1] + sharp_BCHW[..., 2:]
    sum_BCHW = across_BCHW[..., :-2, :] + across_BCHW[..., 1:-1, :] + across_BCHW[..., 2:, :]
    inner_BCHW = sharp_BCHW[..., 1:-1, 1:-1]
    smooth_BCHW = sum_BCHW.add_(inner_BCHW, alpha=4).div_(13).add_(0.5).floor_()
    sharpened_BCHW = pixels_BCHW.clone()
    sharpened_BCHW[..., 1:-1, 1:-1] = _blend(smooth_BCHW, inner_BCHW, factor_B)
    return sharpened_BCHW


def _blend(plain_BCHW: Tensor, pixels_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """From the plain image (factor 0) over the image itself (1) to beyond it, as uint8."""
    mixed_BCHW = (pixels_BCHW - plain_BCHW).mul_(factor_B[:, None, None, None]).add_(plain_BCHW)
    return mixed_BCHW.clamp_(0, 255).to(torch.int16).to(torch.uint8)


def luma(pixels_BCHW: Tensor) -> Tensor:
    """(B, H, W) grey values in whole numbers, kept as floats: the luma of RGB, else the mean of the channels."""
    if pixels_BCHW.shape[1] != 3:
        return pixels_BCHW.float().mean(1).add_(0.5).floor_()
    # Every sum stays below 2^24, so floats are exact.
    return (pixels_BCHW * _luma_weights(pixels_BCHW.device)).sum(1).add_(0.5).floor_()


@cache
def _luma_weights(device: torch.device) -> Tensor:
    """How Pillow weighs red, green and blue."""
    return torch.tensor([19595 / 65536, 38470 / 65536, 7471 / 65536], device=device)[:, None, None]
