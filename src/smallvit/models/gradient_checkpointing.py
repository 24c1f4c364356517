"""Gradient checkpointing for blocks with BatchNorm: the second forward pass leaves running statistics as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from timm.models import checkpoint
from torch import nn


def checkpointed(block: nn.Module, *inputs: Any, run: Callable[..., Any] | None = None) -> Any:
    """`block(*inputs)`, or `run(*inputs)` of its parts, that keeps only its inputs and computes the rest again in the backward pass.

    A block that moves buffers in its forward pass would move them twice a step.
    """

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), unmoved_buffers(block)

    return checkpoint(run or block, *inputs, use_reentrant=False, context_fn=contexts)


@contextmanager
def unmoved_buffers(module: nn.Module) -> Iterator[None]:
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
