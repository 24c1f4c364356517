"""Parameter groups, the optimizer, and the learning rate as a function of the step."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import nn

from smallvit.models.features import Backbone
from smallvit.models.transfer import classifier_names
from smallvit.recipe import OptimizerSpec, ScheduleSpec, resolved
from smallvit.training.muon import Muon
from smallvit.training.step import Step


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """No decay for 1-D tensors, biases, and what a model itself excludes (class token, positions)."""
    excluded: set[str] = set()
    for name, inner in module.named_modules():
        own = getattr(inner, "no_weight_decay", None)
        if callable(own):
            excluded |= {f"{name}.{key}" if name else key for key in own()}
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            free = parameter.ndim <= 1 or name.endswith(".bias") or name in excluded
            (plain if free else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def make_optimizer(step: Step, spec: OptimizerSpec, device: torch.device) -> torch.optim.Optimizer:
    groups = parameter_groups(step, resolved(spec.weight_decay))
    lr = resolved(spec.lr)
    fused = device.type in {"cpu", "cuda"}
    if spec.name == "muon":
        hidden = hidden_matrices(step.backbone)
        return Muon(
            hidden, without(groups, hidden), lr=lr, matrix_lr=resolved(spec.matrix_lr), betas=spec.betas, fused=fused
        )
    if spec.name == "sgd":  # not fused: that takes no parameter whose first gradient comes later than those of others
        return torch.optim.SGD(groups, lr=lr, momentum=spec.momentum, nesterov=spec.momentum > 0)
    return torch.optim.AdamW(groups, lr=lr, betas=spec.betas, fused=fused)


def hidden_matrices(backbone: Backbone) -> list[nn.Parameter]:
    """Weights of the linear layers and convolutions that have something before and behind them.

    Not of a layer whose inputs are pixels, which timm's configuration of the model names, and not of the classifier; nor
    of convolutions of single channels, which are no matrix. Heads that a loss brings are the last of their kind, too.
    """
    model: Any = backbone.model
    named = model.pretrained_cfg.get("first_conv") or ()
    ends = (*classifier_names(model), *(f"{name}." for name in ([named] if isinstance(named, str) else named)))
    return [
        cast(nn.Parameter, layer.weight)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer.weight.requires_grad
        and not f"{name}.".startswith(ends) and (isinstance(layer, nn.Linear) or layer.weight.shape[1] > 1)
    ]  # fmt: skip


def without(groups: list[dict[str, object]], taken: list[nn.Parameter]) -> list[dict[str, object]]:
    """The groups without some of their parameters; what is left empty goes."""
    names = {id(parameter) for parameter in taken}
    kept = [{**group, "params": [p for p in group["params"] if id(p) not in names]} for group in groups]  # type: ignore[attr-defined]
    return [group for group in kept if group["params"]]


def learning_rate(spec: ScheduleSpec, base: float, step: float, total: int, steps_per_epoch: int) -> float:
    """Linear warm-up, then cosine down to `end_at` of the base at the last step."""
    warmup = min(round(resolved(spec.warmup_epochs) * steps_per_epoch), total - 1)
    if step < warmup:
        return base * (spec.warmup_from + (1 - spec.warmup_from) * (step + 1) / (warmup + 1))
    progress = (step - warmup) / max(1, total - 1 - warmup)
    return base * (spec.end_at + (1 - spec.end_at) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
