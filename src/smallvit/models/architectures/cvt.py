"""CvT: three stages of attention whose queries, keys and values come from convolutions over the token map.

Convolutions show where a token is, so there are no positions, and images of any size can be read. `cvt_13` is the
authors' model: the class token lives in the last stage only. `cvt_13_gap` is the port that Liu et al. (2021) trained:
no class token, the mean of the map. The strides decide how large the last map is: the weights of any choice have
the same shapes.

B images, C channels, H by W cells, N tokens (H * W, after P class tokens), D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from timm.layers import DropPath, Mlp, QuickGELU, global_pool_nlc, trunc_normal_
from timm.models import build_model_with_cfg, register_model
from timm.models._features import feature_take_indices
from timm.models._registry import generate_default_cfgs
from torch import Tensor, nn

from smallvit.models.architectures.cvt_parts import Grid, SeparateAttention, split_prefix, to_map, to_tokens
from smallvit.models.architectures.cvt_port import DeviationNorm, SharedAttention, from_port
from smallvit.models.gradient_checkpointing import checkpointed
from smallvit.models.registry import config

default_cfgs = generate_default_cfgs(
    {
        name: config(size, "stage0.patch_embed.proj", "head", fixed_size=False, paper=paper)
        for name, size, paper in (("cvt_13", 224, "Wu 2021"), ("cvt_13_gap", 224, "Liu 2021"), ("cvt_nano", 32, ""))
    }
)


def strides_for(img_size: int) -> tuple[int, int, int]:
    """The strides of the stages that leave about 8 x 8 cells at 32 and 64 px, and the authors' 14 x 14 at 224."""
    if img_size < 16:
        return 2, 1, 1
    return (2, 2, 1) if img_size <= 48 else (4, 2, 1) if img_size <= 112 else (4, 2, 2)


class Parts(NamedTuple):
    """Where the two versions differ inside their blocks and at their ends."""

    norm: type[nn.Module]
    attention: type[nn.Module]
    activation: type[nn.Module]
    final_norm: bool
    initial_weights: str  # of linear layers: "authors" (deviation 0.02), "xavier" or "torch"


class Cvt(nn.Module):
    """Pooling by "token" gives the last stage a class token; by "avg" there is none."""

    def __init__(
        self,
        *,
        parts: Parts,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "token",
        embed_dims: Sequence[int] = (64, 192, 384),
        depths: Sequence[int] = (1, 2, 10),
        num_heads: Sequence[int] = (1, 3, 6),
        mlp_ratio: float = 4.0,
        patch_sizes: Sequence[int] = (7, 3, 3),
        patch_strides: Sequence[int] = (4, 2, 2),
        patch_paddings: Sequence[int] | None = None,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        # Windows hang over both edges alike, so that a stride that divides the image leaves size / stride of them.
        paddings = patch_paddings or [(k - s + 1) // 2 for k, s in zip(patch_sizes, patch_strides, strict=True)]
        self.num_classes, self.in_chans, self.num_stages = num_classes, in_chans, len(embed_dims)
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dims[-1]
        self.num_prefix_tokens = int(global_pool == "token")
        self._set_pooling(global_pool)
        self.feature_info = []
        widths = [in_chans, *embed_dims]
        for i, (dim, depth, heads) in enumerate(zip(embed_dims, depths, num_heads, strict=True)):
            last = i == self.num_stages - 1
            # Whole blocks are dropped in the last stage only, more of the later ones.
            drop_paths = torch.linspace(0, drop_path_rate if last else 0.0, depth, device="cpu").tolist()
            embed = PatchEmbed(widths[i], dim, patch_sizes[i], patch_strides[i], paddings[i], parts.norm)
            blocks = [Block(dim, heads, mlp_ratio, drop_path, parts) for drop_path in drop_paths]
            self.add_module(f"stage{i}", Stage(dim, embed, blocks, class_token=last and global_pool == "token"))
            reduction = math.prod(patch_strides[: i + 1])
            self.feature_info.append({"num_chs": dim, "reduction": reduction, "module": f"stage{i}"})
        self.norm = parts.norm(self.num_features) if parts.final_norm else nn.Identity()
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        self._start(parts.initial_weights)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images_BCHW))

    def forward_features(self, images_BCHW: Tensor) -> Tensor:
        """The normed tokens of the last stage: (B, P + N, D)."""
        x_BND, _ = self._run(images_BCHW, self.num_stages)[-1]
        return self.norm(x_BND)

    def forward_head(self, x_BND: Tensor, pre_logits: bool = False) -> Tensor:
        pooled_BD = self.head_drop(global_pool_nlc(x_BND, self.global_pool, self.num_prefix_tokens))
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
        """One grid per stage. The final norm fits the last stage only; other stages have no class token to return."""
        if output_fmt not in ("NCHW", "NLC"):
            raise ValueError(f"output_fmt is NCHW or NLC, not {output_fmt}")
        wanted, furthest = feature_take_indices(self.num_stages, indices)
        intermediates: list[Any] = []
        for i, (x_BND, grid) in enumerate(self._run(x, furthest + 1 if stop_early else self.num_stages)):
            final_BND = self.norm(x_BND) if i == self.num_stages - 1 else x_BND
            if i in wanted:
                prefix_BPD, cells_BND = split_prefix(final_BND if norm else x_BND, grid)
                cells = to_map(cells_BND, grid).contiguous() if output_fmt == "NCHW" else cells_BND
                intermediates.append((cells, prefix_BPD) if return_prefix_tokens and self.num_prefix_tokens else cells)
        return intermediates if intermediates_only else (final_BND, intermediates)

    def _run(self, images_BCHW: Tensor, stages: int) -> list[tuple[Tensor, Grid]]:
        """Tokens and grid after each of the first stages."""
        map_BCHW = images_BCHW
        after: list[tuple[Tensor, Grid]] = []
        for i in range(stages):
            x_BND, grid = getattr(self, f"stage{i}")(map_BCHW)  # torch 2.7 traces no get_submodule
            after.append((x_BND, grid))
            map_BCHW = to_map(split_prefix(x_BND, grid)[1], grid)
        return after

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        wanted, furthest = feature_take_indices(self.num_stages, indices)
        for i in range(furthest + 1, self.num_stages):
            delattr(self, f"stage{i}")
        shortened = furthest + 1 < self.num_stages
        if shortened:  # class token and norm belong to the last stage
            self.num_stages, self.num_prefix_tokens = furthest + 1, 0
        if prune_norm or shortened:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return wanted

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        self.num_classes = num_classes
        if global_pool is not None:
            self._set_pooling(global_pool)
        like = next(self.parameters())
        self.head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        self.head.to(like.device, like.dtype).train(self.training)

    def _set_pooling(self, global_pool: str) -> None:
        choices = ("", "avg", "token") if self.num_prefix_tokens else ("", "avg")
        if global_pool not in choices:
            raise ValueError(f"global_pool of this CvT is one of {choices}, not {global_pool!r}")
        self.global_pool = global_pool

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        for module in self.modules():
            if isinstance(module, Stage):
                module.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith("cls_token")}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        fine = [
            (r"^stage(\d+)\.(?:patch_embed|cls_token)", (0,)),
            (r"^stage(\d+)\.blocks\.(\d+)", None),
            (r"^norm", (99999,)),
        ]
        return {"stem": r"^stage0\.patch_embed", "blocks": r"^stage(\d+)" if coarse else fine}

    def from_authors(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """`cvt_13` has the names of its authors; those of the port are translated."""
        return from_port(state_dict)

    def _start(self, how: str) -> None:
        """Convolutions keep torch's weights; so does the bias of the authors' head."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear) and how != "torch":
                if how == "authors":
                    trunc_normal_(module.weight, std=0.02)
                else:
                    nn.init.xavier_uniform_(module.weight)
                if name != "head":
                    nn.init.zeros_(module.bias)


class Stage(nn.Module):
    """A coarser map, the class token in front of it where there is one, and blocks."""

    def __init__(self, dim: int, patch_embed: PatchEmbed, blocks: list[Block], class_token: bool) -> None:
        super().__init__()
        self.grad_checkpointing = False
        self.patch_embed = patch_embed
        self.cls_token = nn.Parameter(trunc_normal_(torch.empty(1, 1, dim), std=0.02)) if class_token else None
        self.blocks = nn.ModuleList(blocks)

    def forward(self, map_BCHW: Tensor) -> tuple[Tensor, Grid]:
        x_BND, grid = self.patch_embed(map_BCHW)
        if self.cls_token is not None:
            x_BND = torch.cat([self.cls_token.expand(x_BND.shape[0], -1, -1), x_BND], dim=1)
        for block in self.blocks:
            again = self.grad_checkpointing and torch.is_grad_enabled()
            x_BND = checkpointed(block, x_BND, grid) if again else block(x_BND, grid)
        return x_BND, grid


class PatchEmbed(nn.Module):
    def __init__(self, in_chans: int, dim: int, size: int, stride: int, padding: int, norm: type[nn.Module]) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_chans, dim, size, stride, padding)
        self.norm = norm(dim)

    def forward(self, map_BCHW: Tensor) -> tuple[Tensor, Grid]:
        height, width = map_BCHW.shape[-2:]
        least = self.proj.kernel_size[0] - 2 * int(self.proj.padding[0])
        if min(height, width) < least:
            raise ValueError(f"a map of {height} x {width} is too small for a CvT stage that needs {least} x {least}")
        map_BDHW = self.proj(map_BCHW)
        return self.norm(to_tokens(map_BDHW)), (map_BDHW.shape[2], map_BDHW.shape[3])


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, mlp_ratio: float, drop_path: float, parts: Parts) -> None:
        super().__init__()
        self.norm1 = parts.norm(dim)
        self.attn = parts.attention(dim, heads)
        self.norm2 = parts.norm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act_layer=parts.activation)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x_BND: Tensor, grid: Grid) -> Tensor:
        x_BND = x_BND + self.drop_path(self.attn(self.norm1(x_BND), grid))
        return x_BND + self.drop_path(self.mlp(self.norm2(x_BND)))


AUTHORS = Parts(nn.LayerNorm, SeparateAttention, QuickGELU, final_norm=True, initial_weights="authors")
PORT = Parts(DeviationNorm, SharedAttention, nn.GELU, final_norm=False, initial_weights="torch")


def _cvt(name: str, pretrained: bool, **kwargs: Any) -> Cvt:
    feature_cfg = {"out_indices": kwargs.pop("out_indices", (0, 1, 2)), "feature_cls": "getter"}
    return build_model_with_cfg(Cvt, name, pretrained, feature_cfg=feature_cfg, **kwargs)


@register_model
def cvt_13(pretrained: bool = False, **kwargs: Any) -> Cvt:
    """CvT-13: widths 64, 192, 384; 1, 2 and 10 blocks."""
    return _cvt("cvt_13", pretrained, **{"parts": AUTHORS, **kwargs})


@register_model
def cvt_13_gap(pretrained: bool = False, **kwargs: Any) -> Cvt:
    """CvT-13 without class token, as Liu et al. (2021) trained it."""
    shape = {"parts": PORT, "global_pool": "avg", "patch_paddings": (3, 1, 1)}
    return _cvt("cvt_13_gap", pretrained, **{**shape, **kwargs})


@register_model
def cvt_nano(pretrained: bool = False, **kwargs: Any) -> Cvt:
    """A CvT for 32 px: widths 24, 48, 96; 1, 1 and 3 blocks; Xavier's initial weights."""
    shape = {"embed_dims": (24, 48, 96), "depths": (1, 1, 3), "num_heads": (1, 2, 4), "mlp_ratio": 2.0}
    small = {"parts": AUTHORS._replace(initial_weights="xavier"), "patch_strides": (2, 2, 1)}
    return _cvt("cvt_nano", pretrained, **{**shape, **small, **kwargs})
