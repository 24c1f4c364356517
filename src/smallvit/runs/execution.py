"""One run from wherever its folder stands to its end: train, judge, report."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch.distributed as dist

from smallvit.console import quiet, say
from smallvit.errors import Collapsed, Interrupted, RunError, UsageError, nearest
from smallvit.models.gradient_checkpointing import may_share
from smallvit.objectives.base import objectives
from smallvit.planning.plan import Plan, Prepared, read_plan, show_plan, write_plan
from smallvit.planning.resolve import check_device
from smallvit.planning.whereabouts import Given, as_here, take_more, whereabouts, write_environment
from smallvit.recipe import Recipe, resolved
from smallvit.report.page import write_report
from smallvit.report.verdict import Verdict
from smallvit.runs.difference import DIFFERENCE, stored_difference
from smallvit.runs.folder import RunFolder
from smallvit.runs.ownership import sole_owner
from smallvit.runs.staged import is_stage, tell_stages
from smallvit.training.build import build_training
from smallvit.training.finish import finish
from smallvit.training.loop import Training
from smallvit.training.out_of_memory import memory_in_words
from smallvit.training.session import Log, computing, run_session, state_file
from smallvit.training.step import pieces_of
from smallvit.training.tensorboard import TensorBoardLog
from smallvit.training.together import lost, tell_folder, wait_for_folder
from smallvit.training.wandb import WandbLog
from smallvit.types import ALONE, World

LogType = type[TensorBoardLog] | type[WandbLog]
LOGS: dict[str, LogType] = {"tensorboard": TensorBoardLog, "wandb": WandbLog}


def execute(
    run: RunFolder, plan: Plan, logs: Sequence[LogType] = (), training: Training | None = None,
    started: float | None = None, world: World = ALONE, given: Given | None = None,
) -> None:  # fmt: skip
    """Train, judge, report: from wherever the folder, which is held, stands.

    A new run goes on with the `training` of its planning, any other with what is `given` where it is started: this process,
    if nothing is said. `started` is when the clock of a budget began (time.monotonic). Of several processes that train
    together the first one judges and reports.
    """
    started = time.monotonic() if started is None else started
    try:
        t = training or _built_here(run, plan, given or Given.here(), world)
        check_device(t.recipe.device)
        with computing(resolved(t.recipe.threads)):
            t.world = world
            _check_shares(t)
            open_logs: list[Log] = [make(run.path) for make in logs]
            collapse = ""
            try:
                with memory_in_words(t.recipe, f"smallvit resume {run.path}"):
                    run_session(run.path, t, open_logs, spent=time.monotonic() - started)
            except Collapsed as error:  # the run ends here, with all that shows it
                collapse = str(error)
            except RuntimeError as error:
                if world.size == 1 or not _of_the_group(error):
                    raise
                raise lost(error) from error
            finally:
                for log in open_logs:
                    log.close()
            if not world.writes:
                return
            say("judging the model and writing the report")
            finish(run, t, plan.images, plan.split, plan.floors, collapse)
            page = report_runs([run], run.path / "report.html")
            if collapse:
                raise Collapsed(f"{collapse}. The report shows its course: {page}")
    except KeyboardInterrupt:  # outside the loop, or a second one in it
        raise Interrupted(f"stopped; go on with `smallvit resume {run.path}`") from None


def _built_here(run: RunFolder, plan: Plan, given: Given, world: World) -> Training:
    """The training of a run that is started where so much is given; env.json says what it has."""
    here = whereabouts(run, given)
    plan = plan._replace(recipe=as_here(plan.recipe, here))
    check_device(plan.recipe.device)
    go_on = f"smallvit resume {run.path}"
    with computing(here.threads):
        with memory_in_words(plan.recipe, go_on, least=True):
            t = _build(run, plan)
        if world.size == 1:
            with memory_in_words(plan.recipe, go_on):
                take_more(t, here)
    if world.writes:
        write_environment(run, t.recipe)
    return t


def run_planned(
    folder: Path, prepared: Prepared, command: str, logs: Sequence[LogType], started: float, world: World = ALONE
) -> None:  # fmt: skip
    """A new run, in a folder that is held: its plan is shown and written, then it is trained."""
    show_plan(prepared.plan)
    run = write_plan(folder, prepared.plan, command)
    tell_folder(folder, world)
    execute(run, prepared.plan, logs, prepared.training, started, world)


def resume_run(run: RunFolder, logs: Sequence[LogType] = (), world: World = ALONE, given: Given | None = None) -> None:
    """Go on with a run that is not finished."""
    with sole_owner(run.path) if world.writes else nullcontext():
        if run.finished and world.size == 1:  # by the process that held it before
            tell_finished(run)
        else:
            execute(run, read_plan(run), logs, world=world, given=given)


def tell_finished(run: RunFolder) -> None:
    say(f"{run.path} is already finished")
    if not (run.path / "report.html").is_file():
        report_runs([run], run.path / "report.html")


def train_along(world: World) -> Path:
    """The part of one of several processes in a run that another one plans and writes, and in the stages before it."""
    while True:
        folder = wait_for_folder()
        run = RunFolder(folder)
        with quiet():
            execute(run, read_plan(run), world=world)
        if not is_stage(folder):
            return folder


def _of_the_group(error: RuntimeError) -> bool:
    """Gloo has no errors of its own: they are those that come out of torch.distributed."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, dist.DistError) or frame.f_globals.get("__name__", "").startswith("torch.distributed")


def _check_shares(t: Training) -> None:
    size, batch = t.world.size, t.loader.batch_size
    if batch % size:
        raise UsageError(f"--batch-size {batch} cannot be shared by {size} processes: give a multiple of {size}")
    if (pieces := pieces_of(t.recipe)) > max(1, batch // size // 2):
        raise UsageError(
            f"--grad-accum {pieces}: {size} processes have {batch // size} images of a batch each: give fewer pieces"
        )
    if size > 1 and t.recipe.grad_checkpointing and not may_share(t.step.backbone.model):
        raise UsageError(
            f"--grad-checkpointing: {t.recipe.model.name} has BatchNorm, which timm would compute again by the images of one "
            "process; --grad-accum 2 saves memory, too, and works with several"
        )


def _build(run: RunFolder, plan: Plan) -> Training:
    """The recipe was tried before it was written: what cannot be built now is the folder's fault."""
    try:
        return build_training(plan.recipe, plan.images, plan.split, with_init=not state_file(run.path).is_file())
    except UsageError as error:
        raise RunError(f"{run.path / 'recipe.json'}: {error}") from None


def check_logs(names: str | None) -> list[LogType]:
    """`tensorboard`, `wandb`, or both with a comma between; whether their packages are there is asked now."""
    asked = list(dict.fromkeys(name.strip() for name in names.split(","))) if names is not None else []
    if unknown := [name for name in asked if name not in LOGS]:
        raise UsageError(f"unknown log {unknown[0]!r}: {nearest(unknown[0], LOGS)}")
    kinds = [LOGS[name] for name in asked]
    for kind in kinds:
        kind.check()
    return kinds


def report_runs(runs: Sequence[RunFolder], out: Path) -> Path:
    """One page for one run, or for several side by side."""
    *others, last = dict.fromkeys(_told_apart(run.recipe) for run in runs)
    names = f"{', '.join(others)} and {last}" if others else last
    said = stored_difference(runs)
    verdicts = [Verdict("note", DIFFERENCE, said)] if said else []
    verdicts += [
        Verdict("note", "In stages" if len(runs) == 1 else f"{run.path.name} in stages", told)
        for run in runs
        if (told := tell_stages(run))
    ]
    sources = list(dict.fromkeys(Path(run.recipe.data.source).name for run in runs))
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return write_report(runs, out, f"{names} on {sources[0]}{more}", verdicts)


def _told_apart(recipe: Recipe) -> str:
    method = recipe.objective.name
    if method not in objectives():
        raise RunError(f"a run was trained with the objective {method!r}, which is unknown here")
    return recipe.model.name if objectives()[method].classifies else f"{recipe.model.name} pretrained with {method}"
