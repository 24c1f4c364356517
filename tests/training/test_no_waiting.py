"""A step reads no number back from its device, so a GPU is never waited for: looked for on the CPU, where reading shows as an operation.

Batches are made before, and the optimizer's own counters live on the CPU: both are left out.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_pieces import made
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from smallvit.objectives import objectives
from smallvit.training.loop import Training, take_step

READING = (
    "_local_scalar_dense",
    "nonzero",
    "equal",
    "is_nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "bincount",
)


class Reads(TorchDispatchMode):
    """Collects operations whose result must be on the CPU before the next line can run."""

    def __init__(self, t: Training | None = None) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.elsewhere = False
        if t is not None:
            t.optimizer.register_step_pre_hook(lambda *_: self._leave(True))
            t.optimizer.register_step_post_hook(lambda *_: self._leave(False))

    def _leave(self, out: bool) -> None:
        self.elsewhere = out

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            isinstance(place, Tensor) and place.dtype == torch.bool for place in tree_leaves(args[1])
        )
        if (name in READING or by_mask) and not self.elsewhere:
            self.found.add(name)
        return func(*args, **(kwargs or {}))


def test_reading_is_noticed() -> None:
    numbers = torch.arange(3.0)
    with Reads() as reads:
        float(numbers.sum())
        numbers[numbers > 1]
    assert reads.found == {"_local_scalar_dense", "index"}


@pytest.mark.parametrize("objective", objectives())
def test_a_step_reads_nothing(objective: str) -> None:
    t = made(objective)
    take_step(t, 0, 0, 0.01)
    t.loader.batch(0, 1)
    with Reads(t) as reads:
        take_step(t, 0, 1, 0.01)
    assert not reads.found


@pytest.mark.parametrize(
    "changes",
    [
        {"mixup": 0.8, "cutmix": 1.0, "aux": {"drloc": {}}},
        {"optimizer.name": "muon", "model": "conv_nano"},
        {"grad_accum": 2, "grad_checkpointing": True, "ema": 0.9, "drop_path": 0.1},
    ],
    ids=["mixing", "muon", "pieces"],
)
def test_nor_does_one_with_more_in_it(changes: dict[str, Any]) -> None:
    t = made("supervised", **changes)
    take_step(t, 0, 0, 0.01)
    t.loader.batch(0, 1)
    with Reads(t) as reads:
        take_step(t, 0, 1, 0.01)
    assert not reads.found


@pytest.mark.parametrize(
    "changes",
    [{}, {"augment.crop": "resized", "augment.flip": 0.5, "in_chans": 3, "augment.brightness": 0.3, "augment.hue": 0.1}],
    ids=["default", "more"],
)  # fmt: skip
def test_nor_do_crop_flip_and_colour(changes: dict[str, Any]) -> None:
    t = made("supervised", **changes)
    pixels = t.loader.images.take(t.loader.rows[:8])
    augment, positions = t.loader.images.augmenter, torch.arange(8)
    with Reads() as reads:
        augment(pixels, 8, 7, positions, None)
    assert not reads.found
