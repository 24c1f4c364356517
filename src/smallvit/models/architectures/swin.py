"""A laptop-sized Swin: timm's SwinTransformer at 0.2 M parameters, three stages that take 32 px to a 4x4 grid.

The initial weights suit the width, as in `vit.py`: Xavier instead of a deviation of 0.02.
"""

from __future__ import annotations

from typing import Any

from timm.layers import to_2tuple
from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.swin_transformer import SwinTransformer, SwinTransformerBlock, WindowAttention

from smallvit.models.registry import config

default_cfgs = generate_default_cfgs({"swin_nano": config(32, "patch_embed.proj", "head.fc", fixed_size=True)})


class SmallSwin(SwinTransformer):
    """timm's Swin whose windows fit odd grids.

    Merging rounds an odd grid up (7 x 7 to 4 x 4), but timm plans windows and masks for one rounded down: at some
    sizes too small a window, at others (50 px) an error.
    """

    def __init__(self, *, window_size: int | tuple[int, int] = 4, weight_init: str = "jax", **kwargs: Any) -> None:
        super().__init__(window_size=window_size, weight_init="skip", **kwargs)
        grid = self.patch_embed.grid_size
        for i, stage in enumerate(self.layers):
            grid = tuple((side + 1) // 2 for side in grid) if i else grid
            for block in stage.blocks:
                if block.input_resolution != grid:
                    _plan(block, grid, to_2tuple(window_size))
        self.weight_init_mode = weight_init
        self.init_weights(needs_reset=False)


def _plan(block: SwinTransformerBlock, grid: tuple[int, int], window_size: tuple[int, int]) -> None:
    """Windows for the grid that is really there. A new attention, because timm cannot resize a window that is not square."""
    block.attn = WindowAttention(
        block.dim,
        block.attn.num_heads,
        window_size=tuple(map(min, grid, window_size)),
        qkv_bias=block.attn.qkv.bias is not None,
        attn_drop=block.attn.attn_drop.p,
        proj_drop=block.attn.proj_drop.p,
    )
    block.set_input_size(grid, window_size)


@register_model
def swin_nano(pretrained: bool = False, **kwargs: Any) -> SmallSwin:
    """A small Swin: widths 24, 48, 96; two blocks each; patch 2, windows of 4."""
    shape = {"img_size": 32, "patch_size": 2, "embed_dim": 24, "depths": (2, 2, 2), "num_heads": (2, 4, 8)}
    small = {"mlp_ratio": 2.0, "drop_path_rate": 0.0}
    feature_cfg = {"flatten_sequential": True, "out_indices": kwargs.pop("out_indices", (0, 1, 2))}
    return build_model_with_cfg(
        SmallSwin, "swin_nano", pretrained, feature_cfg=feature_cfg, **{**shape, **small, **kwargs}
    )
