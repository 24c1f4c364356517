"""The attention of a model over many images: recorded once for each batch, it serves everything that is measured of it.

What is kept is as large for ten thousand images as for one batch. B images, M heads, Q queries, K keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from smallvit.diagnosis.attention import AttentionMap, laid_out
from smallvit.diagnosis.capture import AttentionCall, recorded_attention
from smallvit.diagnosis.distances import Locality, locality_of
from smallvit.errors import UsageError


class Heads(NamedTuple):
    """One layer: what its heads do for the queries, and how like each other they are."""

    layer: str
    selectivity_M: Tensor  # 0: the head gives every query the same; 1: every query something else
    likeness_MM: Tensor  # correlation of two heads' attention


class Attended(NamedTuple):
    """Layers in the order in which they run; all lists are empty for a CNN."""

    locality: list[Locality]  # of the layers in which at least two cells attend among each other
    heads: list[Heads]  # of the layers with at least two queries
    maps: list[AttentionMap]  # of the first batch
    left_out: dict[str, str]  # layers without a map of the image, and why


def attend(model: nn.Module, batches: Iterable[Tensor]) -> Attended:
    """Locality and heads on average over all images."""
    attended = Attended([], [], [], {})
    images = 0
    for images_BCHW in batches:
        with recorded_attention(model) as calls:
            model(images_BCHW)
        this = _of_batch(calls, images_BCHW)
        # The first batch comes with all its maps, later ones only change the means.
        share = len(images_BCHW) / (images + len(images_BCHW))
        attended = _mixed(attended, this, share) if images else this
        images += len(images_BCHW)
    if not images:
        raise UsageError("attention is measured on at least one batch of images")
    _name_the_unseen(model, attended)
    return attended


def locality(model: nn.Module, batches: Iterable[Tensor]) -> list[Locality]:
    """How far every layer looks whose cells attend among each other."""
    return attend(model, batches).locality


def heads_of(call: AttentionCall) -> Heads:
    """On average over the images, or windows of them, of a call."""
    weights_BMQK = call.weights_BMQK
    apart_M = (weights_BMQK - weights_BMQK.mean(2, keepdim=True)).abs().sum(-1).mean((0, 2)) / 2
    maps_BMX = weights_BMQK.flatten(2)
    maps_BMX = nn.functional.normalize(maps_BMX - maps_BMX.mean(2, keepdim=True), dim=2)
    return Heads(call.layer, apart_M, (maps_BMX @ maps_BMX.mT).mean(0))


def _of_batch(calls: list[AttentionCall], images_BCHW: Tensor) -> Attended:
    attended = Attended([], [], [], {})
    for call in calls:
        if call.weights_BMQK.shape[-2] > 1:
            attended.heads.append(heads_of(call))
        try:
            layer = laid_out(call, images_BCHW.shape)
        except UsageError as error:
            attended.left_out[call.layer] = str(error)
            continue
        attended.maps.append(layer)
        if math.prod(layer.queries.grid) > 1:
            attended.locality.append(locality_of(layer))
    return attended


def _mixed(before: Attended, this: Attended, share: float) -> Attended:
    """The means of what was seen before and of this batch, which is `share` of all images so far."""
    locality = [
        Locality(old.layer, old.grid, *(_mean(a, b, share) for a, b in zip(old[2:], new[2:], strict=True)))
        for old, new in zip(before.locality, this.locality, strict=True)
    ]
    heads = [
        Heads(old.layer, *(_mean(a, b, share) for a, b in zip(old[1:], new[1:], strict=True)))
        for old, new in zip(before.heads, this.heads, strict=True)
    ]
    return before._replace(locality=locality, heads=heads)


def _mean(before: Tensor, this: Tensor, share: float) -> Tensor:
    return before + share * (this - before)


def _name_the_unseen(model: nn.Module, attended: Attended) -> None:
    """Layers that do not use torch's attention (CaiT's, which mix their heads) are left out too, and named."""
    measured = [layer.layer for layer in attended.maps] + [heads.layer for heads in attended.heads]
    known = {*measured, *attended.left_out}
    for name, module in model.named_modules():
        if "attn_drop" in module._modules and name not in known:
            attended.left_out[name] = f"layer {name} has an attention of its own that cannot be recorded"
