"""The small ViT of Zhu et al. (2023): 9.5 M parameters at 32 px, the one whose attention and CKA they look into.

Width 512, six blocks of eight heads, an MLP no wider than the tokens, dropout 0.1. The classifier normalises the
class token alone: the blocks end without a norm. Patch 4 is what their CKA script uses, patch 8 what they train.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from smallvit.models.architectures.embedding import Size
from smallvit.models.registry import config

default_cfgs = generate_default_cfgs(
    {
        name: config(32, "patch_embed.proj", "head", fixed_size=True, paper="Zhu 2023")
        for name in ("zhu_vit_patch4_32", "zhu_vit_patch8_32")
    }
)


class ZhuVit(VisionTransformer):
    """timm's ViT with the norm behind the pooling, no bias in q, k and v, and torch's own initial weights."""

    def __init__(
        self,
        img_size: Size = 32,
        patch_size: Size = 4,
        embed_dim: int = 512,
        depth: int = 6,
        num_heads: int = 8,
        mlp_ratio: float = 1.0,
        proj_drop_rate: float = 0.1,
        pos_drop_rate: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            img_size=img_size, patch_size=patch_size, embed_dim=embed_dim, depth=depth, num_heads=num_heads,
            mlp_ratio=mlp_ratio, proj_drop_rate=proj_drop_rate, pos_drop_rate=pos_drop_rate,
            qkv_bias=False, fc_norm=True, norm_layer=partial(nn.LayerNorm, eps=1e-5), weight_init="reset", **kwargs,
        )  # fmt: skip
        for table in (self.pos_embed, self.cls_token):
            if table is not None:
                nn.init.normal_(table)

    def from_authors(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return from_vit_pytorch(state_dict, self.patch_embed.patch_size)


# ---- the authors' names ------------------------------------------------------------------------------

_NAMES = [
    (r"^pos_embedding$", "pos_embed"),
    (r"^to_patch_embedding\.1\.", "patch_embed.proj."),
    (r"^transformer\.layers\.(\d+)\.0\.norm\.", r"blocks.\1.norm1."),
    (r"^transformer\.layers\.(\d+)\.0\.fn\.to_qkv\.", r"blocks.\1.attn.qkv."),
    (r"^transformer\.layers\.(\d+)\.0\.fn\.to_out\.0\.", r"blocks.\1.attn.proj."),
    (r"^transformer\.layers\.(\d+)\.1\.norm\.", r"blocks.\1.norm2."),
    (r"^transformer\.layers\.(\d+)\.1\.fn\.net\.0\.", r"blocks.\1.mlp.fc1."),
    (r"^transformer\.layers\.(\d+)\.1\.fn\.net\.3\.", r"blocks.\1.mlp.fc2."),
    (r"^mlp_head\.0\.", "fc_norm."),
    (r"^mlp_head\.1\.", "head."),
]


def from_vit_pytorch(state_dict: dict[str, Tensor], patch: tuple[int, int] | None) -> dict[str, Tensor]:
    """Names and patches of vit-pytorch's ViT as timm has them. Names that it does not use are left alone.

    Its patches are flattened by row, column and channel and go through a linear layer; timm's is a convolution.
    Where ours is a linear layer too, `patch` is None.
    """
    ours = {renamed(name, _NAMES): tensor for name, tensor in state_dict.items()}
    weight = ours.get("patch_embed.proj.weight")
    if patch and weight is not None and weight.ndim == 2 and weight.shape[1] % (patch[0] * patch[1]) == 0:
        ours["patch_embed.proj.weight"] = weight.reshape(len(weight), *patch, -1).permute(0, 3, 1, 2)
    return ours


def renamed(name: str, rules: list[tuple[str, str]]) -> str:
    """`name` after every rule (pattern, replacement) whose pattern is found in it."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


# ---- timm --------------------------------------------------------------------------------------------


def _zhu(name: str, pretrained: bool, **kwargs: Any) -> ZhuVit:
    features = {"out_indices": 3, "feature_cls": "getter"}
    return build_model_with_cfg(ZhuVit, name, pretrained, feature_cfg=features, **kwargs)


@register_model
def zhu_vit_patch4_32(pretrained: bool = False, **kwargs: Any) -> ZhuVit:
    """The ViT of Zhu et al.: width 512, 6 blocks, 8 heads, patch 4 (8x8 tokens at 32 px)."""
    return _zhu("zhu_vit_patch4_32", pretrained, **{"patch_size": 4, **kwargs})


@register_model
def zhu_vit_patch8_32(pretrained: bool = False, **kwargs: Any) -> ZhuVit:
    """As zhu_vit_patch4_32 with patch 8 (4x4 tokens at 32 px)."""
    return _zhu("zhu_vit_patch8_32", pretrained, **{"patch_size": 8, **kwargs})
