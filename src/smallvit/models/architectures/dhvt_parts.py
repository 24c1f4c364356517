"""A block of DHVT and its parts: SOPE makes the patches, HI-MHSA the attention, DAFF the feed-forward.

Names of parameters are the authors', so their checkpoints load as they are. The layout is not: tokens keep their
channels last, which makes a 1x1 convolution a matrix product, lets BatchNorm work on rows, and gives the depthwise
convolution the one layout whose backward pass is quick on a CPU (docs/speed/train_step.md).

B images, C channels in, H by W grid, L = H*W patches, N = 1+L tokens (class token first), D width, E hidden width,
h heads of d = D/h channels, M = N+h tokens with head tokens, R = B*L rows.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from timm.layers import Attention, DropPath, Mlp
from torch import Tensor, nn

STEM_PATCHES = (2, 4, 8, 16)
LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class Block(nn.Module):
    """Attention, then feed-forward, each behind a LayerNorm and added to what was there."""

    def __init__(
        self, dim: int, num_heads: int, mlp_ratio: float, drop_path: float, daff: bool, head_tokens: bool
    ) -> None:
        super().__init__()
        hidden = int(dim * mlp_ratio)
        self.daff = daff
        self.norm1 = LayerNorm(dim)
        self.attn = HeadInteractedAttention(dim, num_heads) if head_tokens else Attention(dim, num_heads, qkv_bias=True)
        self.norm2 = LayerNorm(dim)
        self.mlp = DynamicAggregationFeedForward(dim, hidden) if daff else Mlp(dim, hidden)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x_BND: Tensor, grid: tuple[int, int]) -> Tensor:
        x_BND = x_BND + self.drop_path(self.attn(self.norm1(x_BND)))
        y_BND = self.norm2(x_BND)
        return x_BND + self.drop_path(self.mlp(y_BND, grid) if self.daff else self.mlp(y_BND))


class SequentialOverlappingPatchEmbed(nn.Module):
    """SOPE: 3x3 convolutions with stride 2, as many as halve the image down to the patch grid."""

    def __init__(self, img_size: tuple[int, int], patch_size: int, in_chans: int, embed_dim: int) -> None:
        super().__init__()
        if patch_size not in STEM_PATCHES:
            raise ValueError(f"patch_size {patch_size}: the convolutional stem halves the image, so 2, 4, 8 or 16")
        halvings = patch_size.bit_length() - 1
        if embed_dim % 2 ** (halvings - 1):
            raise ValueError(f"embed_dim {embed_dim} must be divisible by {2 ** (halvings - 1)} for patch {patch_size}")
        self.img_size = img_size
        self.patch_size = (patch_size, patch_size)
        self.grid_size = (img_size[0] // patch_size, img_size[1] // patch_size)
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        widths = [in_chans, *(embed_dim >> halving for halving in reversed(range(halvings)))]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [_halve(before, after), nn.GELU()]
        if halvings > 1:
            layers.pop()  # no activation after the last of several
        self.pre_affine = Affine(in_chans)
        self.proj = nn.Sequential(*layers)
        self.post_affine = Affine(embed_dim)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        images_BCHW = images_BCHW.contiguous(memory_format=torch.channels_last)
        grid_BDHW = self.post_affine(self.proj(self.pre_affine(images_BCHW)))
        return grid_BDHW.flatten(2).transpose(1, 2)


def _halve(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after))


class Affine(nn.Module):
    """A scale and a shift per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return torch.addcmul(self.beta, self.alpha, x_BCHW)


class DynamicAggregationFeedForward(nn.Module):
    """DAFF: a feed-forward with a depthwise convolution among the patches, and a class token scaled by what came out."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = PointwiseConv(dim, hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.bn2 = nn.BatchNorm1d(hidden)
        self.conv3 = PointwiseConv(hidden, dim)
        self.bn3 = nn.BatchNorm1d(dim)
        self.compress = nn.Linear(dim, dim // 4)
        self.excitation = nn.Linear(dim // 4, dim)

    def forward(self, x_BND: Tensor, grid: tuple[int, int]) -> Tensor:
        B, N, D = x_BND.shape
        cls_B1D, patches_BLD = x_BND.split((1, N - 1), dim=1)
        s_RE = F.gelu(self.bn1(self.conv1(patches_BLD.reshape(-1, D))))
        mixed_RE = F.gelu(self.bn2(self._among_neighbours(s_RE, grid)))
        patches_BLD = self.bn3(self.conv3(mixed_RE + s_RE)).view(B, N - 1, D)
        weight_B1D = self.excitation(F.gelu(self.compress(patches_BLD.mean(1, keepdim=True))))
        return torch.cat([cls_B1D * weight_B1D, patches_BLD], dim=1)

    def _among_neighbours(self, s_RE: Tensor, grid: tuple[int, int]) -> Tensor:
        s_BHWE = s_RE.view(-1, *grid, s_RE.shape[-1])
        return self.conv2(s_BHWE.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).reshape(s_RE.shape)


class PointwiseConv(nn.Conv2d):
    """A 1x1 convolution of rows of channels: the weights of a convolution, the work of a linear layer."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, kernel_size=1)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight.flatten(1), self.bias)


class HeadInteractedAttention(nn.Module):
    """HI-MHSA: every head adds a token that sums up its channels; they all attend, then join the class token."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"embed_dim {dim} must be divisible by num_heads {num_heads}")
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.ht_proj = nn.Linear(self.head_dim, dim)
        self.ht_norm = nn.LayerNorm(self.head_dim)
        self.pos_embed = nn.Parameter(torch.zeros(1, num_heads, dim))  # tells the heads apart
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        N = x_BND.shape[1]
        y_BMD = self._attend(torch.cat([x_BND, self.head_tokens(x_BND)], dim=1))
        cls_B1D, patches_BLD, heads_BhD = y_BMD.split((1, N - 1, self.num_heads), dim=1)
        return torch.cat([cls_B1D + heads_BhD.mean(1, keepdim=True), patches_BLD], dim=1)

    def head_tokens(self, x_BND: Tensor) -> Tensor:
        means_Bhd = x_BND.mean(1).unflatten(-1, (self.num_heads, self.head_dim))
        tokens_Bhhd = self.ht_proj(means_Bhd).unflatten(-1, (self.num_heads, self.head_dim))
        return F.gelu(self.ht_norm(tokens_Bhhd)).flatten(2) + self.pos_embed

    def _attend(self, x_BMD: Tensor) -> Tensor:
        q_BhMd, k_BhMd, v_BhMd = self.qkv(x_BMD).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        y_BhMd = F.scaled_dot_product_attention(q_BhMd, k_BhMd, v_BhMd)
        return self.proj(y_BhMd.transpose(1, 2).flatten(2))
