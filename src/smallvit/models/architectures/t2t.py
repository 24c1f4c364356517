"""T2T-ViT: overlapping windows of the image become tokens step by step, then an ordinary ViT reads them.

A soft split cuts a map into overlapping windows, flattens each, and a small attention module narrows it to a token;
the tokens are laid out as a map again and split again. Strides alone decide how many tokens are left: the weights of
any choice have the same shapes. Positions are fixed sinusoids over the raster order of the tokens.

B images, C channels, H by W cells, N tokens, K values in a window, T token width, D width, R random features.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from timm.layers import Mlp, resample_abs_pos_embed, to_2tuple, trunc_normal_
from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from smallvit.models.registry import config

# The first layer is no convolution: nothing for timm to adapt to other channels.
default_cfgs = generate_default_cfgs(
    {
        name: {**config(size, "", "head", fixed_size=True, paper=paper), "first_conv": None}
        for name, size, paper in (
            ("t2t_vit_7", 224, "Yuan 2021"),
            ("t2t_vit_14", 224, "Yuan 2021"),
            ("t2t_vit_t_14", 224, "Yuan 2021"),
            ("t2t_nano", 32, ""),
        )
    }
)


def strides_for(img_size: int) -> tuple[int, int, int]:
    """The three strides that leave about 8 x 8 tokens at 32 and 64 px, and the authors' 14 x 14 at 224."""
    if img_size < 16:
        return 1, 2, 1
    return (1, 2, 2) if img_size <= 48 else (2, 2, 2) if img_size <= 112 else (4, 2, 2)


def nano_strides_for(img_size: int) -> tuple[int, int, int]:
    """As many tokens, from fewer windows: a step of `t2t_nano` takes about half the time."""
    if img_size < 16:
        return 2, 1, 1
    return (2, 2, 1) if img_size <= 48 else (4, 2, 1) if img_size <= 112 else (4, 2, 2)


class T2tVit(VisionTransformer):
    """timm's ViT on tokens from `TokensToToken`, with fixed positions."""

    pos_embed: Tensor

    def __init__(
        self,
        *,
        strides: Sequence[int] = (4, 2, 2),
        kernels: Sequence[int] = (7, 3, 3),
        tokens: str = "performer",
        token_dim: int = 64,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            patch_size=math.prod(strides),
            embed_layer=partial(
                TokensToToken, strides=strides, kernels=kernels, attention=TOKEN_ATTENTION[tokens], token_dim=token_dim
            ),
            pos_embed="none",
            qkv_bias=False,
            norm_layer=partial(nn.LayerNorm, eps=1e-5),
            **kwargs,
        )
        if self.cls_token is not None:
            trunc_normal_(self.cls_token, std=0.02)
        del self.pos_embed
        count = self.num_prefix_tokens + self.patch_embed.num_patches
        self.register_buffer("pos_embed", sinusoids(count, self.embed_dim).to(self.patch_embed.project.weight))

    def set_input_size(self, img_size: int | tuple[int, int]) -> None:
        """Other images for trained weights: the positions are stretched over the new grid, as timm does."""
        before = self.patch_embed.grid_size
        self.patch_embed.set_input_size(img_size)
        self.pos_embed = self._stretched(self.pos_embed, before)

    def from_authors(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """The authors' names and positions (of a square image) as ours."""
        ours = {}
        for key, tensor in state_dict.items():
            name = re.sub(r"^tokens_to_token\.", "patch_embed.", key)
            name = re.sub(r"\.attention(\d)\.", lambda match: f".attention.{int(match[1]) - 1}.", name)
            ours[name] = self._stretched(tensor, None) if name == "pos_embed" else tensor
        return ours

    def _stretched(self, positions: Tensor, grid: tuple[int, int] | None) -> Tensor:
        """Bicubic on the grid as in the authors' code; the rows of the class token stay."""
        return resample_abs_pos_embed(
            positions, self.patch_embed.grid_size, grid, num_prefix_tokens=self.num_prefix_tokens, antialias=False
        )


def sinusoids(count: int, width: int) -> Tensor:
    """(1, count, width): sines in even columns, cosines in odd ones; computed in float64."""
    position_N1 = torch.arange(count, dtype=torch.float64)[:, None]
    pair_D = torch.arange(width) // 2
    angle_ND = position_N1 / 10000 ** (2 * pair_D.double() / width)
    table_ND = torch.where(torch.arange(width) % 2 == 0, angle_ND.sin(), angle_ND.cos())
    return table_ND[None].float()


class TokensToToken(nn.Module):
    """Stands where timm has a patch embedding: image in, tokens out."""

    def __init__(
        self,
        img_size: int | tuple[int, int],
        in_chans: int,
        embed_dim: int,
        *,
        strides: Sequence[int],
        kernels: Sequence[int],
        attention: type[nn.Module],
        token_dim: int,
        patch_size: int,
        bias: bool,
        dynamic_img_pad: bool,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if len(strides) != len(kernels) or len(strides) < 2:
            raise ValueError(f"T2T needs a stride and a kernel for each of at least two splits: {strides}, {kernels}")
        if dynamic_img_pad:
            raise ValueError("T2T takes images of one size: dynamic_img_pad is not for it")
        self.patch_size = to_2tuple(patch_size)
        # Windows hang over both edges alike, so that a stride that divides the image leaves size / stride of them.
        self.splits = [
            {"kernel_size": kernel, "stride": stride, "padding": (kernel - stride + 1) // 2}
            for kernel, stride in zip(kernels, strides, strict=True)
        ]
        widths = [in_chans, *[token_dim] * (len(strides) - 1)]
        windows = [width * kernel**2 for width, kernel in zip(widths, kernels, strict=True)]
        self.attention = nn.ModuleList(attention(window, token_dim) for window in windows[:-1])
        self.project = nn.Linear(windows[-1], embed_dim, bias=bias)
        self.to(device=device, dtype=dtype)
        self.set_input_size(img_size)

    def set_input_size(self, img_size: int | tuple[int, int]) -> None:
        self.img_size: tuple[int, int] = to_2tuple(img_size)
        self.grids: list[tuple[int, int]] = []
        height, width = self.img_size
        for split in self.splits:
            height, width = (
                (side + 2 * split["padding"] - split["kernel_size"]) // split["stride"] + 1 for side in (height, width)
            )
            self.grids.append((height, width))
        self.grid_size = self.grids[-1]
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        if min(self.grid_size) < 1:
            sides = " x ".join(map(str, self.img_size))
            raise ValueError(f"images of {sides} px are smaller than the first window of T2T: take smaller strides")

    def feat_ratio(self) -> int:
        return self.patch_size[0]

    def dynamic_feat_size(self, img_size: tuple[int, int]) -> tuple[int, int]:
        return self.grid_size

    def forward(self, images_BCHW: Tensor) -> Tensor:
        if images_BCHW.shape[-2:] != self.img_size:
            given, wanted = (" x ".join(map(str, sides)) for sides in (images_BCHW.shape[-2:], self.img_size))
            raise ValueError(f"images of {given} px for a T2T-ViT that was built for {wanted} px")
        map_BCHW = images_BCHW
        for attention, split, grid in zip(self.attention, self.splits[:-1], self.grids[:-1], strict=True):
            x_BNT = attention(F.unfold(map_BCHW, **split).transpose(1, 2))
            map_BCHW = x_BNT.transpose(1, 2).unflatten(2, grid)
        return self.project(F.unfold(map_BCHW, **self.splits[-1]).transpose(1, 2))


class SoftmaxTokens(nn.Module):
    """Windows to tokens by ordinary attention of one head. The skip starts at v: the widths of the input differ."""

    def __init__(self, window: int, token_dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(window)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(window, 3 * token_dim, bias=False), "proj": nn.Linear(token_dim, token_dim)}
        )
        self.norm2 = nn.LayerNorm(token_dim)
        self.mlp = Mlp(token_dim, token_dim)
        self.scale = window**-0.5  # of the input's width, as the authors' code has it

    def forward(self, x_BNK: Tensor) -> Tensor:
        q_BNT, k_BNT, v_BNT = self.attn["qkv"](self.norm1(x_BNK)).chunk(3, dim=-1)
        q_B1NT, k_B1NT, v_B1NT = (tensor.unsqueeze(1) for tensor in (q_BNT, k_BNT, v_BNT))
        seen_BNT = F.scaled_dot_product_attention(q_B1NT, k_B1NT, v_B1NT, scale=self.scale).squeeze(1)
        x_BNT = v_BNT + self.attn["proj"](seen_BNT)
        return x_BNT + self.mlp(self.norm2(x_BNT))


class PerformerTokens(nn.Module):
    """Windows to tokens at a cost linear in their number: random features stand for the softmax kernel."""

    w: Tensor

    def __init__(self, window: int, token_dim: int) -> None:
        super().__init__()
        features = token_dim // 2
        self.norm1 = nn.LayerNorm(window)
        self.kqv = nn.Linear(window, 3 * token_dim)
        self.proj = nn.Linear(token_dim, token_dim)
        self.norm2 = nn.LayerNorm(token_dim)
        # The authors' dropout in here is always on, whatever the model's rates are.
        self.drop = nn.Dropout(0.1)
        self.mlp = nn.Sequential(
            nn.Linear(token_dim, token_dim), nn.GELU(), nn.Linear(token_dim, token_dim), nn.Dropout(0.1)
        )
        self.register_buffer("w", nn.init.orthogonal_(torch.empty(features, token_dim)) * math.sqrt(features))

    def forward(self, x_BNK: Tensor) -> Tensor:
        # The exponentials below overflow or round away in half precision.
        with torch.autocast(x_BNK.device.type, enabled=False):
            k_BNT, q_BNT, v_BNT = self.kqv(self.norm1(x_BNK.to(self.kqv.weight.dtype))).chunk(3, dim=-1)
            k_BNR, q_BNR = self._features(k_BNT), self._features(q_BNT)
            total_BN1 = q_BNR @ k_BNR.sum(dim=1).unsqueeze(2)
            seen_BNT = q_BNR @ (k_BNR.transpose(1, 2) @ v_BNT.to(k_BNR.dtype)) / (total_BN1 + 1e-8)
            x_BNT = v_BNT + self.drop(self.proj(seen_BNT.to(v_BNT.dtype)))
            return x_BNT + self.mlp(self.norm2(x_BNT))

    def _features(self, x_BNT: Tensor) -> Tensor:
        x_BNT = x_BNT.to(torch.promote_types(x_BNT.dtype, torch.float32))
        half_norm_BN1 = x_BNT.square().sum(dim=-1, keepdim=True) / 2
        return (x_BNT @ self.w.to(x_BNT.dtype).T - half_norm_BN1).exp() / math.sqrt(len(self.w))


TOKEN_ATTENTION: dict[str, type[nn.Module]] = {"performer": PerformerTokens, "transformer": SoftmaxTokens}


def _t2t(name: str, pretrained: bool, **kwargs: Any) -> T2tVit:
    feature_cfg = {"out_indices": kwargs.pop("out_indices", 3), "feature_cls": "getter"}
    return build_model_with_cfg(T2tVit, name, pretrained, feature_cfg=feature_cfg, **kwargs)


@register_model
def t2t_vit_7(pretrained: bool = False, **kwargs: Any) -> T2tVit:
    """T2T-ViT-7: width 256, 7 blocks, 4 heads, performer tokens."""
    shape = {"embed_dim": 256, "depth": 7, "num_heads": 4, "mlp_ratio": 2.0}
    return _t2t("t2t_vit_7", pretrained, **{**shape, **kwargs})


@register_model
def t2t_vit_14(pretrained: bool = False, **kwargs: Any) -> T2tVit:
    """T2T-ViT-14: width 384, 14 blocks, 6 heads, performer tokens."""
    shape = {"embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3.0}
    return _t2t("t2t_vit_14", pretrained, **{**shape, **kwargs})


@register_model
def t2t_vit_t_14(pretrained: bool = False, **kwargs: Any) -> T2tVit:
    """T2T-ViT-14 with softmax attention between the windows."""
    shape = {"embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3.0, "tokens": "transformer"}
    return _t2t("t2t_vit_t_14", pretrained, **{**shape, **kwargs})


@register_model
def t2t_nano(pretrained: bool = False, **kwargs: Any) -> T2tVit:
    """A T2T-ViT for 32 px: width 64, 6 blocks, 4 heads, performer tokens of 32; Xavier's initial weights."""
    shape = {"img_size": 32, "embed_dim": 64, "depth": 6, "num_heads": 4, "mlp_ratio": 2.0, "token_dim": 32}
    started = {"strides": (2, 2, 1), "weight_init": "jax"}
    return _t2t("t2t_nano", pretrained, **{**shape, **started, **kwargs})
