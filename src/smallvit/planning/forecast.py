"""How long a planned run will take, before its first step."""

from __future__ import annotations

from typing import NamedTuple

from smallvit.planning.plan import Prepared
from smallvit.planning.stages import stages_of
from smallvit.recipe import resolved


class Forecast(NamedTuple):
    seconds: float  # of training and all that follows; where a budget was given, of the whole command
    epochs: int
    steps: int  # of all epochs
    step_seconds: float
    within_budget: bool
    before: tuple[str, ...] = ()  # stages that come first, where no budget holds their time, too


def forecast(prepared: Prepared, turns: int = 0) -> Forecast:
    """As planning measured it. `turns`: so many such runs follow one another, and share a budget."""
    plan, training, cost = prepared
    epochs = resolved(plan.recipe.epochs)
    steps = plan.recipe.steps or epochs * len(training.loader)
    if plan.asked.budget:
        return Forecast(plan.asked.budget, epochs, steps, cost.seconds[1], True)
    before = tuple(stage.name for stage in stages_of(plan.recipe))
    return Forecast(max(1, turns) * (plan.seconds or 0.0), epochs, steps, cost.seconds[1], False, before)
