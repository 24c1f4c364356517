"""Mixup and CutMix by turns of epochs, as IDMM's fine-tuning has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from smallvit.data.mixing import mix
from smallvit.models.features import create_backbone
from smallvit.objectives import TaskInfo, objectives
from smallvit.objectives.base import options_of
from smallvit.types import Batch, Context

SIZE, CLASSES = 8, 3


def total(epoch: int, seed: int = 5, **options: Any) -> Tensor:
    torch.manual_seed(0)
    backbone = create_backbone("resnet_nano", {}, num_classes=CLASSES, in_chans=3, img_size=SIZE).eval()
    made = objectives()["supervised"](
        backbone,
        options_of(objectives(), "supervised", {"mix_per": "batch", **options}, "objective"),
        TaskInfo(CLASSES, 12, SIZE),
    )
    images = torch.randn(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(6) % CLASSES
    context = Context(epoch, 10, 0.3, torch.Generator().manual_seed(seed), epochs=10)
    return made(backbone, Batch((images,), labels, labels), context).total.detach()


@pytest.mark.parametrize("epoch", [0, 1, 2, 3])
def test_even_epochs_mix_and_odd_ones_cut(epoch: int) -> None:
    by_turns = total(epoch, mixup=0.5, cutmix=0.5, mix_alternate=True)
    expected = {"cutmix": 0.5} if epoch % 2 else {"mixup": 0.5}
    assert torch.equal(by_turns, total(epoch, **expected))
    assert not torch.equal(by_turns, total(epoch))


def test_the_own_image_keeps_the_larger_share() -> None:
    """Where it already did, nothing changes."""
    changed = []
    for seed in range(8):
        lam = mix(
            torch.zeros(6, 3, SIZE, SIZE), torch.Generator().manual_seed(seed), mixup=0.5, cutmix=0.0, per="batch"
        ).lam_B[0]
        same = torch.equal(total(0, seed, mixup=0.5), total(0, seed, mixup=0.5, mix_keep_larger=True))
        assert same == bool(lam >= 0.5)
        changed.append(not same)
    assert any(changed) and not all(changed)
