"""ResNets for small images: a 3x3 stem with stride 1 and no max-pool, so that 32 px still end in a 4x4 grid.

`stem_stride` 2 and 4 leave the same grid to images of 64 and 128 px: a stride in the stem, and then the max-pool that ResNets have.

B images, D width, H by W cells.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import Tensor, nn

from smallvit.models.gradient_checkpointing import checkpointed
from smallvit.models.registry import config

default_cfgs = generate_default_cfgs(
    {name: config(32, "conv1", "fc", fixed_size=False) for name in ("resnet_nano", "resnet18_32", "resnet50_32")}
)

STAGES = ("layer1", "layer2", "layer3", "layer4")


class SmallImageResNet(ResNet):
    """timm's ResNet with the stem that CIFAR-sized images need."""

    def __init__(
        self, *args: Any, in_chans: int = 3, stem_channels: int = 64, stem_stride: int = 1, **kwargs: Any
    ) -> None:
        if stem_stride not in (1, 2, 4):
            raise ValueError(f"stem_stride = {stem_stride}: it may be 1, 2 or 4")
        # timm fixes the stem's width at 64; the first block is built for it, so a narrower stem is a deep one.
        stem = {} if stem_channels == 64 else {"stem_type": "deep", "stem_width": stem_channels // 2}
        super().__init__(*args, in_chans=in_chans, **stem, **kwargs)
        self.conv1 = nn.Conv2d(in_chans, stem_channels, 3, stride=min(2, stem_stride), padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if stem_stride == 4 else nn.Identity()
        for info in self.feature_info:
            of_stem = info["module"] == "act1"  # before the max-pool
            info["reduction"] = min(2, stem_stride) if of_stem else info["reduction"] // 4 * stem_stride

        for name in STAGES:
            setattr(self, name, Stage(*getattr(self, name)))

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Not timm's, which moves the running statistics of BatchNorm twice, and forgets it for `forward_intermediates`."""
        for name in STAGES:
            getattr(self, name).grad_checkpointing = enable


class Stage(nn.Sequential):
    """Blocks that may be computed again in the backward pass."""

    grad_checkpointing = False

    def forward(self, map_BDHW: Tensor) -> Tensor:
        if self.grad_checkpointing and torch.is_grad_enabled():
            return checkpointed(self, map_BDHW, run=self._through)
        return self._through(map_BDHW)

    def _through(self, map_BDHW: Tensor) -> Tensor:
        for block in self:
            map_BDHW = block(map_BDHW)
        return map_BDHW


def _resnet(name: str, pretrained: bool, **kwargs: Any) -> SmallImageResNet:
    return build_model_with_cfg(SmallImageResNet, name, pretrained, **kwargs)


@register_model
def resnet_nano(pretrained: bool = False, **kwargs: Any) -> SmallImageResNet:
    """A small ResNet: four stages of one block, 16 to 96 channels."""
    shape = {"block": BasicBlock, "layers": (1, 1, 1, 1), "channels": (16, 32, 64, 96), "stem_channels": 16}
    return _resnet("resnet_nano", pretrained, **{**shape, **kwargs})


@register_model
def resnet18_32(pretrained: bool = False, **kwargs: Any) -> SmallImageResNet:
    """ResNet-18 for small images."""
    return _resnet("resnet18_32", pretrained, **{"block": BasicBlock, "layers": (2, 2, 2, 2), **kwargs})


@register_model
def resnet50_32(pretrained: bool = False, **kwargs: Any) -> SmallImageResNet:
    """ResNet-50 for small images."""
    return _resnet("resnet50_32", pretrained, **{"block": Bottleneck, "layers": (3, 4, 6, 3), **kwargs})
