"""A ViT that sees some cells of an image only: the tokens of the others are never made into a sequence.

A step costs as much as the tokens that go through the blocks. It works for timm's VisionTransformer and all that is built
on it, whose blocks take any number of tokens: what mixes neighbours inside its blocks (DHVT, Swin, a CNN) needs them all.

Pixels of hidden cells are blanked before the first layer, so nothing of them is seen through a stem whose windows overlap
(CCT's convolutions, T2T, shifted patches, timm's hybrids). Such a stem sees images with holes, and so does a BatchNorm in it.

B images, C channels, S side, N = H W cells, V of them visible, P tokens in front (class token, registers), D width.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from smallvit.errors import UsageError
from smallvit.models.aliases import VITS
from smallvit.models.features import Backbone, made_up_images
from smallvit.models.gradient_checkpointing import checkpointed
from smallvit.models.sharing import in_parts

OTHERS = ("zhu_vit_patch4_32", "spt_lsa_vit_32", "cct_7_3x2_32", "t2t_nano")


class Visible(NamedTuple):
    """What comes out of the model's last norm, and the vector that its classifier would stand on."""

    front_BPD: Tensor
    cells_BVD: Tensor
    pooled_BD: Tensor


def encode_visible(backbone: Backbone, images_BCSS: Tensor, visible_BV: Tensor) -> Visible:
    """The features of images of which the model sees these cells, counted row by row."""
    model: Any = backbone.model
    front = model.num_prefix_tokens

    def forward(images_BCSS: Tensor, visible_BV: Tensor) -> tuple[Tensor, Tensor]:
        images_BCSS = blanked(images_BCSS, visible_BV, backbone.final_grid)
        tokens_BMD = model._pos_embed(model.patch_embed(images_BCSS.contiguous(memory_format=backbone.memory_format)))
        places_BVD = visible_BV[:, :, None].expand(-1, -1, tokens_BMD.shape[2])
        seen_BVD = tokens_BMD[:, front:].gather(1, places_BVD)
        seen_BMD = model.norm_pre(torch.cat([tokens_BMD[:, :front], seen_BVD], dim=1))
        again = model.grad_checkpointing and torch.is_grad_enabled()
        for block in model.blocks:
            seen_BMD = checkpointed(block, seen_BMD) if again else block(seen_BMD)
        final_BMD = model.norm(seen_BMD)
        return final_BMD, model.forward_head(final_BMD, pre_logits=True)

    final_BMD, pooled_BD = in_parts(forward, images_BCSS, visible_BV)
    return Visible(final_BMD[:, :front], final_BMD[:, front:], pooled_BD)


def blanked(images_BCSS: Tensor, visible_BV: Tensor, grid: tuple[int, ...]) -> Tensor:
    """The images with zeros, which is their mean colour, wherever a cell is not visible."""
    height, width = grid
    shown_BN = images_BCSS.new_zeros(len(images_BCSS), height * width).scatter(1, visible_BV, 1.0)
    rows, columns = images_BCSS.shape[-2] // height, images_BCSS.shape[-1] // width
    shown_BHW = shown_BN.unflatten(1, (height, width))
    shown_BSS = shown_BHW.repeat_interleave(rows, dim=1).repeat_interleave(columns, dim=2)
    return images_BCSS * shown_BSS[:, None]


@torch.no_grad()
def check_visible(backbone: Backbone, wish: str) -> None:
    """Refuse a model that cannot do it: one that sees all cells must get what the model itself makes of the image."""
    model: Any = backbone.model
    names = f"take {', '.join((*VITS, *OTHERS))} or another VisionTransformer of timm"
    if not isinstance(model, VisionTransformer):
        raise UsageError(f"{wish}: {type(model).__name__} needs the tokens of the whole image; {names}")
    size, grid = backbone.img_size, backbone.final_grid
    if math.prod(grid) < 2 or any(size % side for side in grid):
        shape = f"{grid[0]} x {grid[1]} cells"
        raise UsageError(
            f"{wish}: images of {size} px are not cut evenly into several ({shape}); take another --img-size"
        )
    backbone.eval()
    images = made_up_images(backbone, size)
    every_BN = torch.arange(grid[0] * grid[1]).expand(len(images), -1)
    seen = encode_visible(backbone, images, every_BN)
    agrees = torch.allclose(
        torch.cat([seen.front_BPD, seen.cells_BVD], dim=1), model.forward_features(images), atol=1e-4
    )
    if not agrees:
        raise UsageError(f"{wish}: {type(model).__name__} has layers of its own between patches and blocks; {names}")
