"""How many steps fit into a given time: measured on a copy of the run, so that nothing of it is used up.

Where the views change while training runs, a step is measured with the smallest and with the largest ones, and those
between cost in proportion to their pixels. What attention costs grows faster than pixels, so this errs on the safe side.
"""

from __future__ import annotations

import copy
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from smallvit.errors import UsageError
from smallvit.recipe import resolved
from smallvit.training.loop import Training, take_step
from smallvit.training.optimizer import make_optimizer
from smallvit.training.step import wrap
from smallvit.types import View

WARM_UP_STEPS = 2
MEASURED_SECONDS = 3.0
MARGIN = 0.9  # of the time left: machines slow down, never up
MOST_EPOCHS = 1_000
MOST_VALIDATIONS = 40
PREDICTED = 128  # images, to see how long an answer takes


class StepCost(NamedTuple):
    """Seconds of a step by the pixels of its views: a line through the cheapest and the dearest."""

    pixels: tuple[int, int]
    seconds: tuple[float, float]

    def at(self, views: Sequence[View]) -> float:
        (low, high), (least, most) = self.pixels, self.seconds
        if low == high:
            return most
        return least + (most - least) * (pixels_of(views) - low) / (high - low)

    def __str__(self) -> str:
        least, most = (f"{seconds * 1000:.0f}" for seconds in self.seconds)
        return f"{least} ms a step" if least == most else f"{least} to {most} ms a step"


class Fitting(NamedTuple):
    """Steps that fit into a time, what one takes, and both in words."""

    steps: int
    cost: StepCost
    why: str


def steps_within(t: Training, seconds: float) -> Fitting:
    """The number of steps that end within `seconds` from now."""
    started = time.perf_counter()
    cost = measure_cost(t, MOST_EPOCHS) if seconds > 0 else StepCost((1, 1), (0.0, 0.0))
    seconds -= time.perf_counter() - started
    steps = len(t.loader)

    def takes(epochs: int) -> float:
        return seconds_of(t, cost, epochs, min(epochs, MOST_VALIDATIONS))

    epochs = fitting_epochs(seconds, takes)
    if epochs < 1:
        needed = f", but one epoch of {steps} steps takes about {seconds_of(t, cost, 1, 1) / MARGIN:.0f} s"
        raise UsageError(
            f"the budget leaves {max(0, seconds):.0f} s for training{needed if cost.seconds[1] else ''}: "
            "raise --budget, or take fewer images or a smaller model"
        )
    started_one = int(steps * (MARGIN * seconds - takes(epochs)) / (takes(epochs + 1) - takes(epochs)))
    total = epochs * steps + (started_one if epochs < MOST_EPOCHS else 0)
    return Fitting(total, cost, f"{cost}, {steps} steps an epoch, {seconds:.0f} s left")


def dearer_later(t: Training, fitting: Fitting, at: int) -> float:
    """What a step after the first `at` takes on average, to one of these; 1 where all have the same views."""
    if fitting.cost.pixels[0] == fitting.cost.pixels[1]:
        return 1.0
    steps, epochs = len(t.loader), -(-fitting.steps // len(t.loader))
    by_epoch = [fitting.cost.at(t.step.objective.views_at(epoch, epochs)) for epoch in range(epochs)]
    seconds = [by_epoch[step // steps] for step in range(fitting.steps)]
    return (sum(seconds[at:]) / (fitting.steps - at)) / (sum(seconds[:at]) / at)


def fitting_epochs(seconds: float, takes: Callable[[int], float]) -> int:
    """The most epochs that fit, with a margin; 0 where not even one does. `takes`: seconds of so many epochs."""
    usable = MARGIN * seconds
    return bisect_right(range(1, MOST_EPOCHS + 1), usable, key=takes) if usable > 0 else 0


def seconds_of(t: Training, cost: StepCost, epochs: int, validations: int) -> float:
    """What a run of so many epochs takes that looks at its validation part so often."""
    views_at, judged_images = t.step.objective.views_at, t.step.objective.judged_images
    trained = len(t.loader) * sum(cost.at(views_at(epoch, epochs)) for epoch in range(epochs))
    looked_at = judged_images(len(t.loader.rows), len(t.val_rows)) * resolved(t.recipe.data.img_size) ** 2
    a_look = looked_at / (t.loader.batch_size * cost.pixels[1]) * cost.seconds[1] / 3  # no backward pass
    return trained + validations * a_look


def seconds_to_judge(t: Training, images: int) -> float:
    """What the finished model takes to answer for so many images; measured on a few of those it is trained on."""
    rows = t.loader.rows[: min(images, PREDICTED)]
    if not len(rows):
        return 0.0
    predictor = t.exam(rows).predictor(t.step.backbone)
    answer = predictor.logits if t.step.objective.classifies else predictor.features  # which may be of several looks
    answer(t.loader.images, rows)  # the first time takes longer
    before = time.perf_counter()
    answer(t.loader.images, rows)
    return (time.perf_counter() - before) * images / len(rows)


def measure_cost(t: Training, epochs: int) -> StepCost:
    """A step with the smallest and one with the largest views of a run of so many epochs."""
    views_at = t.step.objective.views_at
    kinds = sorted({views_at(epoch, epochs) for epoch in range(epochs)}, key=pixels_of)
    ends = kinds[:1] if len(kinds) == 1 else [kinds[0], kinds[-1]]
    seconds = [measure_step(t, views, MEASURED_SECONDS / len(ends)) for views in ends]
    return StepCost((pixels_of(ends[0]), pixels_of(ends[-1])), (seconds[0], max(seconds)))


def pixels_of(views: Sequence[View]) -> int:
    """Of all crops of one image."""
    return sum(view.copies * view.size**2 for view in views)


def measure_step(t: Training, views: Sequence[View], most_seconds: float = MEASURED_SECONDS) -> float:
    """Median seconds of a training step with these views on this machine."""
    trial = copy.copy(t)
    trial.loader = t.loader.showing(views)
    trial.step = copy.deepcopy(t.step)
    trial.wrapped = wrap(trial.step, t.recipe)
    trial.ema = copy.deepcopy(t.ema)
    trial.optimizer = make_optimizer(trial.step, t.recipe.optimizer, t.device)
    times: list[float] = []
    started = time.perf_counter()
    for number in range(200):
        before = time.perf_counter()
        take_step(trial, 0, number % len(t.loader), resolved(t.recipe.optimizer.lr) * 0.01)
        if t.device.type == "cuda":
            torch.cuda.synchronize(t.device)
        times.append(time.perf_counter() - before)
        if number >= WARM_UP_STEPS + 2 and time.perf_counter() - started > most_seconds:
            break
    measured = sorted(times[WARM_UP_STEPS:])
    return measured[len(measured) // 2]
