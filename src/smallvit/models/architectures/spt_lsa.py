"""SPT and LSA (Lee et al., 2021): two parts that make a ViT look near by, and the ViT of their paper.

Shifted patch tokenization lets every patch see half a patch beyond its border. Locality self-attention keeps a token
from attending to itself and learns how sharp each head is. `SmallVit` takes either as a switch.
B images, C channels, H by W pixels, h by w tokens of p by q pixels, N tokens, M heads, K width of a head, D width.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import Attention, DropPath
from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from smallvit.models.architectures.embedding import Size, TokenGrid
from smallvit.models.architectures.zhu import from_vit_pytorch, renamed
from smallvit.models.registry import config

default_cfgs = generate_default_cfgs(
    {"spt_lsa_vit_32": config(32, "patch_embed.proj", "head", fixed_size=True, paper="Lee 2021")}
)


def local_layers(spt: bool, lsa: bool) -> dict[str, Any]:
    """The arguments that give timm's ViT the parts that are switched on."""
    return {
        **({"embed_layer": ShiftedPatchEmbed} if spt else {}),
        **({"attn_layer": LocalityAttention} if lsa else {}),
    }


class ShiftedPatchEmbed(TokenGrid):
    """The image and its four diagonal shifts by half a patch, side by side; then patches, a norm, a linear layer."""

    def __init__(
        self,
        img_size: Size,
        patch_size: Size,
        in_chans: int,
        embed_dim: int,
        bias: bool = True,
        dynamic_img_pad: bool = False,
        strict_img_size: bool = True,
        output_fmt: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(img_size, patch_size)
        if min(self.patch_size) < 2:
            raise ValueError(f"shifting by half a patch needs a patch of 2 px or more, not {min(self.patch_size)}")
        if dynamic_img_pad:
            raise ValueError("shifted patches are not padded: dynamic_img_pad must be False")
        if any(side % patch for side, patch in zip(self.img_size, self.patch_size, strict=True)):
            raise ValueError(f"patches of {self.patch_size} px do not divide images of {self.img_size} px")
        self.strict_img_size = strict_img_size
        self.flatten = output_fmt is None  # timm asks for NHWC when the size of the images may change
        seen = 5 * in_chans * self.patch_size[0] * self.patch_size[1]
        self.norm = nn.LayerNorm(seen, device=device, dtype=dtype)
        self.proj = nn.Linear(seen, embed_dim, bias=bias, device=device, dtype=dtype)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        if self.strict_img_size:
            self.check_size(images_BCHW)
        p, q = self.patch_size
        views_BCHW = with_diagonal_shifts(images_BCHW, p // 2, q // 2)
        # Within a patch by row, column and channel, the channel fastest: the order of the authors' weights.
        patches_BhwX = views_BCHW.unflatten(3, (-1, q)).unflatten(2, (-1, p)).permute(0, 2, 4, 3, 5, 1).flatten(3)
        tokens_BhwD = self.proj(self.norm(patches_BhwX))
        return tokens_BhwD.flatten(1, 2) if self.flatten else tokens_BhwD


def with_diagonal_shifts(images_BCHW: Tensor, rows: int, columns: int) -> Tensor:
    """Five times the channels: as it is, then moved down-right, down-left, up-right, up-left; zeros move in."""
    height, width = images_BCHW.shape[-2:]
    padded = F.pad(images_BCHW, (columns, columns, rows, rows))
    corners = [(0, 0), (0, 2 * columns), (2 * rows, 0), (2 * rows, 2 * columns)]
    shifted = [padded[:, :, top : top + height, left : left + width] for top, left in corners]
    return torch.cat([images_BCHW, *shifted], dim=1)


class LocalityAttention(Attention):
    """timm's attention with a learnable scale per head, in which no token attends to itself."""

    def __init__(self, dim: int, num_heads: int = 8, **kwargs: Any) -> None:
        super().__init__(dim, num_heads, **kwargs)
        self.scale = nn.Parameter(self.qkv.weight.new_full((num_heads,), self.head_dim**-0.5))

    def forward(self, x_BND: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        if is_causal:
            raise ValueError(
                "with locality self-attention the first token of a causal sequence would attend to nothing"
            )
        batch, tokens, _ = x_BND.shape
        qkv = self.qkv(x_BND).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q_BMNK, k_BMNK, v_BMNK = qkv.unbind(0)
        q_BMNK, k_BMNK = self.q_norm(q_BMNK), self.k_norm(k_BMNK)
        q_BMNK = q_BMNK * self.scale.to(q_BMNK.dtype)[:, None, None]
        x_BMNK = F.scaled_dot_product_attention(
            q_BMNK, k_BMNK, v_BMNK,
            attn_mask=_without_itself(attn_mask, tokens, q_BMNK),
            dropout_p=self.attn_drop.p if self.training else 0.0,
            scale=1.0,
        )  # fmt: skip
        return self.proj_drop(self.proj(self.norm(x_BMNK.transpose(1, 2).flatten(2))))


def _without_itself(attn_mask: Tensor | None, tokens: int, like: Tensor) -> Tensor:
    """A mask to add: minus infinity on the diagonal, beside what else must not be looked at."""
    itself = torch.eye(tokens, dtype=torch.bool, device=like.device)
    if attn_mask is None:
        attn_mask = like.new_zeros(tokens, tokens)
    elif attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=like.dtype).masked_fill(~attn_mask, float("-inf"))
    return attn_mask.masked_fill(itself, float("-inf"))


# ---- the ViT of the paper ----------------------------------------------------------------------------


class SptLsaVit(VisionTransformer):
    """Width 192, nine blocks of twelve heads; stochastic depth of the same rate in every block."""

    def __init__(
        self,
        img_size: Size = 32,
        patch_size: Size = 4,
        embed_dim: int = 192,
        depth: int = 9,
        num_heads: int = 12,
        mlp_ratio: float = 2.0,
        drop_path_rate: float = 0.1,
        spt: bool = True,
        lsa: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            img_size=img_size, patch_size=patch_size, embed_dim=embed_dim, depth=depth, num_heads=num_heads,
            mlp_ratio=mlp_ratio, qkv_bias=False, fc_norm=True, norm_layer=partial(nn.LayerNorm, eps=1e-5),
            weight_init="reset", **local_layers(spt, lsa), **kwargs,
        )  # fmt: skip
        for table in (self.pos_embed, self.cls_token):
            if table is not None:
                nn.init.normal_(table)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            block.drop_path1, block.drop_path2 = DropPath(drop_path_rate), DropPath(drop_path_rate)

    def from_authors(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        rules = [
            (r"^to_patch_embedding\.merging\.1\.", "patch_embed.norm."),
            (r"^to_patch_embedding\.merging\.2\.", "patch_embed.proj."),
            (r"^transformer\.layers\.(\d+)\.0\.fn\.scale$", r"blocks.\1.attn.scale"),
        ]
        shifted = isinstance(self.patch_embed, ShiftedPatchEmbed)
        ours = {renamed(name, rules): tensor for name, tensor in state_dict.items()}
        return from_vit_pytorch(ours, None if shifted else self.patch_embed.patch_size)


@register_model
def spt_lsa_vit_32(pretrained: bool = False, **kwargs: Any) -> SptLsaVit:
    """A ViT of width 192, 9 blocks, 12 heads, patch 4, with shifted patches and locality self-attention."""
    features = {"out_indices": 3, "feature_cls": "getter"}
    return build_model_with_cfg(SptLsaVit, "spt_lsa_vit_32", pretrained, feature_cfg=features, **kwargs)
