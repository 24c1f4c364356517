"""The hybrid family, ours: convolutions while the grid is fine, attention where it is coarse.

A member is written as one word for each stage, one letter for each block: `c` is a convolution, `a` attention, added to
the cells. `layers=("c", "c", "c")` is a plain CNN, `("c", "c", "caaa")` looks three times at all cells of its last grid.
`attention=False` takes every `a` out and leaves all else, so that the same model with and without attention can be
trained for the same time. Which member suits which set and time was measured: docs/decisions/006-default.md.

What makes it learn in minutes from few images, each measured there, too: a first layer of fixed filters that whiten the
patches of the training images (`whiten=False`: learned ones), convolutions that start as the identity as far as they
can, BatchNorm without scales, maxima instead of strides, heads of attention that start out looking at near cells, some nearer than others, and
attention that adds nothing at first. The first three are ideas of airbench (Jordan 2024).

Cells know where they are by a table of relative positions for each head, stretched where the grid is another one, so
images of any size go through.

B images, C channels, D width, H by W cells, N = H*W, M heads, E width of a head, P values of a patch.
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

from smallvit.models.architectures.whitening import Whitening
from smallvit.models.gradient_checkpointing import checkpointed
from smallvit.models.positions import stretched
from smallvit.models.registry import config

BLOCKS = "ca"
DIVIDED_BY = 9.0  # the logits
RECENT = 4  # how much more the latest of few batches counts in the statistics of a norm; 0: they are the plain mean


class ShiftNorm(nn.BatchNorm2d):
    """BatchNorm that shifts and does not scale: the weights behind it do.

    What its statistics are before the first batch is no part of them, and of few batches the latest count most: a run of a
    few steps can be judged, too.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, affine=False)
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, input: Tensor) -> Tensor:
        running_mean, running_var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None and running_var is not None and batches is not None and self.momentum
        if not self.training:
            return F.batch_norm(input, running_mean, running_var, None, self.shift, eps=self.eps)
        mean, var = torch.zeros_like(running_mean), torch.zeros_like(running_var)
        shifted = F.batch_norm(input, mean, var, None, self.shift, training=True, momentum=1.0, eps=self.eps)
        batches += 1
        share = ((1 + RECENT) / (batches + RECENT)).clamp_min(self.momentum)  # a tensor: nobody waits for a number
        running_mean.lerp_(mean, share)
        running_var.lerp_(var, share)
        return shifted


class RelativeAttention(nn.Module):
    """Attention between all cells, with a bias for their offset; its output starts at zero."""

    def __init__(self, width: int, grid: tuple[int, int], head_width: int) -> None:
        super().__init__()
        if width % head_width:
            raise ValueError(f"a width of {width} is no multiple of head_width {head_width}")
        self.heads = width // head_width
        # On a CPU in 16 bits torch's fused attention takes twice as long with a bias; a diagnosis switches it on.
        self.fused_attn = False
        self.norm = ShiftNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.offsets = nn.Parameter(_near_first(grid, self.heads))
        nn.init.zeros_(self.proj.weight)

    def forward(self, x_BDHW: Tensor) -> Tensor:
        B, D, H, W = x_BDHW.shape
        tokens_BND = self.norm(x_BDHW).permute(0, 2, 3, 1).reshape(B, H * W, D)
        qkv = self.qkv(tokens_BND).reshape(B, H * W, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        bias_1MNN = self.bias(H, W).to(query.dtype)
        if self.fused_attn:
            mixed_BMNE = F.scaled_dot_product_attention(query, key, value, attn_mask=bias_1MNN)
        else:
            scores_BMNN = (query * query.shape[-1] ** -0.5) @ key.mT + bias_1MNN
            mixed_BMNE = scores_BMNN.softmax(-1).to(value.dtype) @ value
        mixed_BND = self.proj(mixed_BMNE.transpose(1, 2).reshape(B, H * W, D))
        return mixed_BND.reshape(B, H, W, D).permute(0, 3, 1, 2)

    def bias(self, H: int, W: int) -> Tensor:
        """1 x M x N x N: what each head adds for the offset between two cells."""
        size = (2 * H - 1, 2 * W - 1)
        table = (self.offsets if self.offsets.shape[1:] == size else stretched(self.offsets, size))[None]
        rows_HH, columns_WW = _offset_places(H, table.device), _offset_places(W, table.device)
        spread = table[:, :, rows_HH[:, None, :, None], columns_WW[None, :, None, :]]
        return spread.reshape(1, self.heads, H * W, H * W)


def _near_first(grid: tuple[int, int], heads: int) -> Tensor:
    """M by offsets: minus the squared distance, in units that grow from head to head."""
    rows, columns = (torch.arange(1.0 - side, side) for side in grid)
    squared = rows[:, None] ** 2 + columns**2
    reach_M = torch.linspace(0.7, max(0.7, max(grid) / 2), heads)
    return -squared / (2 * reach_M[:, None, None] ** 2)


def _offset_places(side: int, device: torch.device) -> Tensor:
    places = torch.arange(side, device=device)
    return places[:, None] - places + side - 1


class ConvBlock(nn.Module):
    """A convolution. The first of a stage widens and takes maxima of 2 x 2 cells."""

    def __init__(self, in_width: int, width: int, pool: bool) -> None:
        super().__init__()
        self.pool = pool
        self.conv = nn.Conv2d(in_width, width, 3, padding=1, bias=False)
        nn.init.dirac_(self.conv.weight.data[:in_width])
        self.norm = ShiftNorm(width)

    def forward(self, x_BDHW: Tensor) -> Tensor:
        convolved = self.conv(x_BDHW)
        return F.gelu(self.norm(F.max_pool2d(convolved, 2) if self.pool else convolved))


class AttentionBlock(nn.Module):
    """Attention, added to what it looks at."""

    def __init__(self, width: int, grid: tuple[int, int], head_width: int, drop_path: float) -> None:
        super().__init__()
        self.attn = RelativeAttention(width, grid, head_width)
        self.drop_path = DropPath(drop_path)

    def forward(self, x_BDHW: Tensor) -> Tensor:
        return x_BDHW + self.drop_path(self.attn(x_BDHW))


class Classifier(nn.Linear):
    """Without a bias; its answers are divided, so that the high learning rates of the rest suit it, too."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__(width, num_classes, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) / DIVIDED_BY


POOLS = {"max": lambda x: x.amax((2, 3)), "avg": lambda x: x.mean((2, 3)), "": lambda x: x}


class Hybrid(nn.Module):
    """Whitened patches, then stages that each halve the grid; the maximum over the cells is classified."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: str = "max",
        stem_stride: int = 1,
        widths: Sequence[int] = (32, 64, 128),
        layers: Sequence[str] = ("c", "c", "c"),
        attention: bool = True,
        head_width: int = 32,
        whiten: bool = True,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        _check_layers(layers, widths)
        _check_pool(global_pool)
        self.num_classes, self.global_pool, self.grad_checkpointing = num_classes, global_pool, False
        self.num_features = self.head_hidden_size = widths[-1]
        self.stem = Whitening(in_chans, stem_stride, learned=not whiten)
        grid, reduction, width = _halved(to_2tuple(img_size), stem_stride), stem_stride, self.stem.width
        rates = iter(torch.linspace(0, drop_path_rate, sum(map(len, layers)), device="cpu").tolist())
        self.stages, self.feature_info = nn.ModuleList(), []
        for number, (next_width, kinds) in enumerate(zip(widths, layers, strict=True)):
            grid, reduction = _halved(grid, 2), 2 * reduction
            blocks: list[nn.Module] = [ConvBlock(width, next_width, pool=True)]
            for kind in kinds:
                rate = next(rates)
                if kind == "c":
                    blocks.append(ConvBlock(next_width, next_width, pool=False))
                elif attention:
                    blocks.append(AttentionBlock(next_width, grid, head_width, rate))
                else:
                    blocks.append(nn.Identity())  # the others keep their names
            self.stages.append(nn.Sequential(*blocks))
            self.feature_info.append({"module": f"stages.{number}", "num_chs": next_width, "reduction": reduction})
            width = next_width
        self.head_drop = nn.Dropout(drop_rate)
        self.head = Classifier(width, num_classes) if num_classes > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        x_BDHW = self.stem(x)
        for stage in self.stages:
            x_BDHW = self._run(stage, x_BDHW)
        return x_BDHW

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = self.head_drop(POOLS[self.global_pool](x))
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
        x_BDHW = self.stem(x)
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

    def whiten(self, images_BCHW: Tensor) -> None:
        """Take the first filters from these images, normalised as the model will see them; learned ones stay."""
        if not self.stem.learned:
            self.stem.fit(images_BCHW)

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        if global_pool is not None:
            self.global_pool = _check_pool(global_pool)
        self.num_classes = num_classes
        self.head = Classifier(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        self.head.to(self.stem.weight.device, self.stem.weight.dtype)
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
    """What is left of a grid: an odd row or column at the end is not looked at."""
    return max(1, grid[0] // stride), max(1, grid[1] // stride)


def _check_layers(layers: Sequence[str], widths: Sequence[int]) -> None:
    if len(layers) != len(widths) or not widths:
        raise ValueError(f"{len(layers)} layers and {len(widths)} widths: give one of each for every stage")
    if unknown := sorted(set("".join(layers)) - set(BLOCKS)):
        raise ValueError(f"layers {list(layers)}: no block is called {unknown[0]!r}; c: a convolution, a: attention")


def _check_pool(global_pool: str) -> str:
    if global_pool not in POOLS:
        raise ValueError(f"global_pool {global_pool!r}: one of {', '.join(map(repr, POOLS))}")
    return global_pool


# ---- the models --------------------------------------------------------------------------------------

WIDTHS = {"nano": (32, 64, 128), "micro": (48, 96, 192), "tiny": (64, 128, 256)}
LAYERS = {"conv": ("c", "c", "c"), "hybrid": ("c", "c", "caaa")}

default_cfgs = generate_default_cfgs(
    {f"{kind}_{size}": config(32, None, "head", fixed_size=True) for kind in LAYERS for size in WIDTHS}
)


def _hybrid(name: str, pretrained: bool, **kwargs: Any) -> Hybrid:
    kind, size = name.split("_")
    shape = {"widths": WIDTHS[size], "layers": LAYERS[kind]}
    return build_model_with_cfg(
        Hybrid, name, pretrained, feature_cfg={"out_indices": (0, 1, 2), "feature_cls": "getter"}, **{**shape, **kwargs}
    )


@register_model
def conv_nano(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """The hybrid family without attention, three stages of two convolutions."""
    return _hybrid("conv_nano", pretrained, **kwargs)


@register_model
def conv_micro(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """conv_nano, half as wide again."""
    return _hybrid("conv_micro", pretrained, **kwargs)


@register_model
def conv_tiny(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """conv_nano, twice as wide."""
    return _hybrid("conv_tiny", pretrained, **kwargs)


@register_model
def hybrid_nano(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """conv_nano with three layers of attention on its last grid (4x4 cells at 32 px)."""
    return _hybrid("hybrid_nano", pretrained, **kwargs)


@register_model
def hybrid_micro(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """hybrid_nano, half as wide again."""
    return _hybrid("hybrid_micro", pretrained, **kwargs)


@register_model
def hybrid_tiny(pretrained: bool = False, **kwargs: Any) -> Hybrid:
    """hybrid_nano, twice as wide."""
    return _hybrid("hybrid_tiny", pretrained, **kwargs)
