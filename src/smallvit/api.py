"""What the command line and Python users call: train, pretrain, resume, diagnose, compare, report.

How a recipe is made of what was asked stands in asked.py, what is done with a finished run (evaluate, predict, probe) in
finished.py; both are called from here, too.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smallvit.asked import FLAGS, make_recipe, pretraining_recipe
from smallvit.console import bar, quiet, say
from smallvit.errors import Collapsed, Interrupted, RunError, UsageError, nearest
from smallvit.finished import Prediction, evaluate, floors_for, predict, probe
from smallvit.many import Diagnosis, Member, claimed_group, diagnosis_of, member_paths, run_members
from smallvit.objectives.base import objectives
from smallvit.ownership import sole_owner
from smallvit.plan import Plan, make_plan, read_plan, show_plan, write_plan
from smallvit.recipe import Recipe, flat, known
from smallvit.report.page import write_report
from smallvit.report.stored import read_findings
from smallvit.report.verdict import Verdict
from smallvit.resolve import check_device
from smallvit.run import Run, check_free, claimed, seed_folder
from smallvit.training.build import build_training
from smallvit.training.finish import finish
from smallvit.training.initial import digest, initial_file, member_starts
from smallvit.training.loop import Training
from smallvit.training.session import Log, fixed_threads, run_session, state_file
from smallvit.training.tensorboard import TensorBoardLog
from smallvit.training.wandb import WandbLog

if TYPE_CHECKING:
    from smallvit.comparison import Comparison
    from smallvit.diagnosis.findings import Finding

# From asked.py and finished.py; all others are below.
__all__ = ["FLAGS", "Prediction", "evaluate", "floors_for", "make_recipe", "predict", "pretraining_recipe", "probe"]

LogType = type[TensorBoardLog] | type[WandbLog]
LOGS: dict[str, LogType] = {"tensorboard": TensorBoardLog, "wandb": WandbLog}


def train(
    data: str | Path | None = None, *, out: str | Path | None = None, recipe: str | Path = "default",
    settings: Mapping[str, Any] | None = None, overwrite: bool = False, log: str | None = None,
    show_progress: bool = True, started: float | None = None, **flags: Any,
) -> Run:  # fmt: skip
    """Train one model and return its finished run. Without `data` it is the recipe's: mnist5k in ours.

    `flags` are the everyday names of the command line (model, img_size, epochs, budget="20m", ...); anything else
    in the recipe goes through `settings={"optimizer.weight_decay": 0.1}`.
    """
    asked = make_recipe(recipe, settings, data=data, **flags)
    with quiet(not show_progress):
        started = time.monotonic() if started is None else started
        logs = check_logs(log)
        if out is not None:
            check_free(out, overwrite)
        plan = make_plan(asked, started)
        with claimed(out or default_folder(plan.recipe), overwrite) as folder:
            show_plan(plan)
            run = write_plan(folder, plan, command_line())
            return execute(run, plan, logs)


def train_seeds(
    data: str | Path | None = None, *, seeds: int, jobs: int = 1, out: str | Path | None = None,
    recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, overwrite: bool = False,
    show_progress: bool = True, started: float | None = None, **flags: Any,
) -> list[Run]:  # fmt: skip
    """The same recipe with several seeds, in one folder with one report. The split is the same for all.

    `init` may be a group of seeds: each seed starts from its own.
    """
    if seeds < 2:
        raise UsageError(f"--seeds {seeds}: give at least 2, or leave it out")
    asked = make_recipe(recipe, settings, data=data, **flags)
    starts = member_starts(asked.model.init, range(asked.seed, asked.seed + seeds)) if asked.model.init else {}
    if starts:
        asked = asked.model_copy(update={"model": asked.model.model_copy(update={"init": str(starts[asked.seed])})})
    if asked.budget:
        asked = asked.model_copy(update={"budget": asked.budget * min(jobs, seeds) / seeds})
    with quiet(not show_progress):
        if out is not None:
            check_free(out, overwrite)
        plan = make_plan(asked, started)
        first = plan.recipe.seed
        plans = [_reseeded(plan, seed, starts.get(seed)) for seed in range(first, first + seeds)]
        folder = out or default_folder(plan.recipe)
        show_plan(plan)
        members = [Member(seed_folder(p.recipe.seed), p) for p in plans]
        title = f"{plan.recipe.model.name}, {seeds} seeds"
        with claimed_group(folder, members, command_line(), overwrite, title) as group:
            return run_group(group, jobs)


def pretrain(
    data: str | Path | None = None, *, method: str | None = None, recipe: str | Path | None = None,
    out: str | Path | None = None, settings: Mapping[str, Any] | None = None, **more: Any,
) -> Run:  # fmt: skip
    """Pretrain a model without labels (SupCon needs them) and return its finished run; then `train(..., init=run.path)`.

    `method` is idmm, simclr, supcon, mocov2, mocov3 or dino, and may be left out where a recipe says it; `more` is as
    for `train`. A folder of images will do.
    """
    return train(data, recipe=pretraining_recipe(method, recipe), out=out, settings=settings, **more)


def _reseeded(plan: Plan, seed: int, start: Path | None) -> Plan:
    changes: dict[str, Any] = {"seed": seed}
    if start:
        file = initial_file(str(start))
        changes["model"] = plan.recipe.model.model_copy(update={"init": str(file), "init_digest": digest(file)})
        own = [choice._replace(value=str(file)) if choice.key == "model.init" else choice for choice in plan.choices]
        plan = plan._replace(choices=own)
    return plan._replace(recipe=plan.recipe.model_copy(update=changes))


def run_group(folder: Path, jobs: int = 1) -> list[Run]:
    """Finish every run of a group, which is held; diagnose them where the group asks for it; write its report."""
    run_members(folder, jobs)
    runs = [Run(path) for path in member_paths(folder)]
    if asked := diagnosis_of(folder):
        _diagnose_others(runs, asked)
    report(runs, folder / "report.html")
    return runs


def _diagnose_others(runs: Sequence[Run], asked: Diagnosis) -> None:
    (basis,) = [run for run in runs if run.path.name == asked.against]
    others = [run for run in runs if run is not basis and not read_findings(run)]
    with bar("diagnosing", len(others)) as advance:
        for run in others:
            found = diagnose(run.path, against=basis.path, images=asked.images, show_progress=False)
            for one in found:
                if one.verdict:
                    say(f"{run.path.name}: {one.verdict}")
            advance(1, note=run.path.name)


def resume(folder: str | Path, *, jobs: int = 1, log: str | None = None, show_progress: bool = True) -> list[Run]:
    """Go on with a run, or with all unfinished runs of a group, to the result it would have had anyway."""
    folder = Path(folder)
    with quiet(not show_progress):
        if (folder / "group.json").is_file():
            with sole_owner(folder):
                return run_group(folder, jobs)
        run = Run(folder)
        if run.finished:
            say(f"{folder} is already finished")
            if not (folder / "report.html").is_file():
                report([run], folder / "report.html")
            return [run]
        with sole_owner(folder):
            return [execute(run, read_plan(run), check_logs(log))]


def execute(run: Run, plan: Plan, logs: Sequence[LogType] = ()) -> Run:
    """Train, judge, report: from wherever the folder, which is held, stands."""
    check_device(plan.recipe.device)
    try:
        with fixed_threads(known(plan.recipe.threads)):
            t = _build(run, plan)
            open_logs: list[Log] = [make(run.path) for make in logs]
            collapse = ""
            try:
                run_session(run.path, t, open_logs)
            except Collapsed as error:  # the run ends here, with all that shows it
                collapse = str(error)
            finally:
                for log in open_logs:
                    log.close()
            say("judging the model and writing the report")
            finish(run, t, plan.images, plan.split, plan.floors, collapse)
            page = report([run], run.path / "report.html")
            if collapse:
                raise Collapsed(f"{collapse}. The report shows its course: {page}")
    except KeyboardInterrupt:  # outside the loop, or a second one in it
        raise Interrupted(f"stopped; go on with `smallvit resume {run.path}`") from None
    return run


def _build(run: Run, plan: Plan) -> Training:
    """The recipe was tried before it was written: what cannot be built now is the folder's fault."""
    try:
        return build_training(plan.recipe, plan.images, plan.split, with_init=not state_file(run.path).is_file())
    except UsageError as error:
        raise RunError(f"{run.path / 'recipe.json'}: {error}") from None


def diagnose(
    folder: str | Path, *, against: str | Path | None = None, images: int = 256, threads: int | None = None,
    show_progress: bool = True,
) -> list[Finding]:  # fmt: skip
    """Measure a finished run, the weightiest finding first; they are stored with it, and its report is written anew.

    `against` is another run or a model's name.
    """
    from smallvit.diagnosis.diagnose import diagnose as measure_run

    with quiet(not show_progress):
        found = measure_run(folder, against, images, threads)
        report([Run(folder)], Path(folder) / "report.html")
    return found


def compare(
    folders: Sequence[str | Path], *, cka: bool = False, images: int = 256, out: str | Path | None = None,
    show_progress: bool = True,
) -> list[Comparison]:  # fmt: skip
    """The first run, or group of seeds, against each of the others, and one report of all.

    `cka` also diagnoses the first run against the second, so that the report shows how alike their layers are; that
    takes the place of an earlier diagnosis of the first run.
    """
    from smallvit import comparison

    sides = comparison.open_sides(folders)
    found = comparison.compare(sides)
    runs = [run for side in sides for run in side.runs.values()]
    with quiet(not show_progress):
        if cka:
            one, other = (next(iter(side.runs.values())) for side in sides[:2])
            measured = diagnose(one.path, against=other.path, images=images, show_progress=show_progress)
            alike = next((one.verdict for one in measured if one.name == "similarity"), "")
            found[0] = found[0]._replace(cka=f"{sides[0].name}: {alike[0].lower()}{alike[1:]}" if alike else "")
        verdicts = [
            Verdict("note", "Real" if one.real else "Not decided", " ".join(filter(None, (one.sentence, one.caution))))
            for one in found
        ]
        page = Path(out) if out else comparison.default_page(folders)
        write_report(runs, page, " and ".join(dict.fromkeys(side.name for side in sides)), verdicts)
        say(f"report: {page}")
    return found


def open_runs(folder: str | Path) -> list[Run]:
    """The run of a folder, or the runs of a group."""
    folder = Path(folder)
    return [Run(path) for path in member_paths(folder)] if (folder / "group.json").is_file() else [Run(folder)]


def report(runs: Sequence[Run], out: Path) -> Path:
    """One page for one run, or for several side by side."""
    *others, last = dict.fromkeys(_told_apart(run.recipe) for run in runs)
    names = f"{', '.join(others)} and {last}" if others else last
    return write_report(runs, out, f"{names} on {Path(runs[0].recipe.data.source).name}")


def _told_apart(recipe: Recipe) -> str:
    method = recipe.objective.name
    return recipe.model.name if objectives()[method].classifies else f"{recipe.model.name} pretrained with {method}"


def check_logs(names: str | None) -> list[LogType]:
    """`tensorboard`, `wandb`, or both with a comma between; whether their packages are there is asked now."""
    asked = list(dict.fromkeys(name.strip() for name in names.split(","))) if names is not None else []
    for name in asked:
        if name not in LOGS:
            raise UsageError(f"unknown log {name!r}: {nearest(name, LOGS)}")
        LOGS[name].check()
    return [LOGS[name] for name in asked]


def default_folder(recipe: Recipe) -> Path:
    """runs/NAME-MODEL-1, or the next free number; runs/NAME-METHOD-MODEL-1 for pretraining."""
    method = [] if objectives()[recipe.objective.name].classifies else [recipe.objective.name]
    stem = "-".join([Path(recipe.data.source).stem, *method, recipe.model.name])
    number = 1
    while (path := Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return path


def command_line() -> str:
    """What was typed, where it was the command line."""
    program = Path(sys.argv[0])
    ours = "smallvit" in (program.stem, program.parent.name if program.stem == "__main__" else "")
    return shlex.join(["smallvit", *sys.argv[1:]]) if ours else "smallvit.train(...)"


def describe_recipe(asked: Recipe) -> str:
    """The resolved recipe as TOML, every key with its value and, where it was chosen, the reason."""
    from smallvit.catalog import toml_page

    plan = make_plan(asked, with_floors=False)
    given = {key for key, value in flat(asked.model_dump(exclude_unset=True)).items() if value != "auto"}
    notes = {choice.key: choice.why if choice.key in given else f"auto: {choice.why}" for choice in plan.choices}
    return toml_page(plan.recipe, notes)
