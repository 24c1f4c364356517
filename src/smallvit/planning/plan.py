"""From what was asked to all that a run needs: images, split, floors, and a recipe without `auto`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from smallvit.console import roughly, say, warn
from smallvit.data.groups import with_groups
from smallvit.data.imageset import ImageSet
from smallvit.data.kinds import where_of
from smallvit.data.sources import Source, open_source, settled
from smallvit.data.split import Split, make_split
from smallvit.errors import DataError, RunError, UsageError
from smallvit.evaluation.floors import pixel_floors
from smallvit.objectives.base import declared_curves, objectives
from smallvit.planning.cautions import cautions
from smallvit.planning.choices import Choice, Choices
from smallvit.planning.compiling import resolve_compile
from smallvit.planning.cut_short import cut_batch, cut_short
from smallvit.planning.evidence import levers
from smallvit.planning.explanation import Explained, explained, first_lines
from smallvit.planning.length import Clock, expected_seconds, kinds_of, resolve_length
from smallvit.planning.member import choose_member, is_open
from smallvit.planning.moved import check_same_images, current_place, moved_to, with_own_teacher
from smallvit.planning.resolve import (
    longest,
    resolve_machine,
    resolve_names,
    resolve_size,
    resolve_split,
    resolve_training,
)
from smallvit.planning.room import gb, resolve_room
from smallvit.planning.stages import resolve_pretraining, stages_of
from smallvit.planning.start import start_from, tell_of_start, warn_of_seen
from smallvit.planning.stored_split import read_split, stored_objective
from smallvit.planning.tryout import resolve_speed
from smallvit.recipe import DataSpec, Recipe, flat, resolved
from smallvit.runs.environment import environment
from smallvit.runs.folder import RunFolder
from smallvit.training.bf16 import check_bf16, has_fast_bf16
from smallvit.training.budget import StepCost, measure_cost
from smallvit.training.build import build_training, make_augmenter
from smallvit.training.loop import Training
from smallvit.training.out_of_memory import memory_in_words
from smallvit.training.session import computing


class Plan(NamedTuple):
    asked: Recipe
    recipe: Recipe
    choices: list[Choice]
    images: ImageSet
    split: Split
    floors: dict[str, Any]
    seconds: float | None = None  # that training and all that follows will take on this machine, where it was reckoned
    memory: int | None = None  # bytes that it will have at most, where that was reckoned
    cores: int | None = None  # that there were for it; as many as its threads, where those were given

    @property
    def explained(self) -> Explained:
        """The plan as a table."""
        asked, resolved = flat(self.asked.model_dump(exclude_unset=True)), flat(self.recipe.model_dump())
        return explained(asked, resolved, self.choices, levers())

    @property
    def cautions(self) -> list[str]:
        return list(cautions(self.recipe, self.images, self.split))


class Prepared(NamedTuple):
    """A plan, and the training that was built to see that it works: a run in this process goes on with it."""

    plan: Plan
    training: Training
    cost: StepCost  # of its steps, as measured


def make_plan(asked: Recipe, clock: Clock | None = None, with_floors: bool = True) -> Plan:
    """Resolve a recipe. The clock is that of a budget."""
    return prepare(asked, clock, with_floors).plan


def settle(asked: Recipe, turns: int = 1) -> tuple[Choices, ImageSet, Split]:
    """All that is decided without a model: what is left open is pieces of a batch, speed and length."""
    choices = Choices(asked, turns)
    resolve_machine(choices)
    cut_short(choices)
    resolve_names(choices)
    images, split = _images_and_split(choices, asked)
    cut_batch(choices, len(split.train))
    resolve_training(choices, images, split)
    resolve_pretraining(choices)
    return choices, images, split


def prepare(asked: Recipe, clock: Clock | None = None, with_floors: bool = True) -> Prepared:
    """A plan with the training that it describes, before its first step."""
    clock = clock or Clock()
    choices, images, split = settle(asked, clock.turns)
    clock.share -= sum(stage.share(choices.recipe) for stage in stages_of(choices.recipe))  # what comes first has that
    if choices["precision"] == "bf16":  # asked for: none was measured yet
        check_bf16(choices["device"])
        if not has_fast_bf16(choices["device"]):
            warn(f"bf16 on {choices['device']} without units for it may be several times slower than fp32")
    training = _build(choices.recipe, images, split)
    if choices["model.weights"] != "usual":
        choices.record("model.weights", choices["model.weights"], training.starting_weights)
    if training.went_on:
        choices.record("continued.file", choices["continued.file"], training.went_on)
        warn_of_seen(Path(choices["continued.file"]), choices.recipe, images, split)
    if training.transferred:
        tell_of_start(choices, training.transferred, images, split)
    for file in training.step.learned_from:
        warn_of_seen(file, choices.recipe, images, split)
    memory = resolve_room(choices, training)
    with memory_in_words(training.recipe):
        cost = _measure(choices, asked, training, clock)
    with computing(choices["threads"]):
        seconds = expected_seconds(choices, training, cost, clock)
        if is_open(asked, choices) and choose_member(choices, training, cost, seconds):
            choices.put("grad_accum", asked.grad_accum)  # open again: a wider one may need pieces
            training = _build(choices.recipe, images, split)
            memory = resolve_room(choices, training)
            cost = measure_cost(training, kinds_of(choices))
        cost = resolve_compile(choices, training, cost, expected_seconds(choices, training, cost, clock))
        with clock.for_each_fold():
            floors = compute_floors(images, split) if with_floors else {}
        seconds = resolve_length(choices, training, cost, clock, [len(rows) for rows in split.judged.values()])
    _tell_of_losses(choices, training)
    cores = torch.get_num_threads() if asked.threads == "auto" else choices["threads"]
    plan = Plan(asked, choices.recipe, choices.made, images, split, floors, seconds, memory, cores)
    training.recipe = plan.recipe  # with what was chosen after it was built
    training.loader.augment_with(make_augmenter(plan.recipe))
    return Prepared(plan, training, cost)


def _measure(choices: Choices, asked: Recipe, training: Training, clock: Clock) -> StepCost:
    """Threads and precision by what they make of a step, and what it takes with them."""
    say("measuring a step")
    with clock.watch():
        step = resolve_speed(choices, asked, training, clock.for_tries(choices["budget"]))
    with computing(choices["threads"]):
        return measure_cost(training, kinds_of(choices), {training.step.objective.views: step})


def _images_and_split(choices: Choices, asked: Recipe) -> tuple[ImageSet, Split]:
    needs_labels = objectives()[asked.objective.name].needs_labels
    source = open_source(where_of(asked.data), needs_labels)
    for key, value in settled(asked.data).items():
        choices.put(f"data.{key}", value)
    if asked.model.init:
        start_from(choices, asked, source.channels)
    resolve_size(choices, source)
    images = load_images(source, choices.recipe.data)
    resolve_split(choices, images)
    return images, make_split(images, choices.recipe.data, needs_labels)


def load_images(source: Source, data: DataSpec) -> ImageSet:
    images = source.load(
        resolved(data.cache_size), data.fit, resolved(data.in_chans), resolved(data.white), limit_gb=data.cache_limit_gb
    )
    return with_groups(images, data.groups)


def compute_floors(images: ImageSet, split: Split) -> dict[str, Any]:
    """Nothing to be right about where there are no classes."""
    judged = next(iter(split.judged.values()), None)
    if len(images.class_names) == 1 or judged is None:
        return {}
    return pixel_floors(images.images_NCSS, images.labels_N, split.train, judged)


def _build(recipe: Recipe, images: ImageSet, split: Split) -> Training:
    """What cannot work is refused before anything is written."""
    recipe = longest(recipe)
    with computing(resolved(recipe.threads)), memory_in_words(recipe, least=True):
        training = build_training(recipe, images, split)
    grid = training.step.backbone.final_grid
    if grid and max(grid) < 2:
        warn(
            f"{recipe.model.name} leaves a single 1 x 1 cell of a {recipe.data.img_size} px image; vit_nano, resnet18_32 "
            "or another model with a smaller stride keeps more"
        )
    return training


def _tell_of_losses(choices: Choices, training: Training) -> None:
    losses: dict[str, Any] = {"objective": training.step.objective}
    losses |= {f"aux.{name}": auxiliary for name, auxiliary in training.step.auxiliaries.items()}
    for section, loss in losses.items():
        loss.notes(choices.within(section), choices["epochs"])


# ---- the plan in the run folder ----------------------------------------------------------------------


def write_plan(folder: Path, plan: Plan, command: str) -> RunFolder:
    """All that a later `resume` needs, before the first step."""
    recipe = plan.recipe
    if missing := [stage.name for stage in stages_of(recipe)]:
        raise UsageError(
            f"the recipe needs a stage that was not run ({', '.join(missing)}): smallvit.train runs it first"
        )
    record = {
        "command": command,
        "asked": plan.asked.model_dump(exclude_unset=True),
        "resolved": recipe.model_dump(),
        "choices": [choice._asdict() for choice in plan.choices],
        "explained": plan.explained.as_record(),
        "curves": declared_curves(recipe).for_folder(),
        "cautions": list(plan.cautions),
        "memory": plan.memory,
        "cores": plan.cores,
    }
    writer = RunFolder.__new__(RunFolder)
    writer.path = folder
    writer.write("env.json", environment(recipe.device, resolved(recipe.threads)))
    writer.write("split.json", _split_record(plan))
    writer.write("floors.json", plan.floors)
    writer.write("recipe.json", record)  # last: its presence makes the folder a run
    return RunFolder(folder)


def _split_record(plan: Plan) -> dict[str, Any]:
    images, K = plan.images, len(plan.images.class_names)
    parts = {
        name: {
            "n": len(rows),
            "how": plan.split.how[name],
            "counts": torch.bincount(images.labels_N[rows], minlength=K).tolist(),
            "rows": rows.tolist(),
        }
        for name, rows in plan.split.parts.items()
    }
    return {
        "source": images.source,
        "class_names": list(images.class_names),
        "counts": torch.bincount(images.labels_N, minlength=K).tolist(),
        "parts": parts,
        "skipped": [item._asdict() for item in images.skipped],
    }


def read_plan(run: RunFolder) -> Plan:
    """The plan of a run folder; its images must still be the ones it was made for, wherever they are now."""
    recipe, place = with_own_teacher(run), current_place(run)
    try:
        images = images_at(place, run)
    except (DataError, UsageError) as error:
        raise RunError(
            f"the images that {run.path} was trained on cannot be read: {error}; if they were moved, say where to: --data NEW"
        ) from None
    check_same_images(run, place, images)
    choices = [Choice(**choice) for choice in run.choices]
    return Plan(recipe, recipe, choices, images, read_split(run, images), run.read("floors.json"))


def images_at(place: str, run: RunFolder) -> ImageSet:
    """What lies there, as the recipe of a run takes it."""
    recipe = run.recipe
    source = open_source(moved_to(recipe.data, place), stored_objective(run, recipe).needs_labels)
    return load_images(source, recipe.data)


def show_plan(plan: Plan, turns: int = 1) -> None:
    """What was chosen, a line each, what is to be beaten, and how long it takes where so many such runs follow one another."""
    say(headline(plan))
    for line in first_lines(plan.choices):
        say(f"  {line}", style="dim")
    if plan.floors:
        say(to_beat(plan))
    if plan.seconds is not None:
        memory = f", with {gb(plan.memory)} of memory" if plan.memory else ""
        say(f"this takes about {roughly(turns * plan.seconds)} on this machine{memory}")
    for caution in plan.cautions:
        warn(caution)


def headline(plan: Plan) -> str:
    """Which images, and how many of them."""
    counted = ", ".join(
        f"{len(rows):,} {name.replace('_', ' ')}" for name, rows in plan.split.parts.items() if len(rows)
    )
    classes = len(plan.images.class_names)
    return f"{plan.images.source}: {f'{classes} classes' if classes > 1 else 'no classes'}, {counted}"


def to_beat(plan: Plan) -> str:
    floors = ", ".join(f"{floor['label']} {floor['accuracy']:.1%}" for floor in plan.floors.values())
    where = " in the first fold" if plan.recipe.data.folds else ""
    return f"to beat{where}: {floors}"
