"""From what was asked to all that a run needs: images, split, floors, and a recipe without `auto`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from smallvit.console import say, warn
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import NAMED, Source, open_source
from smallvit.data.split import Split, make_split
from smallvit.errors import DataError, RunError, UsageError
from smallvit.evaluation.floors import pixel_floors
from smallvit.models.aliases import architecture
from smallvit.objectives.base import declared_curves, objectives
from smallvit.planning.resolve import (
    Choice,
    Resolver,
    has_fast_bf16,
    resolve_epochs,
    resolve_machine,
    resolve_names,
    resolve_size,
    resolve_split,
    resolve_training,
)
from smallvit.recipe import DataSpec, Recipe, resolved
from smallvit.runs.environment import environment
from smallvit.runs.folder import RunFolder
from smallvit.training.budget import epochs_within
from smallvit.training.build import build_training
from smallvit.training.initial import already_seen, digest, initial_file, initial_model
from smallvit.training.loop import Training
from smallvit.training.session import fixed_threads

FINISH_SECONDS = 10.0  # what evaluation and the report take at the end of a budget


class Plan(NamedTuple):
    asked: Recipe
    recipe: Recipe
    choices: list[Choice]
    images: ImageSet
    split: Split
    floors: dict[str, Any]


def make_plan(asked: Recipe, started: float | None = None, with_floors: bool = True) -> Plan:
    """Resolve a recipe. `started` is when the clock of a budget began (time.monotonic)."""
    started = time.monotonic() if started is None else started
    r = Resolver(asked)
    resolve_machine(r)
    resolve_names(r)
    needs_labels = objectives()[asked.objective.name].needs_labels
    source = open_source(asked.data.source, needs_labels)
    if asked.data.source not in NAMED:
        r.put("data.source", str(Path(asked.data.source).expanduser().resolve()))
    if asked.model.init:
        _start_from(r, asked, source.channels)
    resolve_size(r, source)
    data = r.recipe.data
    images = load_images(source, data)
    resolve_split(r, images)
    split = make_split(images, r.recipe.data, needs_labels)
    resolve_training(r, images, split)
    trial = _build_trial(r.recipe, images, split)
    if trial.transferred:
        told = "; ".join(filter(None, (str(trial.transferred), _warn_of_start(r.recipe, images, split))))
        r.choices.append(Choice("model.init", r.tree["model"]["init"], told))
    floors = compute_floors(images, split) if with_floors else {}
    if r.tree["epochs"] == "auto":
        _spend_budget(r, trial, started)
    _tell_of_losses(r, trial)
    return Plan(asked, r.recipe, r.choices, images, split, floors)


def _start_from(r: Resolver, asked: Recipe, channels: int) -> None:
    """The file that `--init` means. Where it is of ours, it also says which model that is, at whatever image size."""
    file = initial_file(asked.model.init)
    r.put("model.init", str(file))
    r.put("model.init_digest", digest(file))
    found = initial_model(file)
    if found is None:
        return
    if "name" not in asked.model.model_fields_set:
        r.put("model.name", found.timm_name)
        r.choices.append(Choice("model.name", found.timm_name, "the model to start from"))
    elif architecture(asked.model.name, found.img_size).timm_name != found.timm_name:
        return
    if {found.in_chans, channels} <= {1, 3}:  # grey and colour become each other; other channels do not
        r.choose("data.in_chans", found.in_chans, "as in the model to start from")
    r.choose("model.timm_name", found.timm_name, "the model to start from")
    for key, value in found.kwargs.items():
        if key not in asked.model.kwargs:
            r.tree["model"]["kwargs"][key] = value
            r.choices.append(Choice(f"model.kwargs.{key}", value, "as in the model to start from"))


def _warn_of_start(recipe: Recipe, images: ImageSet, split: Split) -> str:
    """What is wrong with starting from that model: images that it has seen, or a collapse."""
    file = Path(recipe.model.init)
    if (file.parent / "results.json").is_file() and RunFolder(file.parent).results.get("collapse"):
        warn(f"{file.parent}, which this run starts from, collapsed: its features hardly tell images apart")
    held_out = {"validation": split.val, "test": split.test}
    seen = already_seen(file, recipe.data.source, images.class_names, held_out)
    if seen:
        warn(f"{seen}: the result may be too good. Give both commands the same --test and --val")
    return seen


def load_images(source: Source, data: DataSpec) -> ImageSet:
    return source.load(
        resolved(data.cache_size), data.fit, resolved(data.in_chans), resolved(data.white), limit_gb=data.cache_limit_gb
    )


def compute_floors(images: ImageSet, split: Split) -> dict[str, Any]:
    """Nothing to be right about where there are no classes."""
    judged = split.test if len(split.test) else split.val
    if len(images.class_names) == 1:
        return {}
    return pixel_floors(images.images_NCSS, images.labels_N, split.train, judged) if len(judged) else {}


def _build_trial(recipe: Recipe, images: ImageSet, split: Split) -> Training:
    """Build everything once: what cannot work is refused before anything is written."""
    if recipe.epochs == "auto":  # a budget will set them after it has measured a step of this trial
        schedule = recipe.schedule.model_copy(update={"warmup_epochs": 0.0})
        recipe = recipe.model_copy(update={"epochs": 1, "eval_every": 1, "schedule": schedule})
    with fixed_threads(resolved(recipe.threads)):
        trial = build_training(recipe, images, split)
    grid = trial.step.backbone.final_grid
    if grid and max(grid) < 2:
        warn(
            f"{recipe.model.name} leaves a single 1 x 1 cell of a {recipe.data.img_size} px image; vit_nano, resnet18_32 "
            "or another model with a smaller stride keeps more"
        )
    if recipe.data.balanced and recipe.objective.options.get("class_weights", "none") != "none":
        warn("balanced sampling and class weights together count rare classes twice")
    if recipe.precision == "bf16" and not has_fast_bf16(recipe.device):
        warn(f"bf16 on {recipe.device} without units for it is several times slower than fp32")
    return trial


def _spend_budget(r: Resolver, trial: Training, started: float) -> None:
    say("measuring a step for the budget")
    left = r.tree["budget"] - (time.monotonic() - started) - FINISH_SECONDS
    with fixed_threads(r.tree["threads"]):
        epochs, why = epochs_within(trial, left)
    r.choose("epochs", epochs, f"a budget of {r.tree['budget']:.0f} s: {why}")
    r.tree["budget"] = None  # spent: the same run again is this many epochs, not this much time
    resolve_epochs(r)


def _tell_of_losses(r: Resolver, trial: Training) -> None:
    parts: dict[str, Any] = {"objective": trial.step.objective}
    parts |= {f"aux.{name}": auxiliary for name, auxiliary in trial.step.auxiliaries.items()}
    for name, part in parts.items():
        for key, (value, why) in part.notes(r.tree["epochs"]).items():
            r.choices.append(Choice(f"{name}.{key}", value, why))


# ---- the plan in the run folder ----------------------------------------------------------------------


def write_plan(folder: Path, plan: Plan, command: str) -> RunFolder:
    """All that a later `resume` needs, before the first step."""
    recipe = plan.recipe
    record = {
        "command": command,
        "asked": plan.asked.model_dump(exclude_unset=True),
        "resolved": recipe.model_dump(),
        "choices": [choice._asdict() for choice in plan.choices],
        "curves": declared_curves(recipe).for_folder(),
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
        for name, rows in zip(("train", "val", "test"), plan.split[:3], strict=True)
    }
    return {
        "source": images.source,
        "class_names": list(images.class_names),
        "parts": parts,
        "skipped": [item._asdict() for item in images.skipped],
    }


def read_plan(run: RunFolder) -> Plan:
    """The plan of a run folder; its images must still be the ones it was made for."""
    recipe = run.recipe
    data = recipe.data
    try:
        source = open_source(data.source, objectives()[recipe.objective.name].needs_labels)
        images = load_images(source, data)
    except (DataError, UsageError) as error:
        raise RunError(f"the images that {run.path} was trained on cannot be read: {error}") from None
    if images.fingerprint != data.fingerprint:
        raise RunError(
            f"the images of {data.source} are not those that {run.path} was trained on (fingerprint "
            f"{images.fingerprint[:8]} instead of {data.fingerprint[:8]}): put them back, or start a new run"
        )
    parts = run.read("split.json", "parts")["parts"]
    train, val, test = (torch.tensor(parts[name]["rows"], dtype=torch.int64) for name in ("train", "val", "test"))
    split = Split(train, val, test, how={name: parts[name]["how"] for name in parts})
    choices = [Choice(**choice) for choice in run.choices]
    return Plan(recipe, recipe, choices, images, split, run.read("floors.json"))


def show_plan(plan: Plan) -> None:
    """The choices, one a line, and what is to be beaten."""
    n = {name: len(rows) for name, rows in zip(("train", "val", "test"), plan.split[:3], strict=True)}
    counted = ", ".join(f"{count:,} {name}" for name, count in n.items() if count)
    classes = len(plan.images.class_names)
    say(f"{plan.images.source}: {f'{classes} classes' if classes > 1 else 'no classes'}, {counted}")
    for choice in plan.choices:
        if choice.key not in ("data.mean", "data.std"):
            say(f"  {choice.key} = {_short(choice.value)}  ({choice.why})", style="dim")
    if plan.floors:
        floors = ", ".join(f"{floor['label']} {floor['accuracy']:.1%}" for floor in plan.floors.values())
        say(f"to beat: {floors}")


def _short(value: Any) -> str:
    if isinstance(value, list | tuple) and len(value) > 8:
        return f"{len(value)} numbers, {_short(min(value))} to {_short(max(value))}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
