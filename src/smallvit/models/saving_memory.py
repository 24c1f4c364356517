"""Gradient checkpointing of any model: blocks keep their inputs, and compute the rest again in the backward pass.

timm's models are asked for it by `set_grad_checkpointing`, and some of them do not listen where the features of stages are
wanted; so what is kept is counted, and a model that keeps as much as before is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from smallvit.errors import UsageError
from smallvit.models.features import BUILD_ERRORS, Backbone, made_up_images
from smallvit.models.gradient_checkpointing import unmoved_buffers

WORTH_IT = 0.9  # of the bytes that are kept: what saves less is not worth a second forward pass


def save_memory(backbone: Backbone, name: str) -> None:
    """Switch it on; a model that cannot do it is refused, with what else there is."""
    model: Any = backbone.model
    before = kept_bytes(backbone)
    try:
        model.set_grad_checkpointing(True)
        why = "" if kept_bytes(backbone) < WORTH_IT * before else "it keeps as much as before"
    except BUILD_ERRORS as error:
        why = str(error) or f"timm gives no reason ({type(error).__name__})"
    if why:
        raise UsageError(
            f"--grad-checkpointing: {name} cannot do it ({why}); --grad-accum 2, which takes a batch in pieces, works "
            "with every model"
        )


def kept_bytes(backbone: Backbone) -> int:
    """What the forward pass of two made-up images keeps for the backward pass, weights left out."""
    kept: dict[int, int] = {}
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*backbone.parameters(), *backbone.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    was_training = backbone.training
    backbone.train()
    images = made_up_images(backbone, backbone.img_size).to(next(backbone.parameters()).device)
    with unmoved_buffers(backbone), torch.random.fork_rng(devices=[]), saved_tensors_hooks(keep, lambda tensor: tensor):
        alive = backbone(images)
    del alive  # not before: an address that is free again would be counted once for two tensors
    backbone.train(was_training)
    return sum(kept.values())
