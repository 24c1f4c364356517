"""How long every stage of an arm is: as many epochs as the time is worth by what a step costs, or as many as are asked for."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from smallvit.console import bar, quiet
from smallvit.errors import DataError, SmallvitError, UsageError
from smallvit.planning.flags import make_recipe, pretraining_recipe
from smallvit.planning.plan import Plan, make_plan
from smallvit.recipe import Recipe, resolved
from smallvit.studies.record import ArmFacts, Record
from smallvit.studies.spec import Scale, Table
from smallvit.training.build import build_training
from smallvit.training.loop import take_step
from smallvit.training.session import computing

ROUNDS, STEPS = 7, 6  # of the measurement
Data = Mapping[str, str]  # names of sets, and "" for what names none -> sources


class Cost(NamedTuple):
    step_ms: float | None
    steps_per_epoch: int
    train_images: int


def asked_recipe(stage: Table, data: Data, **more: Any) -> Recipe:
    """One stage as a recipe."""
    flags = {key: value for key, value in stage.items() if key not in ("share", "method", "recipe", "first")}
    recipe = stage.get("recipe", "default")
    if "method" in stage:
        recipe = pretraining_recipe(stage["method"], stage.get("recipe"))
    settings = {**flags.pop("settings", {}), **more.pop("settings", {})}
    flags["data"] = source_of(stage, data)
    return make_recipe(recipe, settings, **{**flags, **more})


def source_of(stage: Table, data: Data) -> str | None:
    """Where a stage's images are. A set that nobody placed is asked for by its name."""
    name = stage.get("data")
    if name is None:
        return data.get("")
    return data.get(name, name)


def in_words(error: SmallvitError, stage: Table, data: Data) -> str:
    """What is wrong with a stage; where its set was not placed, how to do so."""
    name = stage.get("data")
    hint = (
        f"; give --data {name}=SOURCE"
        if name and name not in data and isinstance(error, DataError | UsageError)
        else ""
    )
    return f"{error}{hint}"


def on_processor(stage: Table, scale: Scale | Record) -> dict[str, str]:
    """Equal processor time is one of the processor: no other device is taken unless a stage asks for it."""
    return {"device": "cpu"} if scale.cpu_seconds is not None and "device" not in stage else {}


def kind(stage: Table) -> str:
    """Stages that differ in their share of the time only are of one kind, and cost the same."""
    return json.dumps({key: value for key, value in stage.items() if key != "share"}, sort_keys=True)


def measured(stages: Iterable[Table], scale: Scale, data: Data, threads: int | None) -> dict[str, Cost | str]:
    """What every kind of stage costs: the median processor time of a step, all taking turns. A sentence where it cannot be."""
    kinds = {kind(stage): stage for stage in stages}
    costs: dict[str, Cost | str] = {}
    plans: dict[str, Plan] = {}
    with bar("planning every kind of stage", len(kinds)) as advance:
        for name, stage in kinds.items():
            try:
                with quiet():
                    asked = asked_recipe(stage, data, epochs=2, threads=threads, **on_processor(stage, scale))
                    plans[name] = make_plan(asked, with_floors=False)
            except SmallvitError as error:
                costs[name] = in_words(error, stage, data)
            advance(1)
    times = _step_times(plans, threads or 1) if scale.length == "cpu_seconds" else {}
    for name, plan in plans.items():
        images = len(plan.split.train)
        costs[name] = Cost(times.get(name), max(1, images // resolved(plan.recipe.batch_size)), images)
    return costs


def _step_times(plans: Mapping[str, Plan], threads: int) -> dict[str, float]:
    """Milliseconds. The first round warms up."""
    trainings = {name: build_training(plan.recipe, plan.images, plan.split) for name, plan in plans.items()}
    times: dict[str, list[float]] = {name: [] for name in plans}
    with computing(threads), bar("measuring what a step costs", ROUNDS + 1) as advance:
        for turn in range(ROUNDS + 1):
            for name, training in trainings.items():
                before = time.process_time()
                for step in range(STEPS):
                    take_step(training, 1, step % len(training.loader), 1e-5)
                if turn:
                    times[name].append((time.process_time() - before) / STEPS)
            advance(1)
    return {name: round(1000 * statistics.median(own), 2) for name, own in times.items()}


def length_of(stage: Table, scale: Scale, cost: Cost | None, data: Data) -> ArmFacts:
    """Epochs of a stage. What it says itself goes before what all share, and that before its recipe."""
    facts = ArmFacts(epochs=1)
    if cost is not None:
        facts.steps_per_epoch, facts.train_images = cost.steps_per_epoch, cost.train_images
        if cost.step_ms is not None:
            facts.step_ms = cost.step_ms
    if "epochs" in stage:
        facts.epochs = stage["epochs"]
    elif scale.cpu_seconds is not None:
        assert cost is not None and cost.step_ms is not None, "equal time needs the cost of a step"
        seconds = scale.cpu_seconds * stage["share"]
        facts.epochs = max(1, round(1000 * seconds / (cost.step_ms * cost.steps_per_epoch)))
    elif scale.steps is not None:
        assert cost is not None, "equal steps need the steps of an epoch"
        facts.steps = max(1, round(scale.steps * stage["share"]))
        facts.epochs = math.ceil(facts.steps / cost.steps_per_epoch)
    else:
        facts.epochs = scale.epochs or _epochs_of_recipe(stage, data)
    return facts


def _epochs_of_recipe(stage: Table, data: Data) -> int:
    epochs = asked_recipe(stage, data).epochs
    if not isinstance(epochs, int):
        raise UsageError(
            "a study needs a length: give cpu_seconds, epochs or steps for all arms, epochs for each, or a recipe that says them"
        )
    return epochs
