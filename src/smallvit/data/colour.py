"""Changes of colour and sharpness on float pixels in 0..255, each sample by its own amount.

B images, C channels, H by W pixels, P of them in all; T taps of a blur.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)


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


def solarize(pixels_BCHW: Tensor, chosen_B: Tensor) -> Tensor:
    """The lighter half of the values inverted, in the chosen images."""
    # Whichever of a value and its inverse is darker; where nothing is to happen, the inverse is infinitely light.
    white_B = torch.where(chosen_B, 255.0, torch.inf)
    return torch.minimum(pixels_BCHW, white_B[:, None, None, None] - pixels_BCHW)


def blur(pixels_BCHW: Tensor, sigma_B: Tensor, reach: int) -> Tensor:
    """Gaussian blur with each image's own width, cut off `reach` pixels away; images go on as in a mirror."""
    B, C, H, W = pixels_BCHW.shape
    # A mirror shows no more than the image itself.
    reach = min(reach, H - 1, W - 1)
    distance_T = torch.arange(-reach, reach + 1, device=pixels_BCHW.device)
    weights_BT = torch.exp(-0.5 * (distance_T / sigma_B[:, None]).square())
    weights_BT = (weights_BT / weights_BT.sum(1, keepdim=True)).repeat_interleave(C, 0)
    # All channels of all images side by side: each has its own kernel.
    pixels_1BHW = F.pad(pixels_BCHW.reshape(1, B * C, H, W), (reach,) * 4, mode="reflect")
    pixels_1BHW = F.conv2d(pixels_1BHW, weights_BT[:, None, None, :], groups=B * C)
    return F.conv2d(pixels_1BHW, weights_BT[:, None, :, None], groups=B * C).view(B, C, H, W)
