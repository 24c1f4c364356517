"""How many epochs fit into a given time: measured on a copy of the run, so that nothing of it is used up."""

from __future__ import annotations

import copy
import time

import torch

from smallvit.errors import UsageError
from smallvit.recipe import resolved
from smallvit.training.loop import Training, take_step
from smallvit.training.optimizer import make_optimizer

WARM_UP_STEPS = 2
MEASURED_SECONDS = 3.0
MARGIN = 0.9  # of the time left: machines slow down, never up
MOST_EPOCHS = 1_000
MOST_VALIDATIONS = 40


def epochs_within(t: Training, seconds: float) -> tuple[int, str]:
    """The number of epochs that end within `seconds` from now, and the measurement in words."""
    started = time.perf_counter()
    step_seconds = measure_step(t) if seconds > 0 else 0.0
    seconds -= time.perf_counter() - started
    steps = len(t.loader)
    passes = t.loader.batch_size * sum(view.copies for view in t.loader.views)
    looked_at = t.step.objective.judged_images(len(t.loader.rows), len(t.val_rows))
    validation_seconds = looked_at / passes * step_seconds / 3  # no backward pass
    epochs = fitting_epochs(seconds, step_seconds * steps, validation_seconds)
    if epochs < 1:
        needed = (
            f", but one epoch of {steps} steps takes about {(step_seconds * steps + validation_seconds) / MARGIN:.0f} s"
        )
        raise UsageError(
            f"the budget leaves {max(0, seconds):.0f} s for training{needed if step_seconds else ''}: "
            "raise --budget, or take fewer images or a smaller model"
        )
    return epochs, f"{step_seconds * 1000:.0f} ms a step, {steps} steps an epoch, {seconds:.0f} s left"


def fitting_epochs(seconds: float, epoch_seconds: float, validation_seconds: float) -> int:
    """The most epochs with their validations that fit, with a margin; 0 where not even one does."""
    usable = MARGIN * seconds
    if usable <= 0:
        return 0
    epochs = int(usable / (epoch_seconds + validation_seconds))
    # Validations are at most MOST_VALIDATIONS, one an epoch in short runs.
    if epochs > MOST_VALIDATIONS:
        epochs = int((usable - MOST_VALIDATIONS * validation_seconds) / epoch_seconds)
    return min(epochs, MOST_EPOCHS)


def measure_step(t: Training) -> float:
    """Median seconds of a training step on this machine."""
    trial = copy.copy(t)
    trial.step = copy.deepcopy(t.step)
    trial.ema = copy.deepcopy(t.ema)
    if t.recipe.compile:
        trial.step.backbone.compile()  # a copy is not compiled
    trial.optimizer = make_optimizer(trial.step, t.recipe.optimizer, t.device)
    times: list[float] = []
    started = time.perf_counter()
    for number in range(200):
        before = time.perf_counter()
        take_step(trial, 0, number % len(t.loader), resolved(t.recipe.optimizer.lr) * 0.01)
        if t.device.type == "cuda":
            torch.cuda.synchronize(t.device)
        times.append(time.perf_counter() - before)
        if number >= WARM_UP_STEPS + 2 and time.perf_counter() - started > MEASURED_SECONDS:
            break
    measured = sorted(times[WARM_UP_STEPS:])
    return measured[len(measured) // 2]
