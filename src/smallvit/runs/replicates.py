"""Seeds and folds of one recipe: which runs that makes, and their plans, with one decision on their length for all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.console import duration, say, several
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import digest, model_file
from smallvit.objectives.base import objectives
from smallvit.planning.elsewhere import at_fold
from smallvit.planning.length import Clock
from smallvit.planning.plan import Plan, make_plan
from smallvit.recipe import Recipe
from smallvit.runs.axes import Place, replicate_word
from smallvit.runs.group import Planned
from smallvit.training.initial import member_starts


class Replicates(NamedTuple):
    """What is asked for, as the first of these places is asked for it."""

    first: Recipe
    places: list[Place]
    starts: dict[Place, Path]  # where each starts from a run of its own
    turns: int  # so many follow one another

    @property
    def words(self) -> str:
        """5 seeds; 3 folds; or, of both, 2 seeds of 5 folds."""
        seeds, folds = ({place._asdict()[axis] for place in self.places} - {None} for axis in ("seed", "fold"))
        told = [several(len(values), word) for values, word in ((seeds, "seed"), (folds, "fold")) if values]
        return " of ".join(told)

    def clock(self, started: float | None) -> Clock:
        """Of all of them: each in a process of its own, and each fold with floors of its own."""
        return Clock(started, self.turns, others=len({place.fold for place in self.places}) - 1)


def replicates_of(asked: Recipe, seeds: int | None, jobs: int) -> Replicates | None:
    """The runs that were asked for; None where it is a single one."""
    if seeds is not None and seeds < 2:
        raise UsageError(f"--seeds {seeds}: give at least 2, or leave it out")
    whole = asked.data.folds is not None and asked.data.fold is None
    folds = range(asked.data.folds or 0) if whole else [None]
    numbers = range(asked.seed, asked.seed + seeds) if seeds else [None]
    if whole and not objectives()[asked.objective.name].classifies:
        raise UsageError(
            f"--folds {asked.data.folds}: pretraining has no labels to judge a fold by; give it to `smallvit train`"
        )
    places = [Place(seed=seed, fold=fold) for seed in numbers for fold in folds]
    if not places[0].axes:
        return None
    starts = member_starts(asked.model.init, places) if asked.model.init else {}
    changes: dict[str, Any] = {}
    if starts:
        changes["model"] = asked.model.model_copy(update={"init": str(starts[places[0]])})
    if whole:
        changes["data"] = asked.data.model_copy(update={"fold": 0})
    return Replicates(asked.model_copy(update=changes), places, starts, math.ceil(len(places) / max(1, jobs)))


def tell_budget(asked: Replicates) -> None:
    if budget := asked.first.budget:
        word = replicate_word(asked.places)
        share = duration(budget / asked.turns)
        say(f"{several(len(asked.places), word)} share the budget of {duration(budget)}: {share} for each")


def check_staged(asked: Replicates) -> None:
    """What cannot be with a stage before them."""
    if asked.places[0].fold is not None:
        raise UsageError(
            "--folds with a stage before training (--pretrain, --teacher MODEL): a fold's stage would need its own images; give "
            "--seeds, or a teacher that is a finished run"
        )
    if asked.starts:
        raise UsageError(
            f"--init {asked.first.model.init}: seeds with a stage before them start from one run, not from a group"
        )


def plan_replicates(asked: Replicates, clock: Clock) -> list[Planned]:
    """All of them, as the first is planned; what training images tell is each fold's own."""
    first = make_plan(asked.first, clock)
    folds = dict.fromkeys(place.fold for place in asked.places)
    of_fold = {fold: at_fold(first, fold) if fold else first for fold in folds}
    return [Planned(place, _at(place, of_fold[place.fold], asked.starts)) for place in asked.places]


def _at(place: Place, plan: Plan, starts: Mapping[Place, Path]) -> Plan:
    """The same plan for another seed, from its own start where it has one."""
    changes: dict[str, Any] = {} if place.seed is None else {"seed": place.seed}
    if place in starts:
        file = model_file(str(starts[place]), "--init")
        changes["model"] = plan.recipe.model.model_copy(update={"init": str(file), "init_digest": digest(file)})
        own = [choice._replace(value=str(file)) if choice.key == "model.init" else choice for choice in plan.choices]
        plan = plan._replace(choices=own)
    return plan._replace(recipe=plan.recipe.model_copy(update=changes))
