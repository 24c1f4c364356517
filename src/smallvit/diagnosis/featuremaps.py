"""What the layers of a CNN, or of any model with maps, really give for an image: outputs inside the running network.

B images, C channels, H by W cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smallvit.diagnosis.capture import watched_outputs
from smallvit.errors import UsageError, nearest

SHORTCUTS = ("downsample", "shortcut")  # convolutions beside the main path, by their names in timm and elsewhere


class FeatureMap(NamedTuple):
    layer: str
    map_BCHW: Tensor


def feature_maps(model: nn.Module, images_BCHW: Tensor, layers: Sequence[str] | None = None) -> list[FeatureMap]:
    """The maps of the named layers, or of every convolution on the main path, in the order in which they ran.

    A ResNet-18 has 17 of these: the first one, and two in each of eight blocks.
    """
    known = dict(model.named_modules())
    wanted = main_convolutions(model) if layers is None else list(layers)
    for name in wanted:
        if name not in known:
            raise UsageError(f"the model has no layer {name!r}: {nearest(name, list(known))}")
    maps: list[FeatureMap] = []

    def watch(name: str, _module: nn.Module, output: Tensor) -> None:
        if name in wanted and output.ndim == 4:
            maps.append(FeatureMap(name, output.clone().cpu()))  # an activation in place would change it

    with watched_outputs(model, watch):
        model(images_BCHW)
    if layers is not None and (missing := [name for name in wanted if name not in {kept.layer for kept in maps}]):
        raise UsageError(f"layer {missing[0]} gives no map of channels by rows by columns")
    return maps


def main_convolutions(model: nn.Module) -> list[str]:
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and not any(part in name.split(".") for part in SHORTCUTS)
    ]


def channel_mean(feature_map: FeatureMap) -> Tensor:
    """(B, H, W): the channels as one grey picture."""
    return feature_map.map_BCHW.mean(1)


def strongest_channels(feature_map: FeatureMap, count: int) -> Tensor:
    """(B, count, H, W): for every image the channels whose values vary most over it, the strongest first."""
    order_BC = feature_map.map_BCHW.flatten(2).std(2, correction=0).argsort(1, descending=True)[:, :count]
    return torch.take_along_dim(feature_map.map_BCHW, order_BC[:, :, None, None], 1)
