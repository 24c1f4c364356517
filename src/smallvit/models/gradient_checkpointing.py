"""Gradient checkpointing for blocks with BatchNorm.

The second forward pass leaves running statistics as they are, and normalises as the first did: over the images of all
processes where a batch is shared. timm's own knows nothing of either; the first is mended after a step, the second is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from timm.models import checkpoint
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from smallvit.models.sharing import same_norms


def checkpointed(block: nn.Module, *inputs: Any, run: Callable[..., Any] | None = None) -> Any:
    """`block(*inputs)`, or `run(*inputs)` of its parts, that keeps only its inputs and computes the rest again in the backward pass.

    A block that moves buffers in its forward pass would move them twice a step.
    """

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _second_pass(block, same_norms())

    return checkpoint(run or block, *inputs, use_reentrant=False, context_fn=contexts)


@contextmanager
def _second_pass(block: nn.Module, norms: AbstractContextManager[None]) -> Iterator[None]:
    with norms, unmoved_buffers(block):
        yield


def may_share(model: Any) -> bool:
    """Whether its checkpointing is right where processes share a batch: ours is, timm's where there is no BatchNorm."""
    ours = type(model).set_grad_checkpointing.__module__.startswith("smallvit.")
    return ours or not any(isinstance(module, _BatchNorm) for module in model.modules())


@contextmanager
def unmoved_buffers(module: nn.Module) -> Iterator[None]:
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
