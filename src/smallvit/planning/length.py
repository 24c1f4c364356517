"""How long a run is: the epochs that were given, as many steps as fill a budget, or a number of images in minutes.

A budget is a time for the whole command. What is gone of it, what judging and the report will take at the end, and what a
step takes are measured; the rest is steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smallvit.console import several
from smallvit.errors import BudgetError
from smallvit.planning.cautions import FEW_EPOCHS
from smallvit.planning.choices import Choices
from smallvit.planning.member import usual_samples
from smallvit.planning.resolve import resolve_epochs
from smallvit.planning.tryout import TRIED_SECONDS
from smallvit.training.budget import (
    MOST_EPOCHS,
    MOST_VALIDATIONS,
    StepCost,
    dearer_later,
    fitting_epochs,
    seconds_of,
    seconds_of_a_look,
    steps_within,
)
from smallvit.training.loop import Training

MOST_MINUTES_CPU = 10  # when the epochs are ours to choose
LEAST_EPOCHS, USUAL_EPOCHS = 10, 20  # fewer are not chosen: for want of time, and for the number of images
MOST_USUAL_EPOCHS = 300
AIM = 0.985  # of a budget: the end is foreseen to within a few hundredths
LOOKED_SHARE = 0.05  # of the time for steps, for looks at the validation part
TRIED_SHARE = 0.05  # of what is left of a budget, for tries of threads and precision
REPORT_SECONDS = 1.3  # files and the report, on a machine that does nothing else
REPLAN_AT = (
    0.75  # of the steps, or of their time: then the speed is known, and the steps that are left are counted anew
)
MOST_SLOWDOWN = 8.0


class Clock:
    """The time of a command, and how much longer things take than they would on an idle machine.

    `started` is when it began (time.monotonic). `turns`: so many runs follow one another in processes of their own.
    `share`: what is planned is to end when so much of a budget is gone; the rest is for what follows it. `others`: so many folds
    are planned after the first, with floors of their own.
    """

    def __init__(self, started: float | None = None, turns: int = 0, share: float = 1.0, others: int = 0) -> None:
        self.started = time.monotonic() if started is None else started
        self.turns = turns
        self.share = share
        self.others = others
        self.later = 0.0  # seconds until the others are planned, too
        self.to_begin = 0.0  # seconds until a training was built: each process needs them again
        self.slowdown = 1.0

    @property
    def gone(self) -> float:
        return time.monotonic() - self.started

    def for_tries(self, budget: float | None) -> float:
        return TRIED_SECONDS if budget is None else min(TRIED_SECONDS, TRIED_SHARE * (self.share * budget - self.gone))

    @contextmanager
    def for_each_fold(self) -> Iterator[None]:
        """What is done for the first fold here, and for the others later."""
        before = self.gone
        yield
        self.later += self.others * (self.gone - before)

    def watch(self) -> _Watch:
        return _Watch(self)

    def end_of(self, budget: float) -> float:
        """Seconds after the start at which all is to be over."""
        return AIM * self.share * budget

    def for_steps(self, budget: float, end: float) -> float:
        left = self.end_of(budget) - self.gone - self.later
        return (left / self.turns - self.to_begin if self.turns else left) - end


class _Watch:
    """Work that needs the processor and nothing else: it takes longer where others need it, too."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __enter__(self) -> None:
        self.clock.to_begin = self.clock.to_begin or self.clock.gone  # of several plans the first tells
        self.wall, self.used = time.monotonic(), time.process_time()

    def __exit__(self, *error: object) -> None:
        wall, used = time.monotonic() - self.wall, time.process_time() - self.used
        self.clock.slowdown = min(max(1.0, wall / max(used, 1e-9)), MOST_SLOWDOWN)


def resolve_length(choices: Choices, training: Training, cost: StepCost, clock: Clock, judged: Sequence[int]) -> float:
    """Epochs, or steps where a budget counts them; seconds of all that is to come.

    `judged`: how many images each part has that the finished model is judged by. Without a classifier it takes the
    training images, too, to find their neighbours.
    """
    known = 0 if training.step.objective.classifies else len(training.loader.rows)
    answers = sum(known + part for part in judged if part)
    end = REPORT_SECONDS * clock.slowdown + cost.answer * answers
    if choices["budget"] is not None:
        _spend_budget(choices, training, cost, clock, end)
    else:
        _choose_epochs(choices, training, cost)
    resolve_epochs(choices)
    begin = clock.to_begin if clock.turns else 0.0
    return begin + _planned_seconds(choices, training, cost) + end


def expected_seconds(choices: Choices, training: Training, cost: StepCost, clock: Clock) -> float:
    """About what all steps will take, before their number is settled."""
    if choices["budget"] is not None:
        return clock.for_steps(choices["budget"], 0.0)
    if choices["epochs"] != "auto":
        return seconds_of(training, cost, choices["epochs"], 0)
    usual = cost.seconds[1] * usual_samples(choices) / choices["batch_size"]
    return min(usual, 60.0 * MOST_MINUTES_CPU) if choices["device"] == "cpu" else usual


def _planned_seconds(choices: Choices, training: Training, cost: StepCost) -> float:
    """Of all steps: the last epoch may be cut short."""
    epochs = choices["epochs"]
    whole = seconds_of(training, cost, epochs, math.ceil(epochs / choices["eval_every"]))
    all_steps = epochs * len(training.loader)
    return whole * (choices["steps"] or all_steps) / all_steps


def _spend_budget(choices: Choices, training: Training, cost: StepCost, clock: Clock, end: float) -> None:
    """Steps instead of a time."""
    budget, an_epoch = choices["budget"], len(training.loader)
    gone, seconds = clock.gone, clock.for_steps(budget, end)
    looks = _affordable_looks(choices, seconds, seconds_of_a_look(training, cost))
    steps = steps_within(training, cost, seconds, looks)
    if steps < 1:
        one, some = (seconds_of(training, cost, epochs, 1) for epochs in (1, FEW_EPOCHS))
        enough = math.ceil(budget + (some - seconds) * max(1, clock.turns) / (AIM * clock.share))
        alone = ", or give --threads 1 where other work goes on beside it" if choices["threads"] > 1 else ""
        raise BudgetError(
            f"the budget of {budget:.0f} s leaves {max(0, seconds):.0f} s for training, but one epoch of {several(an_epoch, 'step')} "
            f"takes about {one:.1f} s: raise --budget to {enough}s for {FEW_EPOCHS} of them, or take fewer images or a smaller model{alone}"
        )
    why = f"a budget of {budget:.0f} s: {cost}, {several(an_epoch, 'step')} an epoch, {seconds:.0f} s for them"
    choices.choose("epochs", math.ceil(steps / an_epoch), why)
    choices.put("steps", steps)
    if looks < MOST_VALIDATIONS:
        a_part = f"so that looking takes at most {LOOKED_SHARE:.0%} of the time"
        choices.choose("eval_every", max(1, math.ceil(choices["epochs"] / looks)), a_part)
    if steps >= 20 and not clock.turns:  # one decision for all: seeds that count their own steps could not be compared
        at, by = int(steps * REPLAN_AT), gone + REPLAN_AT * seconds
        dearer = dearer_later(training, cost, steps, at)
        told = {
            "at": at,
            "by": by,
            "seconds": clock.end_of(budget),
            "end": end,
            "step": seconds / steps,
            "dearer": dearer,
        }
        choices.put("replan", told)
    choices.put("budget", None)  # spent: the same run again is this many steps, not this much time


def _affordable_looks(choices: Choices, seconds: float, a_look: float) -> int:
    """At the validation part: where nothing is selected by it, they are for the eye, and training needs the time."""
    if choices["select"] == "best" or a_look <= 0:
        return MOST_VALIDATIONS
    return min(max(1, int(LOOKED_SHARE * seconds / a_look)), MOST_VALIDATIONS)


def _choose_epochs(choices: Choices, training: Training, cost: StepCost) -> None:
    n, on_cpu = len(training.loader.rows), choices["device"] == "cpu"
    seen = usual_samples(choices)
    epochs = min(MOST_USUAL_EPOCHS, max(USUAL_EPOCHS, round(seen / n)))
    bounds = {MOST_USUAL_EPOCHS: "the most that is taken unasked", USUAL_EPOCHS: "the fewest that are taken unasked"}
    why = bounds.get(epochs, f"about {seen:,} images seen")
    if on_cpu and choices["epochs"] == "auto":
        fitting = fitting_epochs(60 * MOST_MINUTES_CPU, lambda count: seconds_of(training, cost, count, 1))
        if fitting < epochs:
            # Coarse, so that a machine that is a little faster or slower today does the same.
            epochs = max(LEAST_EPOCHS, fitting - fitting % 5)
            why = f"{cost} on this machine: as many as take about {MOST_MINUTES_CPU} min, at least {LEAST_EPOCHS}"
    choices.choose("epochs", epochs, why)


def kinds_of(choices: Choices) -> int:
    """Of so many epochs the views must be looked at: where their number is still open, of the longest run."""
    return MOST_EPOCHS if choices["epochs"] == "auto" else int(choices["epochs"])
