"""What timm's ViT asks of a module that turns images into tokens, apart from doing so.

timm's own is a convolution with the patch as its stride; ours cut other tokens out of the image.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

Size = int | tuple[int, int]


def pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


class TokenGrid(nn.Module):
    """Keeps the size of the image and of the grid of tokens; one token stands for `patch_size` pixels."""

    def __init__(self, img_size: Size, patch_size: Size) -> None:
        super().__init__()
        self.patch_size = pair(patch_size)
        self.set_input_size(img_size)

    def set_input_size(self, img_size: Size | None = None, patch_size: Size | None = None) -> None:
        if patch_size is not None and pair(patch_size) != self.patch_size:
            raise ValueError(f"a {type(self).__name__} is built for its patch of {self.patch_size}: build another one")
        if img_size is not None:
            self.img_size = pair(img_size)
            self.grid_size = self.dynamic_feat_size(self.img_size)
            self.num_patches = self.grid_size[0] * self.grid_size[1]

    def dynamic_feat_size(self, img_size: tuple[int, int]) -> tuple[int, int]:
        return math.ceil(img_size[0] / self.patch_size[0]), math.ceil(img_size[1] / self.patch_size[1])

    def feat_ratio(self, as_scalar: bool = True) -> int | tuple[int, int]:
        return max(self.patch_size) if as_scalar else self.patch_size

    def check_size(self, images_BCHW: Tensor) -> None:
        """In words, instead of as a mismatch with the table of positions later on."""
        height, width = images_BCHW.shape[-2:]
        torch._assert(height == self.img_size[0], f"images are {height} px high, the model takes {self.img_size[0]}")
        torch._assert(width == self.img_size[1], f"images are {width} px wide, the model takes {self.img_size[1]}")
