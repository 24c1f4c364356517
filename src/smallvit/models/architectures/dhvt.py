"""DHVT: a ViT with the biases of a CNN, for small data sets.

Lu et al. 2022, "Bridging the Gap Between Vision Transformers and Convolutional Neural Networks on Small Datasets".
Patches come from overlapping convolutions (SOPE), the feed-forward mixes neighbours (DAFF), each head sends a token into
the attention (HI-MHSA), and there are no position embeddings. Each of the four is a switch, so that every row of the
paper's Tables 5 and 6 is a model; with `positions` on and the other three off it is a DeiT.

Where the paper and the authors' code differ, this follows the code, which gives the published parameter counts:
- Eq. 2 has a GELU after every convolution of the stem; the code has none after the last one (patches 4 and 16), but one
  after the only one (patch 2). Patch 8, which neither has, follows 4 and 16.
- Eq. 6 makes head tokens with a GELU alone; the code has a LayerNorm before it.
- The class token is scaled by a squeeze-and-excitation without its sigmoid.
- Linear layers, the classifier too, start at a deviation of 0.02; convolutions as torch starts them.
- The scales and shifts of the stem and the head embeddings are decayed, the class token is not.

`dhvt_nano` and `dhvt_pico` are not from the paper: they have the width, depth, heads and (within 5 %) the parameters of
`vit_nano` and `vit_pico`, whose wider MLP pays here for the convolutions and head tokens; a step takes 1.3 times as long.
They start as the large ones do. Xavier's start, which `vit_nano` needs, did not help them: on 1,000 digits after 10
epochs 87 and 89 %, against 91 and 92 % (two seeds). BatchNorm rescaling the feed-forward may be why.

B images, C channels in, H by W grid, N = 1+H*W tokens (class token first), D width.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from timm.layers import PatchEmbed, global_pool_nlc, to_2tuple
from timm.models import build_model_with_cfg, register_model
from timm.models._features import feature_take_indices
from timm.models._registry import generate_default_cfgs
from torch import Tensor, nn

from smallvit.models.architectures.dhvt_parts import (
    Block,
    HeadInteractedAttention,
    LayerNorm,
    SequentialOverlappingPatchEmbed,
)
from smallvit.models.gradient_checkpointing import checkpointed
from smallvit.models.registry import config

POOLS = ("token", "avg", "")


class Dhvt(nn.Module):
    """Without `positions` the forward pass takes images of any size that the patch divides, not only `img_size`."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        patch_size: int = 4,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: str = "token",
        embed_dim: int = 192,
        depth: int = 12,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        positions: bool = False,
        sope: bool = True,
        daff: bool = True,
        head_tokens: bool = True,
    ) -> None:
        super().__init__()
        size = to_2tuple(img_size)
        _check_size(size, patch_size)
        self.num_classes = num_classes
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dim
        self.num_prefix_tokens = 1
        self.grad_checkpointing = False
        self.patch_size = patch_size
        self.grid_size = (size[0] // patch_size, size[1] // patch_size)
        embed = SequentialOverlappingPatchEmbed if sope else partial(PatchEmbed, strict_img_size=False)
        self.patch_embed = embed(size, patch_size, in_chans, embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        tokens = 1 + self.grid_size[0] * self.grid_size[1]
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, embed_dim)) if positions else None
        rates = torch.linspace(0, drop_path_rate, depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads, mlp_ratio, rate, daff, head_tokens) for rate in rates)
        self.feature_info = [
            {"module": f"blocks.{i}", "num_chs": embed_dim, "reduction": patch_size} for i in range(depth)
        ]
        self.norm: nn.Module = LayerNorm(embed_dim)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(embed_dim, num_classes) if num_classes > 0 else nn.Identity()
        self.global_pool = _check_pool(global_pool)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        x_BND, grid = self._embed(x)
        for block in self.blocks:
            x_BND = self._run(block, x_BND, grid)
        return self.norm(x_BND)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled_BD = self.head_drop(global_pool_nlc(x, pool_type=self.global_pool))
        return pooled_BD if pre_logits else self.head(pooled_BD)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """The outputs of the chosen blocks (timm's interface): alone, or behind what `forward_features` gives."""
        if output_fmt not in ("NCHW", "NLC"):
            raise ValueError(f"output_fmt {output_fmt!r}: NCHW or NLC")
        wanted, last = feature_take_indices(len(self.blocks), indices)
        x_BND, grid = self._embed(x)
        taken: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            if stop_early and i > last:
                break
            x_BND = self._run(block, x_BND, grid)
            if i in wanted:
                taken.append(self.norm(x_BND) if norm else x_BND)
        intermediates: list[Any] = [y_BND[:, 1:] for y_BND in taken]
        if output_fmt == "NCHW":
            intermediates = [y_BLD.transpose(1, 2).unflatten(2, grid).contiguous() for y_BLD in intermediates]
        if return_prefix_tokens:
            intermediates = [(y, y_BND[:, :1]) for y, y_BND in zip(intermediates, taken, strict=True)]
        return intermediates if intermediates_only else (self.norm(x_BND), intermediates)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        wanted, last = feature_take_indices(len(self.blocks), indices)
        self.blocks = self.blocks[: last + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return wanted

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        if global_pool is not None:
            self.global_pool = _check_pool(global_pool)
        self.num_classes = num_classes
        self.head = nn.Linear(self.embed_dim, num_classes) if num_classes > 0 else nn.Identity()
        self.head.to(self.cls_token.device, self.cls_token.dtype)
        self.head.train(self.training)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        return {"cls_token", "pos_embed"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {
            "stem": r"^cls_token|^pos_embed|^patch_embed",
            "blocks": [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))],
        }

    def _embed(self, images_BCHW: Tensor) -> tuple[Tensor, tuple[int, int]]:
        height, width = images_BCHW.shape[-2:]
        _check_size((height, width), self.patch_size)
        grid = (height // self.patch_size, width // self.patch_size)
        patches_BLD = self.patch_embed(images_BCHW)
        x_BND = torch.cat([self.cls_token.expand(images_BCHW.shape[0], -1, -1), patches_BLD], dim=1)
        if self.pos_embed is None:
            return x_BND, grid
        if grid != self.grid_size:
            raise ValueError(f"a grid of {grid} patches, but the position embeddings are for {self.grid_size}")
        return x_BND + self.pos_embed, grid

    def _run(self, block: nn.Module, x_BND: Tensor, grid: tuple[int, int]) -> Tensor:
        return checkpointed(block, x_BND, grid) if self.grad_checkpointing and self.training else block(x_BND, grid)


def _initialise(model: Dhvt) -> None:
    """As the authors' code does, which leaves the convolutions to torch."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        elif isinstance(module, HeadInteractedAttention):
            nn.init.trunc_normal_(module.pos_embed, std=0.02)
    nn.init.trunc_normal_(model.cls_token, std=0.02)
    if model.pos_embed is not None:
        nn.init.trunc_normal_(model.pos_embed, std=0.02)


def _check_size(size: tuple[int, int], patch_size: int) -> None:
    if size[0] % patch_size or size[1] % patch_size:
        raise ValueError(f"images of {size[0]}x{size[1]} px cannot be divided into patches of {patch_size} px")


def _check_pool(global_pool: str) -> str:
    if global_pool not in POOLS:
        raise ValueError(f"global_pool {global_pool!r}: one of {', '.join(map(repr, POOLS))}")
    return global_pool


# ---- the models ----------------------------------------------------------------------------------------

TINY = {"embed_dim": 192, "depth": 12}
SMALL = {"embed_dim": 384, "depth": 12}
LAPTOP = {"depth": 6, "mlp_ratio": 1.0}


def _config(size: int, paper: str = "Lu 2022") -> dict[str, Any]:
    return config(size, "patch_embed.proj.0.0", "head", fixed_size=True, paper=paper)


default_cfgs = generate_default_cfgs(
    {f"dhvt_{width}_patch{patch}_32": _config(32) for width in ("tiny", "small") for patch in (2, 4, 8)}
    | {f"dhvt_{width}_patch16_224": _config(224) for width in ("tiny", "small")}
    | {name: _config(32, paper="") for name in ("dhvt_nano", "dhvt_pico")}
)


def _dhvt(name: str, pretrained: bool, **kwargs: Any) -> Dhvt:
    return build_model_with_cfg(
        Dhvt, name, pretrained, feature_cfg={"out_indices": 3, "feature_cls": "getter"}, **kwargs
    )


@register_model
def dhvt_tiny_patch2_32(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-T as on CIFAR, 16x16 patches."""
    return _dhvt("dhvt_tiny_patch2_32", pretrained, **{**TINY, "patch_size": 2, "num_heads": 4, **kwargs})


@register_model
def dhvt_tiny_patch4_32(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-T as on CIFAR, 8x8 patches."""
    return _dhvt("dhvt_tiny_patch4_32", pretrained, **{**TINY, "patch_size": 4, "num_heads": 4, **kwargs})


@register_model
def dhvt_tiny_patch8_32(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-T with patch 8, for images of about 64 px."""
    return _dhvt("dhvt_tiny_patch8_32", pretrained, **{**TINY, "patch_size": 8, "num_heads": 4, **kwargs})


@register_model
def dhvt_tiny_patch16_224(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-T as on ImageNet. DomainNet: num_heads=4."""
    return _dhvt("dhvt_tiny_patch16_224", pretrained, **{**TINY, "patch_size": 16, "num_heads": 3, **kwargs})


@register_model
def dhvt_small_patch2_32(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-S as on CIFAR, 16x16 patches."""
    return _dhvt("dhvt_small_patch2_32", pretrained, **{**SMALL, "patch_size": 2, "num_heads": 8, **kwargs})


@register_model
def dhvt_small_patch4_32(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-S as on CIFAR, 8x8 patches."""
    return _dhvt("dhvt_small_patch4_32", pretrained, **{**SMALL, "patch_size": 4, "num_heads": 8, **kwargs})


@register_model
def dhvt_small_patch8_32(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-S with patch 8, for images of about 64 px."""
    return _dhvt("dhvt_small_patch8_32", pretrained, **{**SMALL, "patch_size": 8, "num_heads": 8, **kwargs})


@register_model
def dhvt_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """DHVT-S as on ImageNet."""
    return _dhvt("dhvt_small_patch16_224", pretrained, **{**SMALL, "patch_size": 16, "num_heads": 6, **kwargs})


@register_model
def dhvt_nano(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """A small DHVT: width 64, 6 blocks, 4 heads, patch 4 (or 2, 8, 16)."""
    return _dhvt("dhvt_nano", pretrained, **{**LAPTOP, "embed_dim": 64, "num_heads": 4, **kwargs})


@register_model
def dhvt_pico(pretrained: bool = False, **kwargs: Any) -> Dhvt:
    """A smaller DHVT: width 48, 6 blocks, 3 heads, patch 4 (or 2, 8, 16)."""
    return _dhvt("dhvt_pico", pretrained, **{**LAPTOP, "embed_dim": 48, "num_heads": 3, **kwargs})
