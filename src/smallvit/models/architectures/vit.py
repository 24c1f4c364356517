"""Laptop-sized ViTs: timm's VisionTransformer at 0.1 and 0.2 M parameters.

Six blocks, so that there are layers to look into, and an MLP of twice the width, so that they stay small. The
initial weights suit the width: the usual deviation of 0.02 is far too small for 64 channels, and positions that are
small beside the patches are found late. On 1,000 digits after 20 epochs: 83 against 34 % (docs/papers/lu2022.md).
"""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from smallvit.models.architectures.spt_lsa import local_layers
from smallvit.models.registry import config

default_cfgs = generate_default_cfgs(
    {name: config(32, "patch_embed.proj", "head", fixed_size=True) for name in ("vit_nano", "vit_pico")}
)


class SmallVit(VisionTransformer):
    """timm's ViT, started for a small width: Xavier in attention and MLP, positions as large as the patches.

    `spt` cuts the patches out of the image and its shifts, `lsa` keeps tokens from attending to themselves.
    """

    def __init__(
        self, *args: Any, weight_init: str = "jax", spt: bool = False, lsa: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, weight_init=weight_init, **local_layers(spt, lsa), **kwargs)
        if self.pos_embed is not None:
            nn.init.normal_(self.pos_embed, std=0.5)


def _vit(name: str, pretrained: bool, **kwargs: Any) -> SmallVit:
    shape = {"img_size": 32, "patch_size": 4, "depth": 6, "mlp_ratio": 2.0}
    features = {"out_indices": 3, "feature_cls": "getter"}
    return build_model_with_cfg(SmallVit, name, pretrained, feature_cfg=features, **{**shape, **kwargs})


@register_model
def vit_nano(pretrained: bool = False, **kwargs: Any) -> SmallVit:
    """A small ViT: width 64, 6 blocks, 4 heads, patch 4."""
    return _vit("vit_nano", pretrained, **{"embed_dim": 64, "num_heads": 4, **kwargs})


@register_model
def vit_pico(pretrained: bool = False, **kwargs: Any) -> SmallVit:
    """A smaller ViT: width 48, 6 blocks, 3 heads, patch 4."""
    return _vit("vit_pico", pretrained, **{"embed_dim": 48, "num_heads": 3, **kwargs})
