"""Step: the one module that is trained and that checkpoints hold; the loop calls it as `wrap` gives it back."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import nn

from smallvit.models.features import Backbone
from smallvit.objectives.base import Auxiliary, Objective
from smallvit.recipe import Recipe
from smallvit.types import Batch, Context, Loss


class Step(nn.Module):
    """Backbone -> objective -> auxiliary losses, as one forward pass and one sum."""

    def __init__(self, backbone: Backbone, objective: Objective, auxiliaries: Mapping[str, Auxiliary]) -> None:
        super().__init__()
        self.backbone = backbone
        self.objective = objective
        self.auxiliaries = nn.ModuleDict(auxiliaries)
        self.objective_share = math.prod(auxiliary.objective_share for auxiliary in auxiliaries.values())
        self.learned_from = tuple(file for auxiliary in auxiliaries.values() for file in auxiliary.learned_from)

    def forward(self, batch: Batch, ctx: Context) -> Loss:
        loss: Loss = self.objective(self.backbone, batch, ctx)
        total, parts = self.objective_share * loss.total, dict(loss.parts)
        for auxiliary in self.auxiliaries.values():
            extra: Loss = auxiliary(self.backbone, loss.seen, ctx)
            total = total + extra.total
            parts |= extra.parts
        return Loss(total, parts, loss.seen)

    def after_step(self, ctx: Context) -> None:
        self.objective.after_step(self.backbone, ctx)


def wrap(step: Step, recipe: Recipe) -> nn.Module:
    """What the loop calls in place of the bare step: the same parameters, run as the recipe wants them run."""
    if recipe.compile:
        step.backbone.compile()  # in place: names of parameters stay as they are
    return step
