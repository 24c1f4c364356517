"""Step: the one module that is trained and that checkpoints hold; the loop calls it as `wrap` gives it back."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from smallvit.models.features import Backbone
from smallvit.models.sharing import in_pieces
from smallvit.objectives.base import Auxiliary, Objective
from smallvit.recipe import Recipe
from smallvit.training.compiled import compile_model
from smallvit.types import Batch, Context, Loss


class Step(nn.Module):
    """Backbone -> objective -> auxiliary losses, as one forward pass and one sum."""

    def __init__(self, backbone: Backbone, objective: Objective, auxiliaries: Mapping[str, Auxiliary]) -> None:
        super().__init__()
        self.backbone = backbone
        self.objective = objective
        self.auxiliaries = nn.ModuleDict(auxiliaries)
        self.objective_share = math.prod(auxiliary.objective_share for auxiliary in auxiliaries.values())
        self.computes_again = False  # parts of the forward pass in the backward pass, to save memory
        self._moved: list[tuple[Tensor, Tensor]] = []
        self.learned_from = tuple(file for auxiliary in auxiliaries.values() for file in auxiliary.learned_from)

    def forward(self, batch: Batch, ctx: Context) -> Loss:
        loss: Loss = self.objective(self.backbone, batch, ctx)
        total, parts = self.objective_share * loss.total, dict(loss.parts)
        for auxiliary in self.auxiliaries.values():
            extra: Loss = auxiliary(self.backbone, loss.seen, ctx)
            total = total + extra.total
            parts |= extra.parts
        if self.computes_again:  # which would move running statistics a second time
            self._moved = [(buffer, buffer.clone()) for buffer in self.backbone.buffers()]
        return Loss(total, parts, loss.seen)

    @torch.no_grad()
    def after_step(self, ctx: Context) -> None:
        for buffer, value in self._moved:
            buffer.copy_(value)
        self._moved = []
        self.objective.after_step(self.backbone, ctx)


class InPieces(nn.Module):
    """The step with its model taking the batch in pieces: the same loss of the same batch, in less memory."""

    def __init__(self, step: Step, pieces: int) -> None:
        super().__init__()
        self.step = step
        self.pieces = pieces

    def forward(self, batch: Batch, ctx: Context) -> Loss:
        with in_pieces(self.pieces, grids=len(self.step.auxiliaries) > 0):
            return self.step(batch, ctx)


def wrap(step: Step, recipe: Recipe) -> nn.Module:
    """What the loop calls in place of the bare step: the same parameters, run as the recipe wants them run."""
    pieces = pieces_of(recipe)
    step.computes_again = pieces > 1 or recipe.grad_checkpointing
    if recipe.compile is True:
        compile_model(step.backbone)
    return InPieces(step, pieces) if pieces > 1 else step


def pieces_of(recipe: Recipe) -> int:
    """`auto` in a recipe that is not resolved yet, or of a run that knew nothing of pieces: one."""
    return 1 if recipe.grad_accum == "auto" else recipe.grad_accum
