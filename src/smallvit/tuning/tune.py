"""`smallvit tune`: trials within a time, the best recipe of them, and one model trained with it on all but the test part.

The default recipe is the first trial, so that what tuning brings is known. Validation images judge the trials; the test
part is looked at once, by the final model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.console import duration, quiet, say, several, warn
from smallvit.data.kept import Data, hold
from smallvit.data.split import possible_folds
from smallvit.errors import RunError, UsageError
from smallvit.objectives.base import objectives
from smallvit.planning.cut_short import most_trials
from smallvit.planning.flags import given_keys, make_recipe
from smallvit.planning.length import Clock
from smallvit.planning.plan import make_plan, show_plan
from smallvit.planning.stages import stages_of
from smallvit.recipe import Recipe, flat, with_settings
from smallvit.recipes.durations import parse_duration
from smallvit.runs.axes import Place
from smallvit.runs.comparison import Comparison, Side, compare_two
from smallvit.runs.executor import Listed, run_all, wait_for_others
from smallvit.runs.folder import RunFolder, check_free, claimed
from smallvit.runs.group import Planned, grow_group
from smallvit.runs.members import write_group
from smallvit.runs.ownership import sole_owner
from smallvit.runs.places import LOCAL, check_place, place_called, room_at
from smallvit.tuning.best import write_best
from smallvit.tuning.folder import FINAL, Asked, Tuning, open_tuning, stored_trial, write_asked
from smallvit.tuning.page import write_page
from smallvit.tuning.search import Trial, load_optuna
from smallvit.tuning.space import Space, read_space
from smallvit.tuning.trials import FINAL_SHARE, Trials, trial_recipe, trial_seconds

USUAL_BUDGET = "30m"
LEAST_SECONDS = 10.0  # of a trial
FEW_IMAGES = 1000
RATE_FACTOR = "optimizer.rate_factor"


class Tuned(NamedTuple):
    """What a search found."""

    folder: Path
    trials: list[Trial]
    best: Trial
    # The best trial against the default on the validation images; None where it is the default, or the default has not ended.
    gain: Comparison | None
    final: RunFolder

    @property
    def recipe(self) -> Path:
        """What `train --recipe` takes."""
        return self.folder / "best.toml"


def tune(
    data: Data = None, *, budget: str | float | None = None, trials: int | None = None,
    folds: int | None = None, space: str | Path = "small", out: str | Path | None = None, recipe: str | Path = "default",
    settings: Mapping[str, Any] | None = None, jobs: int | None = None, overwrite: bool = False,
    show_progress: bool = True, started: float | None = None, on: str = LOCAL, command: str = "smallvit.tune(...)",
    **flags: Any,
) -> Tuned:  # fmt: skip
    """Search for the settings that suit these images, within `budget`, and train a model with them.

    `data` is as for `train`. `space` says what may change: small, wide or a TOML file. `folds` judge a trial instead of
    validation images; None: five of them where there are few images; 1: none. With `trials` and `epochs` instead of a budget no clock
    decides, and the same search finds the same with one job.
    """
    started = time.monotonic() if started is None else started
    load_optuna()
    check_place(on)
    with quiet(not show_progress):
        held = hold(data, out)
    if budget is None and trials is None:
        budget = USUAL_BUDGET
    seconds = parse_duration(budget) if isinstance(budget, str) else budget
    asked = make_recipe(recipe, settings, data=held.source, budget=seconds, **flags)  # which sets a preset's epochs
    asked = with_settings(asked, {"budget": None})  # it is that of the whole search
    found = _left_to_search(read_space(space), given_keys(settings, flags), asked)
    _check(asked, trials, folds)
    trials = most_trials(trials)
    if seconds and asked.epochs != "auto":
        raise UsageError(f"budget and epochs = {asked.epochs} exclude each other: a budget sets the epochs")
    jobs, threads = _shared_out(asked, jobs, trials, on)
    _check_time(seconds, trials, jobs, folds)
    record = Asked(
        command=command, recipe=asked.model_dump(exclude_unset=True), space=found.name,
        parameters={name: parameter.model_dump(exclude_unset=True) for name, parameter in found.parameters.items()},
        trials=trials, budget=seconds, jobs=jobs, threads=threads,
    )  # fmt: skip
    with quiet(not show_progress):
        if out is not None:
            check_free(out, overwrite)
        held.write()
        record = record.model_copy(update={"folds": _folds(folds, asked, record)})
        _check_time(seconds, trials, jobs, record.folds)
    with quiet(not show_progress), claimed(out or _next_folder(asked.data.source), overwrite) as folder:
        write_group(folder, {"title": f"tuned on {Path(asked.data.source).name}", "command": command}, {})
        return _search(write_asked(folder, record), started, on)


def _check_time(seconds: float | None, trials: int | None, jobs: int, folds: int | None) -> None:
    """Whether a run of a trial has time for more than its start."""
    folds = folds or 1
    if seconds and (one := (trial_seconds(seconds, trials, jobs) or 0.0) / folds) < LEAST_SECONDS:
        what = f"each of the {folds} folds of a trial" if folds > 1 else "a trial"
        fewer = "--trials or --folds" if folds > 1 else "--trials"
        raise UsageError(
            f"a budget of {duration(seconds)} leaves {one:.1f} s for {what}, of which the start is most: raise --budget to "
            f"{math.ceil(seconds * LEAST_SECONDS / one)}s or more, or give fewer {fewer}"
        )


def _left_to_search(space: Space, given: Collection[str], asked: Recipe) -> Space:
    """What was given on the command line is not searched: who asks for a model gets that model tuned.

    Nor is a factor of the rates that auto takes, where the recipe says a rate.
    """
    fixed, rate = space.touching(given), asked.optimizer.lr
    factors = [] if rate == "auto" else [name for name in space.touching([RATE_FACTOR]) if name not in fixed]
    own = flat(asked.model_dump())
    flat_zero = [name for name, one in space.parameters.items() if one.log and own.get(name) == 0 and name not in fixed]
    out = {*fixed, *factors, *flat_zero}
    left = {name: parameter for name, parameter in space.parameters.items() if name not in out}
    if not left:
        names = ", ".join([*fixed, *["optimizer.lr"] * bool(factors), *flat_zero])
        raise UsageError(f"the space {space.name} has only what was given: leave one of {names} to the search")
    told = [*fixed, *(f"{name} (it multiplies the rates of auto, and optimizer.lr = {rate:g})" for name in factors)]
    told += [f"{name} (0 has no place on the scale of its factors)" for name in flat_zero]
    if told:
        say(f"given, and not searched: {', '.join(told)}")
    return space._replace(parameters=left)


def _shared_out(asked: Recipe, jobs: int | None, trials: int | None, on: str) -> tuple[int, int | None]:
    """Trials at once, and threads of each. One at a time on this machine has what a try of the first finds fastest: None."""
    given = asked.threads if isinstance(asked.threads, int) else None
    room = room_at(on, given or 1)
    jobs = jobs or min(room, trials or room)
    if given or on != LOCAL:
        return jobs, given or 1
    return jobs, max(1, room // jobs) if jobs > 1 else None


def _check(asked: Recipe, trials: int | None, folds: int | None) -> None:
    if not objectives()[asked.objective.name].classifies:
        raise UsageError(
            f"tune judges by accuracy, and {asked.objective.name} has no classifier: tune supervised training"
        )
    if stages := [stage.name for stage in stages_of(asked)]:
        raise UsageError(f"tune trains its trials in one stage: leave out {', '.join(stages)}")
    if asked.data.folds:
        raise UsageError(f"data.folds = {asked.data.folds}: give --folds {asked.data.folds} to tune instead")
    if folds is not None and folds < 1:
        raise UsageError(f"--folds {folds}: give 2 or more, or 1 to judge by validation images")
    if asked.data.val == "none" and (folds or 0) < 2:
        raise UsageError(
            "data.val = none leaves nothing to judge a trial by, for the test part is kept for the end: give --val 0.15, or --folds 5"
        )
    if trials is not None and trials < 2:
        raise UsageError(f"--trials {trials}: give at least 2; the first is the default recipe")


def _folds(given: int | None, asked: Recipe, record: Asked) -> int | None:
    """How many judge a trial; None where validation images do: a part of the source, or enough to choose by."""
    if given is not None:
        return given if given > 1 else None
    if asked.data.val != "auto":
        return None
    with quiet():
        plan = make_plan(
            with_settings(asked, {"data.sealed": True, "epochs": 1, "threads": record.threads or 1}), with_floors=False
        )
    if isinstance(plan.recipe.data.val, str) or len(plan.split.train) + len(plan.split.val) >= FEW_IMAGES:
        return None
    possible = possible_folds(plan.images, plan.split._replace(test=plan.split.test[:0]))  # which is kept for the end
    folds = (most_trials(possible) or 0) if possible else 0
    if folds > 1:
        say(f"under {FEW_IMAGES:,} training images {folds} folds judge a trial: few validation images tell little")
    return folds if folds > 1 else None


def resume_tuning(folder: Path, jobs: int | None = None, on: str = LOCAL) -> Tuned:
    """`jobs` from now on, where they are given: what follows is planned as if they had been asked for."""
    check_place(on)
    with sole_owner(folder):
        tuning = open_tuning(folder)
        asked = tuning.asked
        if jobs and jobs != asked.jobs:
            jobs, threads = _shared_out(tuning.recipe, jobs, asked.trials, on)
            tuning = write_asked(folder, asked.model_copy(update={"jobs": jobs, "threads": threads}))
        return _search(tuning, time.monotonic(), on)


def _search(tuning: Tuning, started: float, on: str) -> Tuned:
    """From wherever the folder, which is held, stands."""
    asked = tuning.asked
    go_on = f"smallvit resume {tuning.path}"
    if not (tuning.final / "recipe.json").is_file():
        one = trial_seconds(asked.budget, asked.trials, asked.jobs)
        each = f", about {duration(one)} each, of {duration(asked.budget)} in all" if one and asked.budget else ""
        threads = (
            f"{several(asked.threads, 'thread')} each" if asked.threads else "as many threads as a try finds fastest"
        )
        say(f"{several(asked.jobs, 'trial')} at a time, {threads}{each}; the space is {asked.space}")
        source = Trials(tuning, started)
        wait_for_others(list(tuning.path.glob("trial-*")))
        launch = place_called(on, asked.jobs)
        run_all(source, asked.jobs, go_on=go_on, total=source.left, keep_going=True, launch=launch)
        tuning.spend(time.monotonic() - source.begun)
        _plan_final(tuning, best_of(tuning), time.monotonic() - source.begun)
    wait_for_others([tuning.final])
    if not RunFolder(tuning.final).finished:
        run_all(Listed([tuning.final]), 1, go_on=go_on, total=1, launch=place_called(on, 1))
    tuned = _found(tuning)
    write_best(tuning, tuned.best)
    write_page(tuning, tuned.gain, tuned.best, tuning.path / "report.html")
    return tuned


def report_tuning(folder: Path, out: Path) -> Path:
    """The page of a search that has ended, anew."""
    tuning = open_tuning(folder)
    if not (tuning.final / "results.json").is_file():
        raise RunError(f"{folder} is not finished: go on with `smallvit resume {folder}`")
    found = _found(tuning)
    return write_page(tuning, found.gain, found.best, out)


def _found(tuning: Tuning) -> Tuned:
    best = best_of(tuning)
    return Tuned(tuning.path, tuning.trials(), best, gain_of(tuning, best), RunFolder(tuning.final))


def best_of(tuning: Tuning) -> Trial:
    done = [trial for trial in tuning.trials() if trial.state == "done"]
    if not done:
        problems = [trial.problem for trial in tuning.trials() if trial.problem]
        raise RunError(f"no trial of {tuning.path} came to its end: {problems[0] if problems else 'give more time'}")
    return max(done, key=lambda trial: (trial.accuracy, -trial.number))


def gain_of(tuning: Tuning, best: Trial) -> Comparison | None:
    if not best.number or tuning.read(0).state != "done":
        return None
    sides = (("the best trial", best.number), ("the default", 0))
    return compare_two(*(Side(name, _replicates(tuning, number)) for name, number in sides))


def _replicates(tuning: Tuning, number: int) -> dict[Place, RunFolder]:
    places = tuning.places(number)
    return {place.replicate: RunFolder(path) for place, path in zip(places, tuning.runs(number), strict=True)}


def _plan_final(tuning: Tuning, best: Trial, spent: float) -> None:
    """The found settings, all images but the test part, and the time that is left."""
    asked = tuning.asked
    settings = stored_trial(tuning.trial(best.number)).settings
    judged_by, trained_on = tuning.basis["data.val"], tuning.basis["data.train_on"]
    always: dict[str, Any] = {"data.sealed": False, "data.val": "none", "threads": tuning.recipe.threads}
    always |= {"data.folds": None, "data.fold": None}
    if judged_by == "val" or trained_on == "train+val":  # folds leave out images of both parts
        always["data.train_on"] = "train+val"
    if isinstance(judged_by, str) and judged_by != "val":
        always["data.val"] = judged_by  # a part of another name is not for training
    if always["data.val"] == "none" and (settings.get("select") or tuning.recipe.select) == "best":
        always["select"] = "last"
        say("select = last for the final model: the images that selected in the trials train it")
    if asked.budget:
        always["budget"] = max(asked.budget - spent, FINAL_SHARE / 2 * asked.budget)
    recipe = with_settings(trial_recipe(tuning, settings), always)
    say(
        f"the best of {several(len(tuning.trials()), 'trial')} is number {best.number}; training with it on all but the test part"
    )
    plan = make_plan(recipe, Clock(time.monotonic(), turns=1))
    show_plan(plan)
    if not len(plan.split.test):
        warn(
            "there is no test part: how good the final model is, is not known; its settings were chosen by the trials' images"
        )
    place = Place(arm=FINAL)
    grow_group(tuning.path, FINAL, Planned(place, plan), asked.command, group_is_held=True)


def _next_folder(source: str) -> Path:
    number = 1
    while (path := Path("runs") / f"{Path(source).stem}-tune-{number}").exists():
        number += 1
    return path
