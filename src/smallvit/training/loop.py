"""The training loop: a generator that yields after every step, and nothing else happens in it.

Progress bar, log, checkpoints, budgets and tests iterate over it. What it holds between two yields is the whole
state of a run: stop anywhere, save `Training`, load it, go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from smallvit.data.loader import Loader
from smallvit.data.preparation import Preparation
from smallvit.evaluation.metrics import Score
from smallvit.models.features import Backbone
from smallvit.models.sharing import sharing
from smallvit.models.transfer import Transfer
from smallvit.objectives.base import EvalData
from smallvit.randomness import generator, key_of
from smallvit.recipe import Recipe, resolved
from smallvit.training.continued import seed_of_draws
from smallvit.training.optimizer import learning_rate
from smallvit.training.selection import Best
from smallvit.training.step import Step
from smallvit.training.together import mean_gradients
from smallvit.types import ALONE, Context, Loss, View, World


class Decision(NamedTuple):
    """After step `at` the run was given another number of steps than it was planned with."""

    at: int
    total: int


@dataclass
class Training:
    """Everything that changes while training, and what it takes to change it."""

    recipe: Recipe
    step: Step  # the bare one: what is stored, judged and averaged
    wrapped: nn.Module  # what the loop calls: the step itself, or something around it
    optimizer: torch.optim.Optimizer
    ema: ModelEmaV3 | None
    loader: Loader
    val_rows: Tensor  # empty: no validation
    num_classes: int
    device: torch.device
    world: World = ALONE
    starting_weights: str = ""  # what became of those that were asked for; empty where a stored state follows
    transferred: Transfer | None = None  # what became of the weights that were given to start from
    went_on: str = ""  # what was taken over from the run that is trained longer
    done: int = 0  # steps taken
    decision: Decision | None = None
    best: Best = field(default_factory=Best)

    @property
    def planned(self) -> int:
        """Steps, as the run was planned."""
        return self.recipe.steps or resolved(self.recipe.epochs) * len(self.loader)

    @property
    def total(self) -> int:
        """Steps, as far as it is decided here: those that are taken again after a kill know as little as they did."""
        return self.decision.total if self.decision and self.done > self.decision.at else self.planned

    @property
    def epochs(self) -> int:
        """The last one may be cut short."""
        return -(-self.total // len(self.loader))

    @property
    def place(self) -> float:
        """Where training stands on the way that was planned: the steps taken, or, after a decision, as many as they
        would have been. Learning rates, schedules and views follow it, so that they go on where they were.
        """
        return self.place_after(self.done)

    def place_after(self, steps: int) -> float:
        if self.decision is None or steps <= self.decision.at:
            return steps
        at, total = self.decision
        return at + (steps - at) * (self.planned - 1 - at) / max(1, total - 1 - at)

    def views_at(self, epoch: int) -> tuple[View, ...]:
        """The views of an epoch: those of the planned one at whose place it ends, so that the last has the last views.

        In the epoch of a decision nothing changes: some of its batches were made before.
        """
        steps, planned = len(self.loader), epoch
        if self.decision is not None and epoch * steps > self.decision.at:
            planned = int(self.place_after(min((epoch + 1) * steps, self.decision.total) - 1) // steps)
        return self.step.objective.views_at(planned, resolved(self.recipe.epochs))

    @property
    def evaluated(self) -> Backbone:
        """The weights that are judged: the moving average where there is one."""
        return self.ema.module if self.ema is not None else self.step.backbone

    def exam(self, held_out: Tensor) -> EvalData:
        """What the objective judges the model by."""
        loader, preparation = self.loader, Preparation.of(self.recipe.data.model_dump())
        return EvalData(loader.images, preparation, self.num_classes, loader.rows, held_out, self.done / self.total)


class Tick(NamedTuple):
    """One step done. The tensors are still on the device: reading them waits for it."""

    epoch: int
    step: int  # steps done, this one included
    loss: Tensor
    parts: dict[str, Tensor]
    grad_norm: Tensor
    lr: float
    ends_epoch: bool
    validation: Score | None  # after some epochs: what the objective thinks of the model
    kept: bool  # it is the best look so far
    stepped: float = 0.0  # on the monotonic clock, when the step was done and nothing had been looked at


def train(t: Training) -> Iterator[Tick]:
    while t.done < t.total:
        epoch, number = divmod(t.done, len(t.loader))
        lr = learning_rate(t.recipe.schedule, resolved(t.recipe.optimizer.lr), t.place, t.planned, len(t.loader))
        loss, grad_norm = take_step(t, epoch, number, lr)
        t.done += 1
        ends_epoch = number == len(t.loader) - 1 or t.done == t.total
        stepped = time.monotonic()
        score = validate(t, epoch) if ends_epoch else None
        t.best = t.best.after(score, epoch, (score and score.images) or len(t.val_rows))
        kept = score is not None and t.best.epoch == epoch
        tick = Tick(epoch, t.done, loss.total.detach(), loss.parts, grad_norm, lr, ends_epoch, score, kept, stepped)
        del loss  # it holds features, and the next step needs their memory
        yield tick


def take_step(t: Training, epoch: int, number: int, lr: float) -> tuple[Loss, Tensor]:
    seed, precision = seed_of_draws(t.recipe), resolved(t.recipe.precision)
    # Dropout and drop-path draw from torch's global stream: give it a place that depends on the step alone, and on
    # which part of the batch is looked at here.
    _seed_global(key_of(seed, "step", t.done, *[t.world.rank] * (t.world.rank > 0)), t.device)
    draw = generator(seed, "objective", t.done, device=t.device)
    key = key_of(seed, "objective of images", epoch)
    ctx = Context(epoch, t.done, t.place / max(1, t.planned - 1), draw, resolved(t.recipe.epochs), key)
    t.step.train()
    for group in t.optimizer.param_groups:
        group["lr"] = lr  # a group of its own rate multiplies it by its lr_scale
    batch = t.loader.batch(epoch, number)
    with _multiplying(precision, t.device), sharing(t.world, grids=len(t.step.auxiliaries) > 0):
        loss: Loss = t.wrapped(batch, ctx)
    t.optimizer.zero_grad(set_to_none=True)
    loss.total.backward()
    mean_gradients(t.step, t.world)
    # With clipping off the norm is still wanted: it shows the first step that is no number.
    limit = t.recipe.optimizer.clip or float("inf")
    grad_norm = torch.nn.utils.clip_grad_norm_(t.step.parameters(), limit)
    with _multiplying(precision, t.device):  # Muon makes orthogonal what it moves by, which needs no more digits
        t.optimizer.step()
    t.step.after_step(ctx)
    if t.ema is not None:
        t.ema.update(t.step.backbone, step=t.recipe.continued.steps + t.done)  # a continued average is no young one
    return loss, grad_norm


def _multiplying(precision: str, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def _seed_global(key: int, device: torch.device) -> None:
    """torch.manual_seed looks for accelerators and keeps a stack trace: half a millisecond."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(key)
    else:
        torch.manual_seed(key)


def validate(t: Training, epoch: int) -> Score | None:
    """Judge the model after every `eval_every` epochs and after the last; how is the objective's own matter."""
    if t.done < t.total and (epoch + 1) % resolved(t.recipe.eval_every):
        return None
    return t.step.objective.judge(t.evaluated, t.exam(t.val_rows))
