"""Every model that smallvit registers with timm, found by itself and made small enough to be tried on a laptop."""

from __future__ import annotations

from functools import cache
from typing import Any

import timm
import torch
from torch import Tensor, nn

import smallvit.models  # noqa: F401

OURS = [name for name in timm.list_models() if timm.models.model_entrypoint(name).__module__.startswith("smallvit.")]
Size = tuple[int, int]

# Tried in this order: the first that a constructor takes makes the model shallow, not narrow.
SHALLOWER: list[dict[str, Any]] = [
    {"depth": 2},
    {"depths": (1, 1, 1, 1)},
    {"depths": (1, 1, 1)},
    {"layers": (1, 1, 1, 1)},
]


@cache
def shallow(name: str) -> dict[str, Any]:
    """Arguments that take blocks away; none where the model knows no such argument, or has no more to give."""
    whole = timm.create_model(name)
    stages = len(whole.feature_info)
    for arguments in SHALLOWER:
        try:
            model = timm.create_model(name, **arguments)
        except (TypeError, ValueError, IndexError, AssertionError):
            continue
        grids_stay = "depth" in arguments or len(model.feature_info) == stages
        if grids_stay and _numbers(model) < _numbers(whole):
            return arguments
    return {}


def _numbers(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def create(name: str, size: Size = (32, 32), in_chans: int = 3, num_classes: int = 7, **arguments: Any) -> nn.Module:
    """The shallow model with no zeros left (heads and last scales start there): they would hide mistakes."""
    torch.manual_seed(0)
    if timm.models.get_pretrained_cfg(name).fixed_input_size:
        arguments["img_size"] = size
    model = timm.create_model(name, num_classes=num_classes, in_chans=in_chans, **{**shallow(name), **arguments})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def pictures(count: int, size: Size = (32, 32), in_chans: int = 3) -> Tensor:
    return torch.randn(count, in_chans, *size, generator=torch.Generator().manual_seed(1))
