"""The hybrid family, ours: convolutions while the grid is fine, attention where it is coarse. It is the default model.

A member is written as one word for each stage: `c` is a residual pair of 3x3 convolutions, `a` a block of attention and
MLP. `layers=("c", "c", "c")` is a plain CNN, `("c", "c", "aaa")` ends in a transformer, `("a", "a", "a")` is nearly one
throughout. `attention=False` takes the attention out of every `a` and leaves its MLP, so that the same model with and
without attention can be trained for the same time. What was measured, and which member suits which set and time:
docs/decisions/006-default.md.

Cells know where they are by a table of relative positions for each head, stretched where the grid is another one, so
images of any size go through.

B images, C channels, D width, H by W cells, N = H*W, M heads, E width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import DropPath, to_2tuple
from timm.models import build_model_with_cfg, register_model
from timm.models._features import feature_take_indices
from timm.models._registry import generate_default_cfgs
from torch import Tensor, nn

from smallvit.models.gradient_checkpointing import checkpointed
from smallvit.models.registry import config

BLOCKS = "ca"


def conv_norm(in_width: int, width: int, stride: int = 1) -> nn.Sequential:
    """A 3x3 convolution and what it is normalised by."""
    return nn.Sequential(nn.Conv2d(in_width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width))


class ConvBlock(nn.Module):
    """Two convolutions beside the identity; the second one starts at zero."""

    def __init__(self, width: int, drop_path: float) -> None:
        super().__init__()
        self.first = conv_norm(width, width)
        self.second = conv_norm(width, width)
        self.drop_path = DropPath(drop_path)
        nn.init.zeros_(self.second[1].weight)

    def forward(self, x_BDHW: Tensor) -> Tensor:
        return F.relu(x_BDHW + self.drop_path(self.second(F.relu(self.first(x_BDHW)))))


class RelativeAttention(nn.Module):
    """Attention between all cells, with a bias for their offset; its output starts at zero."""

    def __init__(self, width: int, grid: tuple[int, int], head_width: int) -> None:
        super().__init__()
        if width % head_width:
            raise ValueError(f"a width of {width} is no multiple of head_width {head_width}")
        self.heads = width // head_width
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.offsets = nn.Parameter(torch.zeros(self.heads, 2 * grid[0] - 1, 2 * grid[1] - 1))
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x_BDHW: Tensor) -> Tensor:
        B, D, H, W = x_BDHW.shape
        tokens_BND = x_BDHW.permute(0, 2, 3, 1).reshape(B, H * W, D)
        qkv = self.qkv(tokens_BND).reshape(B, H * W, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        mixed_BMNE = F.scaled_dot_product_attention(query, key, value, attn_mask=self.bias(H, W).to(query.dtype))
        mixed_BND = self.proj(mixed_BMNE.transpose(1, 2).reshape(B, H * W, D))
        return mixed_BND.reshape(B, H, W, D).permute(0, 3, 1, 2)

    def bias(self, H: int, W: int) -> Tensor:
        """1 x M x N x N: what each head adds for the offset between two cells."""
        table = self.offsets[None]
        if table.shape[2:] != (2 * H - 1, 2 * W - 1):
            table = F.interpolate(table, (2 * H - 1, 2 * W - 1), mode="bilinear", align_corners=True)
        rows_HH, columns_WW = _offset_places(H, self.offsets.device), _offset_places(W, self.offsets.device)
        spread = table[:, :, rows_HH[:, None, :, None], columns_WW[None, :, None, :]]
        return spread.reshape(1, self.heads, H * W, H * W)


def _offset_places(side: int, device: torch.device) -> Tensor:
    places = torch.arange(side, device=device)
    return places[:, None] - places + side - 1


class AttentionBlock(nn.Module):
    """Attention, then an MLP, each beside the identity and starting at zero."""

    def __init__(
        self, width: int, grid: tuple[int, int], head_width: int, mlp_ratio: float, attention: bool, drop_path: float
    ) -> None:
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.norm1 = nn.BatchNorm2d(width) if attention else None
        self.attn = RelativeAttention(width, grid, head_width) if attention else None
        self.norm2 = nn.BatchNorm2d(width)
        self.mlp = nn.Sequential(nn.Conv2d(width, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, width, 1))
        self.drop_path = DropPath(drop_path)
        nn.init.zeros_(self.mlp[2].weight)
        nn.init.zeros_(self.mlp[2].bias)

    def forward(self, x_BDHW: Tensor) -> Tensor:
        if self.attn is not None and self.norm1 is not None:
            x_BDHW = x_BDHW + self.drop_path(self.attn(self.norm1(x_BDHW)))
        return x_BDHW + self.drop_path(self.mlp(self.norm2(x_BDHW)))


class Hybrid(nn.Module):
    """A stem, then stages that each halve the grid and apply their blocks; the mean over the cells is classified."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: str = "avg",
        stem_width: int = 16,
        stem_stride: int = 1,
        widths: Sequence[int] = (32, 64, 128),
        layers: Sequence[str] = ("c", "c", "c"),
        attention: bool = True,
        head_width: int = 32,
        mlp_ratio: float = 2.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        _check_layers(layers, widths)
        _check_pool(global_pool)
        self.num_classes, self.global_pool, self.grad_checkpointing = num_classes, global_pool, False
        self.num_features = self.head_hidden_size = widths[-1]
        self.stem = conv_norm(in_chans, stem_width, stem_stride)
        grid, reduction, width = _halved(to_2tuple(img_size), stem_stride), stem_stride, stem_width
        rates = iter(torch.linspace(0, drop_path_rate, sum(map(len, layers)), device="cpu").tolist())
        self.stages, self.feature_info = nn.ModuleList(), []
        for number, (next_width, kinds) in enumerate(zip(widths, layers, strict=True)):
            grid, reduction = _halved(grid, 2), 2 * reduction
            down = nn.Sequential(conv_norm(width, next_width, 2), nn.ReLU())
            blocks = [
                ConvBlock(next_width, next(rates))
                if kind == "c"
                else AttentionBlock(next_width, grid, head_width, mlp_ratio, attention, next(rates))
                for kind in kinds
            ]
            self.stages.append(nn.Sequential(down, *blocks))
            self.feature_info.append({"module": f"stages.{number}", "num_chs": next_width, "reduction": reduction})
            width = next_width
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(width, num_classes) if num_classes > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        x_BDHW = F.relu(self.stem(x))
        for stage in self.stages:
            x_BDHW = self._run(stage, x_BDHW)
        return x_BDHW

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = self.head_drop(x.mean((2, 3)) if self.global_pool == "avg" else x)
        return pooled if pre_logits else self.head(pooled)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """The outputs of the chosen stages (timm's interface): alone, or behind what `forward_features` gives."""
        if output_fmt != "NCHW":
            raise ValueError(f"output_fmt {output_fmt!r}: its features are a grid, NCHW")
        wanted, last = feature_take_indices(len(self.stages), indices)
        x_BDHW = F.relu(self.stem(x))
        taken: list[Tensor] = []
        for number, stage in enumerate(self.stages):
            if stop_early and number > last:
                break
            x_BDHW = self._run(stage, x_BDHW)
            if number in wanted:
                taken.append(x_BDHW)
        return taken if intermediates_only else (x_BDHW, taken)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        wanted, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]
        if prune_head:
            self.reset_classifier(0, "")
        return wanted

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        if global_pool is not None:
            self.global_pool = _check_pool(global_pool)
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        weight = self.stem[0].weight
        self.head.to(weight.device, weight.dtype)
        self.head.train(self.training)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith(".offsets")}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": r"^stem", "blocks": [(r"^stages\.(\d+)", None)]}

    def _run(self, stage: nn.Module, x_BDHW: Tensor) -> Tensor:
        return checkpointed(stage, x_BDHW) if self.grad_checkpointing and self.training else stage(x_BDHW)


def _halved(grid: tuple[int, int], stride: int) -> tuple[int, int]:
    """What a 3x3 convolution with padding leaves of a grid: an odd side is rounded up."""
    return -(-grid[0] // stride), -(-grid[1] // stride)


def _check_layers(layers: Sequence[str], widths: Sequence[int]) -> None:
    if len(layers) != len(widths) or not widths:
        raise ValueError(f"{len(layers)} layers and {len(widths)} widths: give one of each for every stage")
    if unknown := sorted(set("".join(layers)) - set(BLOCKS)):
        raise ValueError(f"layers {list(layers)}: no block is called {unknown[0]!r}; c: convolutions, a: attention")


def _check_pool(global_pool: str) -> str:
    if global_pool not in ("avg", ""):
        raise ValueError(f"global_pool {global_pool!r}: 'avg' or ''")
    return global_pool


# ---- the models --------------------------------------------------------------------------------------

default_cfgs = generate_default_cfgs(
    {name: config(32, "stem.0", "head", fixed_size=True) for name in ("hybrid_nano", "conv_nano")}
)


def _hybrid(name: str, pretrained: bool, **kwargs: Any) -> Hybrid:
    return build_model_with_cfg(
        Hybrid, name, pretrained, feature_cfg={"out_indices": (0, 1, 2), "feature_cls": "getter"}, **kwargs
    )


@register_model
def hybrid_nano(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """0.6 M parameters: convolutions down to 8x8 cells, then three blocks of attention at 4x4 (32 px)."""
    return _hybrid("hybrid_nano", pretrained, **{"layers": ("c", "c", "aaa"), **kwargs})


@register_model
def conv_nano(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """0.5 M parameters: the hybrid family's plain CNN, three stages of one residual pair each."""
    return _hybrid("conv_nano", pretrained, **{"layers": ("c", "c", "c"), **kwargs})
