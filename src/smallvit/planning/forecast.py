"""How long a planned run will take, before its first step."""

from __future__ import annotations

import math
from typing import NamedTuple

from smallvit.console import say
from smallvit.planning.plan import Prepared
from smallvit.recipe import resolved
from smallvit.training.budget import measure_cost, seconds_of
from smallvit.training.session import fixed_threads


class Forecast(NamedTuple):
    seconds: float  # of training; where a budget was given, of the whole command
    epochs: int
    steps: int  # of all epochs
    step_seconds: float | None  # None: a budget measured it, and the reason for the epochs has it


def forecast(prepared: Prepared) -> Forecast:
    """A budget says it; without one, a step is measured."""
    plan, training = prepared
    epochs = resolved(plan.recipe.epochs)
    if training is None:
        assert plan.asked.budget and plan.recipe.steps, "only a budget leaves no training"
        return Forecast(plan.asked.budget, epochs, plan.recipe.steps, None)
    say("measuring a training step")
    with fixed_threads(resolved(plan.recipe.threads)):
        cost = measure_cost(training, epochs)
    looks = math.ceil(epochs / resolved(plan.recipe.eval_every)) if len(plan.split.val) else 0
    seconds = seconds_of(training, cost, epochs, looks)
    return Forecast(seconds, epochs, epochs * len(training.loader), cost.seconds[1])
