"""CCT, the Compact Convolutional Transformer (Hassani et al., 2021): tokens from convolutions, no class token.

A 3x3 convolution and a pooling that halves the image take the place of patches; at the end the tokens are averaged
with weights that they give themselves. B images, C channels, H by W pixels or cells, N tokens, D width.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from timm.layers import Attention, DropPath, Mlp
from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from smallvit.models.architectures.embedding import Size, TokenGrid
from smallvit.models.architectures.zhu import renamed
from smallvit.models.registry import config

default_cfgs = generate_default_cfgs(
    {
        name: config(32, "patch_embed.conv_layers.0.0", "head", fixed_size=True, paper="Hassani 2021")
        for name in ("cct_7_3x1_32", "cct_7_3x2_32")
    }
)


class Cct(VisionTransformer):
    """timm's ViT around other tokens, other blocks and another pooling (`global_pool="map"`, of one weight a token)."""

    def __init__(
        self,
        img_size: Size = 32,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: str = "map",
        embed_dim: int = 256,
        depth: int = 7,
        num_heads: int = 4,
        mlp_ratio: float = 2.0,
        n_conv: int = 1,
        drop_rate: float = 0.0,
        pos_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.1,
        drop_path_rate: float = 0.1,
    ) -> None:
        super().__init__(
            img_size=img_size, patch_size=2**n_conv, in_chans=in_chans, num_classes=num_classes,
            global_pool="avg" if global_pool == "map" else global_pool,
            embed_dim=embed_dim, depth=depth, num_heads=num_heads, mlp_ratio=mlp_ratio,
            drop_rate=drop_rate, pos_drop_rate=pos_drop_rate, proj_drop_rate=proj_drop_rate,
            attn_drop_rate=attn_drop_rate, drop_path_rate=drop_path_rate,
            class_token=False, qkv_bias=False, fc_norm=False, norm_layer=partial(nn.LayerNorm, eps=1e-5),
            embed_layer=partial(ConvTokenizer, n_conv=n_conv), block_fn=CctBlock,
        )  # fmt: skip
        nn.init.trunc_normal_(self.pos_embed, std=0.2)
        if global_pool == "map":
            self.attn_pool = SequencePool(embed_dim)
            self.global_pool = global_pool

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        return {"pos_embed"}

    def from_authors(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return {renamed(name, _NAMES): tensor for name, tensor in state_dict.items()}


_NAMES = [
    (r"^tokenizer\.conv_layers\.", "patch_embed.conv_layers."),
    (r"^classifier\.positional_emb$", "pos_embed"),
    (r"^classifier\.attention_pool\.", "attn_pool.weight_of."),
    (r"^classifier\.norm\.", "norm."),
    (r"^classifier\.fc\.", "head."),
    # norm1 before pre_norm: the authors count the norm in front of the attention apart.
    (r"^classifier\.blocks\.(\d+)\.norm1\.", r"blocks.\1.norm2."),
    (r"^classifier\.blocks\.(\d+)\.pre_norm\.", r"blocks.\1.norm1."),
    (r"^classifier\.blocks\.(\d+)\.self_attn\.", r"blocks.\1.attn."),
    (r"^classifier\.blocks\.(\d+)\.linear([12])\.", r"blocks.\1.mlp.fc\2."),
]


class ConvTokenizer(TokenGrid):
    """`n_conv` times: a 3x3 convolution without bias, ReLU, and a maximum over 3x3 with stride 2."""

    def __init__(
        self, img_size: Size, patch_size: Size, in_chans: int, embed_dim: int, n_conv: int, **_vit_options: Any
    ) -> None:
        super().__init__(img_size, patch_size)
        widths = [in_chans, *[64] * (n_conv - 1), embed_dim]
        self.conv_layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
            )
            for before, after in pairwise(widths)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.check_size(images_BCHW)
        map_BDHW = images_BCHW
        for layer in self.conv_layers:
            map_BDHW = layer(map_BDHW)
        return map_BDHW.flatten(2).transpose(1, 2)


class CctBlock(nn.Module):
    """Attention and MLP; the second residual starts from the normalised tokens, not from what came in."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float,
        qkv_bias: bool,
        proj_drop: float,
        attn_drop: float,
        drop_path: float,
        norm_layer: Any,
        act_layer: Any,
        **_vit_options: Any,
    ) -> None:
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = Attention(dim, num_heads, qkv_bias=qkv_bias, attn_drop=attn_drop, proj_drop=proj_drop)
        self.norm2 = norm_layer(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act_layer=act_layer, drop=proj_drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, x_BND: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        x_BND = x_BND + self.drop_path(self.attn(self.norm1(x_BND), attn_mask=attn_mask, is_causal=is_causal))
        x_BND = self.norm2(x_BND)
        return x_BND + self.drop_path(self.mlp(x_BND))


class SequencePool(nn.Module):
    """The mean of the tokens, weighted by a softmax over what one linear layer says of each."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight_of = nn.Linear(dim, 1)
        nn.init.trunc_normal_(self.weight_of.weight, std=0.02)
        nn.init.zeros_(self.weight_of.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        weights_B1N = self.weight_of(x_BND).softmax(dim=1).transpose(1, 2)
        return (weights_B1N @ x_BND).squeeze(1)


# ---- timm --------------------------------------------------------------------------------------------


def _cct(name: str, pretrained: bool, **kwargs: Any) -> Cct:
    features = {"out_indices": 3, "feature_cls": "getter"}
    return build_model_with_cfg(Cct, name, pretrained, feature_cfg=features, **kwargs)


@register_model
def cct_7_3x1_32(pretrained: bool = False, **kwargs: Any) -> Cct:
    """CCT-7/3x1: width 256, 7 blocks, 4 heads, one convolution (16x16 tokens at 32 px)."""
    return _cct("cct_7_3x1_32", pretrained, **{"n_conv": 1, **kwargs})


@register_model
def cct_7_3x2_32(pretrained: bool = False, **kwargs: Any) -> Cct:
    """CCT-7/3x2: a quarter of the work, by two convolutions (8x8 tokens at 32 px)."""
    return _cct("cct_7_3x2_32", pretrained, **{"n_conv": 2, **kwargs})
