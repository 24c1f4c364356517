"""How long steps take: measured on a copy of the run, so that nothing of it is used up.

Where the views change while training runs, a step is measured with the smallest and with the largest ones, and those
between cost in proportion to their pixels. What attention costs grows faster than pixels, so this errs on the safe side.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from smallvit.recipe import resolved
from smallvit.training.loop import Training, take_step
from smallvit.training.memory import trial_of
from smallvit.types import View

WARM_UP_STEPS = 2
MOST_STEPS = 12  # of a measurement: tiny models need no second of it
MEASURED_SECONDS = 0.5
MOST_EPOCHS = 10_000
MOST_VALIDATIONS = 40
PREDICTED = 64  # images, to see how long an answer takes
FEW, LONG = 8, 0.3  # images to begin with, and seconds for them after which no more are tried


class StepCost(NamedTuple):
    """Seconds of a step by the pixels of its views: a line through the cheapest and the dearest; and of an answer."""

    pixels: tuple[int, int]
    seconds: tuple[float, float]
    answer: float = 0.0  # for one image, when the model is judged

    def at(self, views: Sequence[View]) -> float:
        (low, high), (least, most) = self.pixels, self.seconds
        if low == high:
            return most
        return least + (most - least) * (pixels_of(views) - low) / (high - low)

    def __str__(self) -> str:
        least, most = (f"{seconds * 1000:.0f}" for seconds in self.seconds)
        return f"{least} ms a step" if least == most else f"{least} to {most} ms a step"


def steps_within(t: Training, cost: StepCost, seconds: float, looks: int = MOST_VALIDATIONS) -> int:
    """The number of steps that end within `seconds`, with so many looks at the validation part at most.

    0 where not even one epoch fits.
    """

    def takes(epochs: int) -> float:
        return seconds_of(t, cost, epochs, min(epochs, looks))

    epochs = fitting_epochs(seconds, takes)
    if epochs in (0, MOST_EPOCHS):
        return epochs * len(t.loader)
    begun = len(t.loader) * (seconds - takes(epochs)) / (takes(epochs + 1) - takes(epochs))
    return epochs * len(t.loader) + int(begun)


def dearer_later(t: Training, cost: StepCost, total: int, at: int) -> float:
    """What a step after the first `at` of all takes on average, to one of these; 1 where all have the same views."""
    if cost.pixels[0] == cost.pixels[1]:
        return 1.0
    steps, epochs = len(t.loader), -(-total // len(t.loader))
    by_epoch = [cost.at(t.step.objective.views_at(epoch, epochs)) for epoch in range(epochs)]
    seconds = [by_epoch[step // steps] for step in range(total)]
    return (sum(seconds[at:]) / (total - at)) / (sum(seconds[:at]) / at)


def fitting_epochs(seconds: float, takes: Callable[[int], float]) -> int:
    """The most epochs that fit; 0 where not even one does. `takes`: seconds of so many epochs."""
    return bisect_right(range(1, MOST_EPOCHS + 1), seconds, key=takes) if seconds > 0 else 0


def seconds_of(t: Training, cost: StepCost, epochs: int, validations: int) -> float:
    """What a run of so many epochs takes that looks at its validation part so often."""
    views_at = t.step.objective.views_at
    trained = len(t.loader) * sum(cost.at(views_at(epoch, epochs)) for epoch in range(epochs))
    return trained + validations * seconds_of_a_look(t, cost)


def seconds_of_a_look(t: Training, cost: StepCost) -> float:
    return cost.answer * t.step.objective.judged_images(len(t.loader.rows), len(t.val_rows))


def measure_answer(t: Training) -> float:
    """Seconds for an image when the model is judged, seen on a few of those it is trained on."""
    predictor = t.exam(t.loader.rows).predictor(t.step.backbone)
    answer = predictor.logits if t.step.objective.classifies else predictor.features
    for count in (FEW, PREDICTED):  # the first time takes longer; where it takes long, it has to do
        rows = t.loader.rows[:count]
        before = time.perf_counter()
        answer(t.loader.images, rows)
        seconds = time.perf_counter() - before
        if seconds > LONG:
            break
    return seconds / len(rows)


Known = Mapping[tuple[View, ...], float]  # seconds of steps that were measured before


def measure_cost(t: Training, epochs: int, known: Known | None = None) -> StepCost:
    """A step with the smallest and one with the largest views of a run of so many epochs, and an answer."""
    views_at = t.step.objective.views_at
    kinds = sorted({views_at(epoch, epochs) for epoch in range(epochs)}, key=pixels_of)
    ends = kinds[:1] if len(kinds) == 1 else [kinds[0], kinds[-1]]
    seconds = [(known or {}).get(views) or measure_step(t, views) for views in ends]
    return StepCost((pixels_of(ends[0]), pixels_of(ends[-1])), (seconds[0], max(seconds)), measure_answer(t))


def pixels_of(views: Sequence[View]) -> int:
    """Of all crops of one image."""
    return sum(view.copies * view.size**2 for view in views)


def measure_step(t: Training, views: Sequence[View], most_seconds: float | None = None) -> float:
    """Median seconds of a training step with these views on this machine. Slow ones are few: at least two are taken."""
    most_seconds = MEASURED_SECONDS if most_seconds is None else most_seconds
    trial = trial_of(t, views)
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 2 or (len(times) < MOST_STEPS and time.perf_counter() - started < most_seconds):
        before = time.perf_counter()
        take_step(trial, 0, len(times) % len(t.loader), resolved(t.recipe.optimizer.lr) * 0.01)
        if t.device.type == "cuda":
            torch.cuda.synchronize(t.device)
        times.append(time.perf_counter() - before)
    measured = sorted(times[min(WARM_UP_STEPS, len(times) - 1) :])
    return measured[len(measured) // 2]
