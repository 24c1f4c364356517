"""A batch shared by processes, in a group of one: what is computed again is computed as it was."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from smallvit.models.aliases import architecture
from smallvit.models.features import Backbone, create_backbone
from smallvit.models.gradient_checkpointing import may_share
from smallvit.models.saving_memory import save_memory
from smallvit.models.sharing import whole_norms
from smallvit.types import World

SIZE = 16


def backbone(name: str) -> Backbone:
    plan = architecture(name, SIZE)
    return create_backbone(plan.timm_name, plan.kwargs, num_classes=3, in_chans=1, img_size=SIZE)


@pytest.fixture
def group() -> Iterator[World]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield World(0, 1)
    dist.destroy_process_group()


def passed(model: Backbone, world: World) -> list[torch.Tensor]:
    """Gradients and running statistics after a forward and a backward pass."""
    images = torch.randn(6, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    with whole_norms(world):
        features = model.train()(images)
    features.pooled_BD.square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [*gradients, *model.buffers()]


@pytest.mark.parametrize("name", ["conv_nano", "dhvt_nano", "resnet_nano", "cvt_nano"])
def test_norms_over_all_processes_are_computed_again_over_all(name: str, group: World) -> None:
    torch.manual_seed(0)
    plain = backbone(name)
    again = copy.deepcopy(plain)
    save_memory(again, name)
    for found, expected in zip(passed(again, group), passed(plain, group), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "right"), [("conv_nano", True), ("vit_nano", True), ("lcnet_035", False)])
def test_timms_own_checkpointing_is_right_without_batchnorm(name: str, right: bool) -> None:
    assert may_share(backbone(name).model) == right
