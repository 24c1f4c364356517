"""One run from wherever its folder stands to its end: train, judge, report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from smallvit.console import say
from smallvit.errors import Collapsed, Interrupted, RunError, UsageError, nearest
from smallvit.objectives.base import objectives
from smallvit.planning.plan import Plan, read_plan
from smallvit.planning.resolve import check_device
from smallvit.recipe import Recipe, resolved
from smallvit.report.page import write_report
from smallvit.report.verdict import Verdict
from smallvit.runs.difference import DIFFERENCE, stored_difference
from smallvit.runs.folder import RunFolder
from smallvit.runs.ownership import sole_owner
from smallvit.training.build import build_training
from smallvit.training.finish import finish
from smallvit.training.loop import Training
from smallvit.training.session import Log, fixed_threads, run_session, state_file
from smallvit.training.tensorboard import TensorBoardLog
from smallvit.training.wandb import WandbLog

LogType = type[TensorBoardLog] | type[WandbLog]
LOGS: dict[str, LogType] = {"tensorboard": TensorBoardLog, "wandb": WandbLog}


def execute(
    run: RunFolder, plan: Plan, logs: Sequence[LogType] = (), training: Training | None = None,
    started: float | None = None,
) -> None:  # fmt: skip
    """Train, judge, report: from wherever the folder, which is held, stands.

    A new run goes on with the `training` of its planning. `started` is when the clock of a budget began
    (time.monotonic).
    """
    started = time.monotonic() if started is None else started
    check_device(plan.recipe.device)
    try:
        with fixed_threads(resolved(plan.recipe.threads)):
            t = training or _build(run, plan)
            open_logs: list[Log] = [make(run.path) for make in logs]
            collapse = ""
            try:
                run_session(run.path, t, open_logs, spent=time.monotonic() - started)
            except Collapsed as error:  # the run ends here, with all that shows it
                collapse = str(error)
            finally:
                for log in open_logs:
                    log.close()
            say("judging the model and writing the report")
            finish(run, t, plan.images, plan.split, plan.floors, collapse)
            page = report_runs([run], run.path / "report.html")
            if collapse:
                raise Collapsed(f"{collapse}. The report shows its course: {page}")
    except KeyboardInterrupt:  # outside the loop, or a second one in it
        raise Interrupted(f"stopped; go on with `smallvit resume {run.path}`") from None


def resume_run(run: RunFolder, logs: Sequence[LogType] = ()) -> None:
    """Go on with a run that is not finished."""
    with sole_owner(run.path):
        execute(run, read_plan(run), logs)


def _build(run: RunFolder, plan: Plan) -> Training:
    """The recipe was tried before it was written: what cannot be built now is the folder's fault."""
    try:
        return build_training(plan.recipe, plan.images, plan.split, with_init=not state_file(run.path).is_file())
    except UsageError as error:
        raise RunError(f"{run.path / 'recipe.json'}: {error}") from None


def check_logs(names: str | None) -> list[LogType]:
    """`tensorboard`, `wandb`, or both with a comma between; whether their packages are there is asked now."""
    asked = list(dict.fromkeys(name.strip() for name in names.split(","))) if names is not None else []
    for name in asked:
        if name not in LOGS:
            raise UsageError(f"unknown log {name!r}: {nearest(name, LOGS)}")
        LOGS[name].check()
    return [LOGS[name] for name in asked]


def report_runs(runs: Sequence[RunFolder], out: Path) -> Path:
    """One page for one run, or for several side by side."""
    *others, last = dict.fromkeys(_told_apart(run.recipe) for run in runs)
    names = f"{', '.join(others)} and {last}" if others else last
    said = stored_difference(runs)
    verdicts = [Verdict("note", DIFFERENCE, said)] if said else []
    return write_report(runs, out, f"{names} on {Path(runs[0].recipe.data.source).name}", verdicts)


def _told_apart(recipe: Recipe) -> str:
    method = recipe.objective.name
    return recipe.model.name if objectives()[method].classifies else f"{recipe.model.name} pretrained with {method}"
