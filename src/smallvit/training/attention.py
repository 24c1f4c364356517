"""Attention in 16 bits on a CPU: by plain products, where torch's fused kernel is slow.

Without units for whole tiles (AMX) a step of a ViT takes up to 3.7 times as long with the kernel in bf16 as with two products and
a softmax, and with small heads longer than in fp32 (docs/speed/attention.md). What the kernel saves is memory, so it keeps what
has very many scores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.training.bf16 import takes_amx

MOST_SCORES = 2**23  # of one layer: 16 MB, kept until the backward pass
FUSED = F.scaled_dot_product_attention

_inside = 0  # such contexts; the outermost alone has an effect
_counting = threading.Lock()


@contextmanager
def quick_attention() -> Iterator[None]:
    """Every model's calls of `scaled_dot_product_attention`, timm's too, go through here; what is not in bf16 on the CPU is as it was."""
    global _inside
    with _counting:
        _inside += 1
        if _inside == 1 and F.scaled_dot_product_attention is FUSED and not takes_amx():
            F.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        with _counting:
            _inside -= 1
            if _inside == 0 and F.scaled_dot_product_attention is attention:
                F.scaled_dot_product_attention = FUSED


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention`. B images (or windows of them), M heads, Q queries, K keys."""
    if is_causal or enable_gqa or not _is_slow_fused(query, key):
        return FUSED(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    scores_BMQK = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores_BMQK = scores_BMQK.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores_BMQK = scores_BMQK + attn_mask.to(scores_BMQK.dtype)
    return F.dropout(scores_BMQK.softmax(-1), dropout_p) @ value


def _is_slow_fused(query: Tensor, key: Tensor) -> bool:
    in_16_bits = (
        query.device.type == "cpu"
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") is torch.bfloat16
    )
    return in_16_bits and query.shape[:-1].numel() * key.shape[-2] <= MOST_SCORES
