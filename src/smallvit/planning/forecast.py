"""How long a planned run will take, before its first step."""

from __future__ import annotations

import math
from typing import NamedTuple

from smallvit.console import say
from smallvit.planning.plan import Plan, Prepared
from smallvit.recipe import resolved
from smallvit.training.budget import measure_cost, seconds_of
from smallvit.training.loop import Training
from smallvit.training.session import fixed_threads


class Forecast(NamedTuple):
    seconds: float  # of training; where a budget was given, of the whole command
    epochs: int
    steps: int  # of all epochs
    step_seconds: float | None  # None: a budget measured it, and the reason for the epochs has it


def forecast(prepared: Prepared) -> Forecast:
    """A budget says it; without one, a step is measured."""
    plan, training = prepared
    if training is None:
        assert plan.asked.budget and plan.recipe.steps, "only a budget leaves no training"
        return Forecast(plan.asked.budget, resolved(plan.recipe.epochs), plan.recipe.steps, None)
    return measured_forecast(training, plan)


def measured_forecast(training: Training, plan: Plan) -> Forecast:
    """Seconds of a step, measured, and of all that training does with it."""
    say("measuring a training step")
    epochs = resolved(plan.recipe.epochs)
    with fixed_threads(resolved(plan.recipe.threads)):
        cost = measure_cost(training, epochs)
    looks = math.ceil(epochs / resolved(plan.recipe.eval_every)) if len(plan.split.val) else 0
    seconds = seconds_of(training, cost, epochs, looks)
    return Forecast(seconds, epochs, epochs * len(training.loader), cost.seconds[1])
