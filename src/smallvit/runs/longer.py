"""`train --continue RUN`: a finished run is trained longer, as a new run from where it stood, by its own recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from smallvit.console import say, several
from smallvit.errors import RunError, UsageError
from smallvit.planning.choices import Choice
from smallvit.planning.flags import longest_warmup
from smallvit.planning.length import Clock
from smallvit.planning.moved import check_same_images, current_place, moved_to, with_own_teacher
from smallvit.planning.plan import Prepared, prepare
from smallvit.planning.stored_split import read_split
from smallvit.recipe import FLAGS, PretrainSpec, Recipe, flat, validate, with_settings
from smallvit.runs.execution import check_logs, run_planned, train_along
from smallvit.runs.folder import RunFolder, check_free, claimed
from smallvit.runs.members import is_group
from smallvit.runs.origin import command_line, default_folder
from smallvit.runs.relocation import relocate
from smallvit.training.continued import matrix_rate, where_it_stood
from smallvit.training.together import join

# Of the new run, not of the old.
LENGTH = ("epochs", "steps", "replan", "budget", "eval_every", "schedule.warmup_epochs")
LONGER = ("epochs", "budget", "lr", "threads", "device", "precision")  # flags that may be given with it
MATRIX_LR = "optimizer.matrix_lr"
# What its state would not fit, or what would make it a run on other images.
FIXED = ("data.", "model.", "pretrain.", "continued.", "aux.", "objective.name", "optimizer.name", "seed", "ema")


def changed_by(flags: Mapping[str, Any], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """By dotted keys, what flags and settings ask for; nothing that the run's state would not fit."""
    changes: dict[str, Any] = {
        FLAGS[name]: value for name, value in flags.items() if name in LONGER and value is not None
    }
    changes |= settings or {}
    fixed = [f"--{name.replace('_', '-')}" for name in flags if name not in LONGER]
    if fixed := [*fixed, *(key for key in changes if key.startswith(FIXED))]:
        raise UsageError(
            f"--continue: {', '.join(fixed)} cannot change, for the run goes on with its own ({', '.join(LONGER)} can); a new run from "
            "its weights is --init RUN"
        )
    if changes.get("epochs") is None and changes.get("budget") is None:
        raise UsageError("--continue needs a length: --epochs N for so many more, or --budget 20m")
    return changes


def ask_longer(folder: str | Path, changes: Mapping[str, Any]) -> tuple[RunFolder, Recipe]:
    """A finished run, and its recipe without its length, from where it stood; `changes` by dotted keys, a length among them."""
    if is_group(Path(folder)):
        raise UsageError(f"--continue {folder}: it is a group; give one of its runs")
    run = RunFolder(folder)
    if not run.finished:
        raise RunError(f"{run.path} is not finished: go on with `smallvit resume {run.path}`, then train it longer")
    recipe = with_own_teacher(run)
    before = flat(validate(run.read("recipe.json", "asked")["asked"]).model_dump())
    lengths: dict[str, Any] = {"epochs": "auto", "steps": None, "replan": None, "budget": None}
    lengths |= {key: before[key] for key in ("eval_every", "schedule.warmup_epochs")}
    if (warmup := before["schedule.warmup_epochs"]) != "auto":  # as for a recipe in a run of another length
        epochs = changes.get("epochs")
        lengths["schedule.warmup_epochs"] = "auto" if epochs is None else min(warmup, longest_warmup(epochs))
    asked = recipe.model_copy(update={
        "data": recipe.data.model_copy(update=moved_to(recipe.data, current_place(run))._asdict()),
        "model": recipe.model.model_copy(update={"init": "", "init_digest": ""}),
        "pretrain": PretrainSpec(side=1.0),
        "continued": where_it_stood(run),
    })  # fmt: skip
    asked = with_settings(asked, {**lengths, **changes})
    if recipe.optimizer.name == "muon" and MATRIX_LR not in changes:
        asked = with_settings(asked, {MATRIX_LR: matrix_rate(recipe.optimizer, asked.optimizer)})
    return run, asked


def prepare_longer(run: RunFolder, asked: Recipe, clock: Clock, changes: Mapping[str, Any]) -> Prepared:
    """The longer run before its first step, on the very images and split of the finished one."""
    say(f"{run.path} is trained longer, as a new run: {several(asked.continued.steps, 'step')} came before")
    prepared = prepare(asked, clock, with_floors=False)
    plan, own = prepared.plan, read_split(run)
    check_same_images(run, asked.data.source, plan.images)
    if any(not torch.equal(rows, plan.split.parts[name]) for name, rows in own.parts.items()):
        raise RunError(
            f"{run.path}: its images are divided otherwise by this version of smallvit; it cannot be trained longer"
        )
    along = _along(run.recipe, asked, changes)
    made = {choice.key for choice in (*plan.choices, *along)}
    earlier = [Choice(**choice) for choice in run.choices if choice["key"] not in (*made, *LENGTH, *changes)]
    shown = with_settings(
        validate(run.read("recipe.json", "asked")["asked"]), {**changes, "continued": asked.continued.model_dump()}
    )
    plan = plan._replace(asked=shown, choices=[*earlier, *along, *plan.choices], floors=run.read("floors.json"))
    return prepared._replace(plan=plan)


def _along(before: Recipe, asked: Recipe, changes: Mapping[str, Any]) -> list[Choice]:
    """What follows from the changes."""
    rate = asked.optimizer.matrix_lr
    if MATRIX_LR in changes or rate == before.optimizer.matrix_lr:
        return []
    return [Choice(MATRIX_LR, rate, "of the filters: a given learning rate changes it by as much")]


def run_longer(
    folder: str | Path, changes: Mapping[str, Any], out: str | Path | None, overwrite: bool, log: str | None,
    data: str | Path | None, started: float | None,
) -> Path:  # fmt: skip
    """Plan it, train it, judge it; the folder of the new run."""
    world = join()
    if not world.writes:
        return train_along(world)
    relocate(folder, data)
    run, asked = ask_longer(folder, changes)
    if out is not None:
        check_free(out, overwrite)
    logs, clock = check_logs(log), Clock(started)
    prepared = prepare_longer(run, asked, clock, changes)
    with claimed(out or default_folder(prepared.plan.recipe), overwrite) as place:
        run_planned(place, prepared, command_line(), logs, clock.started, world)
    return place
