"""Attention among tokens that come from a map: what both versions of CvT have, and the attention of its authors.

B images, H by W cells, N tokens (H * W, after P class tokens), M of them as keys, D width, A attention heads, E their width.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Grid = tuple[int, int]


class SeparateAttention(nn.Module):
    """The authors': q, k and v each have a convolution and a linear layer; the class token skips the convolutions."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = dim**-0.5  # of the whole width, as the authors' code has it
        self.conv_proj_q, self.conv_proj_k, self.conv_proj_v = (depthwise(dim, stride) for stride in (1, 2, 2))
        self.proj_q, self.proj_k, self.proj_v, self.proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x_BND: Tensor, grid: Grid) -> Tensor:
        prefix_BPD, cells_BND = split_prefix(x_BND, grid)
        map_BDHW = to_map(cells_BND, grid)

        def projected(conv: nn.Module, linear: nn.Module) -> Tensor:
            return linear(torch.cat([prefix_BPD, to_tokens(conv(map_BDHW))], dim=1))

        q_BND = projected(self.conv_proj_q, self.proj_q)
        k_BMD = projected(self.conv_proj_k, self.proj_k)
        v_BMD = projected(self.conv_proj_v, self.proj_v)
        return self.proj(attend(q_BND, k_BMD, v_BMD, self.heads, self.scale))


class StridedDepthwise(nn.Conv2d):
    """In 32 bits on a CPU: in bf16 the backward pass of a depthwise convolution with strides takes several times as long there."""

    def forward(self, map_BDHW: Tensor) -> Tensor:
        if map_BDHW.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return super().forward(map_BDHW)
        with torch.autocast("cpu", enabled=False):
            return super().forward(map_BDHW.float())


def depthwise(dim: int, stride: int) -> nn.Sequential:
    kind = StridedDepthwise if stride > 1 else nn.Conv2d
    conv = kind(dim, dim, 3, stride, padding=1, groups=dim, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, bn=nn.BatchNorm2d(dim)))


def attend(q_BND: Tensor, k_BMD: Tensor, v_BMD: Tensor, heads: int, scale: float) -> Tensor:
    q_BANE, k_BAME, v_BAME = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q_BND, k_BMD, v_BMD))
    return F.scaled_dot_product_attention(q_BANE, k_BAME, v_BAME, scale=scale).transpose(1, 2).flatten(2)


def split_prefix(x_BND: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Class tokens, of which there may be none, and the cells of the map."""
    count = x_BND.shape[1] - grid[0] * grid[1]
    return x_BND[:, :count], x_BND[:, count:]


def to_map(x_BND: Tensor, grid: Grid) -> Tensor:
    return x_BND.unflatten(1, grid).permute(0, 3, 1, 2)  # channels-last in memory: nothing is moved


def to_tokens(map_BDHW: Tensor) -> Tensor:
    return map_BDHW.permute(0, 2, 3, 1).flatten(1, 2)
