"""The same plan for other training images of the same set: another fold, or a share of them.

What training images tell (mean and spread of channels, class weights) is measured anew; model, batch, threads, precision and
the number of steps are those of the plan.
"""

from __future__ import annotations

import math
from typing import Any

from smallvit.data.split import Split, make_split
from smallvit.planning.choices import Choices
from smallvit.planning.plan import Plan, compute_floors
from smallvit.planning.resolve import COLOURS, resolve_epochs, resolve_names, resolve_objective, resolve_statistics
from smallvit.recipe import Recipe, resolved


def at_fold(plan: Plan, fold: int) -> Plan:
    """For another fold, with floors of its own."""
    choices, split = _measured_anew(plan, {"fold": fold})
    batch = min(resolved(plan.recipe.batch_size), len(split.train))  # groups stay whole: a fold may leave far fewer
    choices.put("batch_size", batch)
    if steps := plan.recipe.steps:  # a fold may have a few images more or less: as many steps, not as many epochs
        choices.put("epochs", _epochs(steps, split, batch))
    return _planned(plan, choices, split)._replace(floors=compute_floors(plan.images, split))


def at_share(plan: Plan, share: float, draw: int) -> Plan:
    """For a share of the training images of every class, drawn by `draw`; shares of one draw are nested. No floors.

    As many steps as the plan has, and what follows from the number of epochs as it would be for that many.
    """
    data, recipe = plan.recipe.data, plan.recipe
    amount: dict[str, Any] = {"fraction": share * (data.fraction or 1.0)}
    if data.per_class:
        amount = {"per_class": max(1, round(share * data.per_class))}
    choices, split = _measured_anew(plan, {"subset_seed": draw, **({} if share == 1 else amount)})
    batch = min(resolved(recipe.batch_size), len(split.train))
    choices.put("batch_size", batch)
    steps = recipe.steps or resolved(recipe.epochs) * max(1, len(plan.split.train) // resolved(recipe.batch_size))
    choices.put("steps", steps)
    choices.put("epochs", _epochs(steps, split, batch))
    asked = plan.asked
    choices.put("schedule.warmup_epochs", asked.schedule.warmup_epochs)
    if asked.eval_every == "auto":  # as many looks, for the plan may have spared some where its time is short
        looks = math.ceil(resolved(recipe.epochs) / resolved(recipe.eval_every))
        choices.put("eval_every", math.ceil(choices["epochs"] / looks))
    for key in (*COLOURS, "trivial"):
        choices.put(f"augment.{key}", getattr(asked.augment, key))
    resolve_epochs(choices)
    return _planned(plan, choices, split)._replace(floors={})


def _measured_anew(plan: Plan, where: dict[str, Any]) -> tuple[Choices, Split]:
    own = plan.recipe.model_dump()
    own["data"] |= {**where, "mean": plan.asked.data.mean, "std": plan.asked.data.std}
    own |= {"objective": plan.asked.objective.model_dump(), "aux": plan.asked.aux}
    choices = Choices(Recipe.model_validate(own))
    resolve_names(choices)
    split = make_split(plan.images, choices.recipe.data)
    resolve_statistics(choices, plan.images, split)
    resolve_objective(choices, plan.images, split)
    return choices, split


def _epochs(steps: int, split: Split, batch: int) -> int:
    return math.ceil(steps / max(1, len(split.train) // batch))


def _planned(plan: Plan, choices: Choices, split: Split) -> Plan:
    """The plan with what was chosen anew; what was asked names the place, too."""
    data = choices.recipe.data
    where = {key: getattr(data, key) for key in ("fold", "fraction", "per_class", "subset_seed")}
    changed = {key: value for key, value in where.items() if value != getattr(plan.recipe.data, key)}
    asked = plan.asked.model_copy(update={"data": plan.asked.data.model_copy(update=changed)})
    made = {choice.key: choice for choice in (*plan.choices, *choices.made)}
    return plan._replace(asked=asked, recipe=choices.recipe, choices=[*made.values()], split=split)
