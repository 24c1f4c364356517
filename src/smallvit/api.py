"""What the command line and Python users call: train, explain, pretrain, resume, diagnose, compare, report.

How a recipe is made of what was asked stands in planning/flags.py, what is done with a finished run (evaluate, predict,
probe) in runs/inference.py; both are called from here, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from smallvit.amount.curve import curve, report_curve, resume_curve
from smallvit.amount.shares import is_curve
from smallvit.console import quiet, say
from smallvit.data.kept import Data, hold, lent
from smallvit.errors import UsageError
from smallvit.listing.catalog import describe_recipe
from smallvit.opened import Group, Run, calibrate_rejection, diagnose, diagnose_others, open_runs
from smallvit.planning.explanation import Line
from smallvit.planning.flags import make_recipe, pretraining_recipe
from smallvit.planning.forecast import Forecast, forecast
from smallvit.planning.length import Clock
from smallvit.planning.plan import Plan, prepare, show_plan
from smallvit.recipe import FLAGS, Recipe
from smallvit.report.page import write_report
from smallvit.report.verdict import Verdict
from smallvit.runs.difference import tell_difference
from smallvit.runs.execution import check_logs, resume_run, run_planned, tell_finished, train_along
from smallvit.runs.execution import report_runs as report
from smallvit.runs.fold_results import finish_folds
from smallvit.runs.folder import check_free, claimed
from smallvit.runs.group import claimed_group, diagnosis_of, jobs_of, run_members
from smallvit.runs.inference import evaluate, floors_for, probe, usual_part
from smallvit.runs.longer import changed_by, run_longer
from smallvit.runs.members import final_members, is_folds, is_group
from smallvit.runs.origin import command_line, default_folder
from smallvit.runs.ownership import patient, sole_owner
from smallvit.runs.places import LOCAL, as_one_of, check_place
from smallvit.runs.prediction import embed, embeddings, nearest, predict, predict_proba
from smallvit.runs.relocation import relocate
from smallvit.runs.replicates import Replicates, check_staged, plan_replicates, replicates_of, tell_budget
from smallvit.runs.staged import is_unplanned
from smallvit.runs.stages import Stages
from smallvit.shipping.export import Export, export
from smallvit.studies.record import is_study
from smallvit.studies.reporting import report_study
from smallvit.studies.study import finished_runs, resume_study, run_study
from smallvit.training.together import join
from smallvit.tuning.folder import is_tuning
from smallvit.tuning.tune import report_tuning, resume_tuning, tune
from smallvit.types import Prediction

if TYPE_CHECKING:
    from smallvit.runs.comparison import Comparison

# From opened.py, flags.py, inference.py, prediction.py, execution.py, tune.py and study.py; all others are below.
__all__ = [
    "FLAGS",
    "Export",
    "Group",
    "Prediction",
    "Run",
    "calibrate_rejection",
    "command_line",
    "curve",
    "describe_recipe",
    "diagnose",
    "embed",
    "embeddings",
    "evaluate",
    "export",
    "floors_for",
    "make_recipe",
    "nearest",
    "open_runs",
    "predict",
    "predict_proba",
    "pretraining_recipe",
    "probe",
    "report",
    "report_study",
    "run_study",
    "tune",
    "usual_part",
]


@overload
def train(data: Data = None, *, folds: None = None, **more: Any) -> Run: ...
@overload
def train(data: Data = None, *, folds: int, **more: Any) -> Group: ...
def train(
    data: Data = None, *, out: str | Path | None = None, recipe: str | Path = "default",
    settings: Mapping[str, Any] | None = None, overwrite: bool = False, log: str | None = None,
    show_progress: bool = True, started: float | None = None, jobs: int = 1, on: str = LOCAL,
    **flags: Any,
) -> Run | Group:  # fmt: skip
    """Train one model and return its finished run. Without `data` it is the recipe's: mnist5k in ours.

    `data` is a folder, a CSV or .npz file, the name of a set; or images in memory: `(images, labels)` with uint8 arrays or
    tensors (N x H x W or N x H x W x C, labels are whole numbers or class names), a torch or Hugging Face `Dataset`; with
    parts of their own `{"train": (x, y), "val": (x, y), "test": (x, y)}`. Those are kept beside the run, as images-DIGEST.
    `flags` are the everyday names of the command line (model, img_size, epochs, budget="20m", ...); anything else
    in the recipe goes through `settings={"optimizer.weight_decay": 0.1}`. With `folds=5` it is a group of five runs,
    each of which leaves out other images; `jobs` at a time, and `on` as for `train_seeds`.
    """
    with quiet(not show_progress):
        asked = _ask(data, out, overwrite, recipe, settings, flags)
    if several := replicates_of(asked, None, jobs):
        if log is not None:
            raise UsageError("--log works with a single run; leave out --folds")
        with quiet(not show_progress):
            return Group(_train_group(several, jobs, on, out, overwrite, started))
    if on != LOCAL:
        raise UsageError(f"--on {on} is for several runs: give --seeds or --folds, or leave it out")
    world = join()
    if not world.writes:  # another process plans, and all train what it has written
        return Run(train_along(world))
    with quiet(not show_progress):
        started = time.monotonic() if started is None else started
        logs = check_logs(log)
        clock, command = Clock(started), command_line()
        prepared = prepare(asked, clock)
        stages = Stages.planned(prepared.plan, clock, command)
        with claimed(out or default_folder(prepared.plan.recipe), overwrite) as folder:
            if stages:
                del prepared  # its model needs no memory while the stages have it
                stages.run_here(folder, logs, world)
            else:
                run_planned(folder, prepared, command, logs, clock.started, world)
        return Run(folder)


def _ask(
    data: Data, out: str | Path | None, overwrite: bool, recipe: str | Path, settings: Mapping[str, Any] | None,
    flags: Mapping[str, Any],
) -> Recipe:  # fmt: skip
    """What was asked as a recipe, and a free place for it. Images in memory are written when nothing is wrong with both."""
    held = hold(data, out)
    asked = make_recipe(recipe, settings, data=held.source, **flags)
    if join().writes:
        if out is not None:
            check_free(out, overwrite)
        held.write()
    return asked


def _train_group(
    asked: Replicates, jobs: int, on: str, out: str | Path | None, overwrite: bool, started: float | None
) -> Path:
    """Seeds, folds or both, in one folder with one report."""
    check_place(on)
    if join().size > 1:
        axis = "seeds" if asked.places[0].seed is not None else "folds"
        raise UsageError(
            f"--{axis} trains runs of one process each: start it without torchrun, with --jobs or --on ray"
        )
    tell_budget(asked)
    clock, command = asked.clock(started), command_line()
    with as_one_of(min(jobs, len(asked.places)), on):
        planned = plan_replicates(asked, clock)
    plan = planned[0].plan
    stages = Stages.planned(plan, clock, command)
    if stages:
        check_staged(asked)
    else:
        show_plan(plan, asked.turns)
    group = claimed_group(
        out or default_folder(plan.recipe), planned, command, overwrite, f"{plan.recipe.model.name}, {asked.words}",
        staged=stages is not None, jobs=jobs,
    )  # fmt: skip
    with group as folder:
        if stages:
            stages.run_and_plan_group(folder, jobs, on)
        run_group(folder, jobs, on)
    return folder


class Explanation(NamedTuple):
    """What `train` would do, and what that is expected to bring. Lines have what, value, why, brings and switch."""

    plan: Plan
    chosen: list[Line]
    left_out: list[Line]
    expected: Forecast


def explain(
    data: Data = None, *, recipe: str | Path = "default", settings: Mapping[str, Any] | None = None,
    seeds: int | None = None, jobs: int = 1, show_progress: bool = True, started: float | None = None, **flags: Any,
) -> Explanation:  # fmt: skip
    """The plan of `train` with the same arguments. Trains nothing and writes nothing; steps are measured on a copy."""
    with quiet(not show_progress), lent(data) as source:
        asked = make_recipe(recipe, settings, data=source, **flags)
        several = replicates_of(asked, seeds, jobs)
        turns = several.turns if several else 0
        with as_one_of(min(jobs, len(several.places)) if several else 1, LOCAL):
            prepared = prepare(*((several.first, several.clock(started)) if several else (asked, Clock(started))))
        return Explanation(prepared.plan, *prepared.plan.explained, forecast(prepared, turns))


def train_seeds(
    data: Data = None, *, seeds: int, jobs: int = 1, out: str | Path | None = None,
    recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, overwrite: bool = False,
    show_progress: bool = True, started: float | None = None, on: str = LOCAL, **flags: Any,
) -> list[Run]:  # fmt: skip
    """The same recipe with several seeds, in one folder with one report. The split is the same for all.

    `init` may be a group of seeds: each seed starts from its own. `on` is where they are trained: local, ray (a cluster on this
    machine) or ray://HOST:PORT, whose machines must all see `out`. With `folds` each seed is a run of every fold.
    """
    with quiet(not show_progress):
        several = replicates_of(_ask(data, out, overwrite, recipe, settings, flags), seeds, jobs)
        assert several, "seeds are several"
        return open_runs(_train_group(several, jobs, on, out, overwrite, started))


def pretrain(
    data: Data = None, *, method: str | None = None, recipe: str | Path | None = None,
    out: str | Path | None = None, settings: Mapping[str, Any] | None = None, **more: Any,
) -> Run:  # fmt: skip
    """Pretrain a model without labels (SupCon needs them) and return its finished run; then `train(..., init=run.path)`.

    `method` is idmm, simclr, supcon, mocov2, mocov3, dino or mae; it may be left out where a recipe says it. `more` is as
    for `train`. A folder of images will do.
    """
    return train(data, folds=None, recipe=pretraining_recipe(method, recipe), out=out, settings=settings, **more)


def train_longer(
    folder: str | Path, *, epochs: int | None = None, budget: str | float | None = None, out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None, data: str | Path | None = None, overwrite: bool = False, log: str | None = None,
    show_progress: bool = True, started: float | None = None, **flags: Any,
) -> Run:  # fmt: skip
    """Train a finished run, pretrained ones too, for so many epochs more, or for a time; as a new run, which is returned.

    It begins where that run ended: weights, optimizer, moving average, all that the objective holds. What follows the length (the learning rate
    with its warm-up, growing images, weights of losses) runs its course once more; orders and augmentation are drawn anew. Recipe,
    images and split are those of the run; `flags` may be lr, threads, device, precision, and `settings` what its state does not depend on.
    """
    changes = changed_by({"epochs": epochs, "budget": budget, **flags}, settings)
    with quiet(not show_progress):
        return Run(run_longer(folder, changes, out, overwrite, log, data, started))


def run_group(folder: Path, jobs: int = 1, on: str = LOCAL) -> list[Run]:
    """Finish every run of a group, which is held; judge folds together; diagnose where the group asks for it; report."""
    run_members(folder, jobs, on)
    runs = open_runs(folder)
    if is_folds(folder):
        finish_folds(folder)
    if asked := diagnosis_of(folder):
        diagnose_others(runs, asked)
        tell_difference(folder, runs)
    report(runs, folder / "report.html")
    return runs


def resume(
    folder: str | Path, *, jobs: int | None = None, log: str | None = None, show_progress: bool = True, on: str = LOCAL,
    data: str | Path | None = None, wait: bool = False,
) -> list[Run]:  # fmt: skip
    """Go on with a run, or with all unfinished runs of a group, to the result it would have had anyway.

    `jobs` of several runs at once, else as planned; `data`: where moved images are; `wait` for a process at work, else refuse.
    """
    folder = Path(folder)
    if log is not None and (is_study(folder) or is_group(folder)):
        raise UsageError(f"--log works with a single run, and {folder} holds several: leave it out")
    with quiet(not show_progress), patient() if wait else nullcontext():
        if is_study(folder):
            return [Run(path) for path in finished_runs(resume_study(folder, jobs, on, data))]
        relocate(folder, data)
        if is_tuning(folder):
            return [Run(resume_tuning(folder, jobs, on).final.path)]
        if is_curve(folder):
            return open_runs(resume_curve(folder, jobs_of(folder, jobs), on).folder)
        if is_group(folder):
            at_once = jobs_of(folder, jobs)
            with sole_owner(folder):
                if any(is_unplanned(member.path) for member in final_members(folder)):
                    Stages.stored(folder).run_and_plan_group(folder, at_once, on)
                return run_group(folder, at_once, on)
        if (jobs or 1) > 1 or on != LOCAL:
            given = f"--jobs {jobs}" if (jobs or 1) > 1 else f"--on {on}"
            raise UsageError(f"{given} is for several runs, and {folder} is one: leave it out")
        if is_unplanned(folder):
            if not (world := join()).writes:
                return [Run(train_along(world))]
            with sole_owner(folder):
                Stages.stored(folder).run_here(folder, check_logs(log), world)
            return [Run(folder)]
        run = Run(folder)
        if run.finished:
            tell_finished(run)
            return [run]
        world = join()
        with quiet(not show_progress or not world.writes):
            resume_run(run, check_logs(log) if world.writes else [], world)
        return [run]


def compare(
    folders: Sequence[str | Path], *, cka: bool = False, images: int = 256, out: str | Path | None = None,
    show_progress: bool = True,
) -> list[Comparison]:  # fmt: skip
    """The first run, or group of seeds, against each of the others, and one report of all.

    `cka` also diagnoses the first run against the second, so that the report shows how alike their layers are; that
    takes the place of an earlier diagnosis of the first run.
    """
    from smallvit.runs import comparison

    sides = comparison.open_sides(folders)
    comparisons = comparison.compare(sides)
    runs = [run for side in sides for run in side.runs.values()]
    with quiet(not show_progress):
        if cka:
            first, second = (next(iter(side.runs.values())) for side in sides[:2])
            measured = diagnose(first.path, against=second.path, images=images, show_progress=show_progress)
            alike = next((finding.verdict for finding in measured if finding.name == "similarity"), "")
            comparisons[0] = comparisons[0]._replace(
                cka=f"{sides[0].name}: {alike[0].lower()}{alike[1:]}" if alike else ""
            )
        verdicts = [
            Verdict(
                "note",
                "Real" if difference.real else "Not decided",
                " ".join(filter(None, (difference.sentence, difference.beside, difference.caution))),
            )
            for difference in comparisons
        ]
        page = Path(out) if out else comparison.default_page(folders)
        write_report(runs, page, " and ".join(dict.fromkeys(side.name for side in sides)), verdicts)
        say(f"report: {page}")
    return comparisons


def report_folders(folders: Sequence[Path], out: Path) -> Path:
    """One page for runs, groups, a search, or a study."""
    if len(folders) == 1 and is_tuning(folders[0]):
        return report_tuning(folders[0], out)
    if len(folders) == 1 and is_curve(folders[0]):
        return report_curve(folders[0], out)
    if len(folders) == 1 and is_study(folders[0]):
        return report_study(folders[0], out=out)[1]
    return report([run for folder in folders for run in open_runs(folder)], out)
