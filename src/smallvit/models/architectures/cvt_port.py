"""What is different in the port of CvT that Liu et al. (2021) trained: attention, norm, and the names in its checkpoints.

B images, H by W cells, N = H * W tokens, M of them as keys, D width.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from smallvit.models.architectures.cvt_parts import Grid, attend, depthwise, to_map, to_tokens


class SharedAttention(nn.Module):
    """The port's: keys and values share a convolution; heads of 64 whatever the width is."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.conv_proj_q, self.conv_proj_kv = depthwise(dim, 1), depthwise(dim, 2)
        self.proj_q = nn.Linear(dim, 64 * heads, bias=False)
        self.proj_kv = nn.Linear(dim, 2 * 64 * heads, bias=False)
        self.proj = nn.Linear(64 * heads, dim)

    def forward(self, x_BND: Tensor, grid: Grid) -> Tensor:
        map_BDHW = to_map(x_BND, grid)
        q_BND = self.proj_q(to_tokens(self.conv_proj_q(map_BDHW)))
        k_BMD, v_BMD = self.proj_kv(to_tokens(self.conv_proj_kv(map_BDHW))).chunk(2, dim=-1)
        return self.proj(attend(q_BND, k_BMD, v_BMD, self.heads, 64**-0.5))


class DeviationNorm(nn.LayerNorm):
    """The port's layer norm: 1e-5 is added to the deviation, not to the variance."""

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = x_BND.to(torch.promote_types(x_BND.dtype, torch.float32))
        variance_BN1, mean_BN1 = torch.var_mean(x_BND, dim=-1, correction=0, keepdim=True)
        # The root of exactly 0 has no gradient.
        deviation_BN1 = variance_BN1.clamp_min(1e-20).sqrt()
        return ((x_BND - mean_BN1) / (deviation_BN1 + 1e-5) * self.weight + self.bias).to(self.weight.dtype)


def from_port(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names of the port as ours; its 1x1 convolutions are linear layers here. Other names stay."""
    ours = {}
    for key, tensor in state_dict.items():
        name = key
        for theirs, replacement in PORT_NAMES:
            name = re.sub(theirs, replacement, name)
        if name != key and not re.search(r"(conv|patch_embed\.proj)\.weight$", name) and tensor.ndim == 4:
            tensor = tensor.flatten() if tensor.shape[0] == 1 else tensor[:, :, 0, 0]
        ours[name] = tensor
    return ours


# (theirs, ours), applied one after the other.
PORT_NAMES = [
    (r"^layers\.(\d+)\.0\.", r"stage\1.patch_embed.proj."),
    (r"^layers\.(\d+)\.1\.", r"stage\1.patch_embed.norm."),
    (r"^layers\.(\d+)\.2\.layers\.(\d+)\.", r"stage\1.blocks.\2."),
    (r"(blocks\.\d+)\.0\.norm\.", r"\1.norm1."),
    (r"(blocks\.\d+)\.1\.norm\.", r"\1.norm2."),
    (r"(norm\d?)\.g$", r"\1.weight"),
    (r"(norm\d?)\.b$", r"\1.bias"),
    (r"0\.fn\.to_(q|kv)\.net\.0\.", r"attn.conv_proj_\1.conv."),
    (r"0\.fn\.to_(q|kv)\.net\.1\.", r"attn.conv_proj_\1.bn."),
    (r"0\.fn\.to_(q|kv)\.net\.2\.", r"attn.proj_\1."),
    (r"0\.fn\.to_out\.0\.", r"attn.proj."),
    (r"1\.fn\.net\.0\.", r"mlp.fc1."),
    (r"1\.fn\.net\.3\.", r"mlp.fc2."),
]
