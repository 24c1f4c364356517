"""What the command line and Python users call: train, explain, pretrain, resume, diagnose, compare, report.

How a recipe is made of what was asked stands in planning/flags.py, what is done with a finished run (evaluate, predict,
probe) in runs/inference.py; both are called from here, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smallvit.console import bar, duration, quiet, say
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import digest, load_model, model_file
from smallvit.listing.catalog import describe_recipe
from smallvit.planning.explanation import Line
from smallvit.planning.flags import make_recipe, pretraining_recipe
from smallvit.planning.forecast import Forecast, forecast
from smallvit.planning.length import Clock
from smallvit.planning.plan import Plan, make_plan, prepare, show_plan
from smallvit.recipe import FLAGS, Recipe
from smallvit.report.page import write_report
from smallvit.report.verdict import Verdict
from smallvit.runs.axes import Place
from smallvit.runs.difference import tell_difference
from smallvit.runs.execution import check_logs, resume_run, run_planned, train_along
from smallvit.runs.execution import report_runs as report
from smallvit.runs.folder import RunFolder, check_free, claimed
from smallvit.runs.group import Diagnosis, Planned, claimed_group, diagnosis_of, run_members
from smallvit.runs.inference import evaluate, floors_for, open_predictor, predict, probe
from smallvit.runs.members import final_members, is_group
from smallvit.runs.origin import command_line, default_folder
from smallvit.runs.ownership import sole_owner
from smallvit.runs.places import LOCAL, check_place
from smallvit.runs.staged import is_unplanned
from smallvit.runs.stages import Stages
from smallvit.runs.stored_findings import read_findings
from smallvit.training.initial import member_starts
from smallvit.training.together import join
from smallvit.tuning.folder import FINAL, is_tuning
from smallvit.tuning.tune import report_tuning, resume_tuning, tune
from smallvit.types import Prediction

if TYPE_CHECKING:
    from smallvit.diagnosis.findings import Finding
    from smallvit.evaluation.predictor import Predictor
    from smallvit.runs.comparison import Comparison

# From flags.py, inference.py and execution.py; all others are below.
__all__ = [
    "FLAGS",
    "Prediction",
    "command_line",
    "describe_recipe",
    "evaluate",
    "floors_for",
    "make_recipe",
    "predict",
    "pretraining_recipe",
    "probe",
    "report",
    "tune",
]


class Run(RunFolder):
    """A run folder with what can be done with it."""

    def predict(self, *files: str | Path) -> list[Prediction]:
        """Label and probability of image files, folders of them, or both."""
        return predict(self.path, files)

    def evaluate(self, part: str = "test") -> dict[str, Any]:
        """Accuracy with its interval on one part of the run's own split."""
        return evaluate(self.path, part)

    def diagnose(self, against: str | Path | None = None, images: int = 256) -> list[Finding]:
        """Why the model does well or badly, in ranked findings; they are stored and go into the report."""
        return diagnose(self.path, against=against, images=images)

    def model(self) -> Any:
        """The trained timm model, in eval mode."""
        return load_model(self.path / "model.safetensors").predictor.backbone.model

    def predictor(self, device: str = "auto") -> Predictor:
        """Logits, features and probabilities of files, arrays, PIL images and tensors; where images are many, in batches."""
        return open_predictor(self.path, device)


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
    world = join()
    if not world.writes:  # another process plans, and all train what it has written
        return Run(train_along(world))
    with quiet(not show_progress):
        started = time.monotonic() if started is None else started
        logs = check_logs(log)
        if out is not None:
            check_free(out, overwrite)
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


class Explanation(NamedTuple):
    """What `train` would do, and what that is expected to bring. Lines have what, value, why, brings and switch."""

    plan: Plan
    chosen: list[Line]
    left_out: list[Line]
    expected: Forecast


def explain(
    data: str | Path | None = None, *, recipe: str | Path = "default", settings: Mapping[str, Any] | None = None,
    seeds: int | None = None, jobs: int = 1, show_progress: bool = True, started: float | None = None, **flags: Any,
) -> Explanation:  # fmt: skip
    """The plan of `train` with the same arguments. Trains nothing and writes nothing; steps are measured on a copy."""
    asked = make_recipe(recipe, settings, data=data, **flags)
    turns = 0
    if seeds is not None:
        asked, turns = _first_of(asked, seeds), math.ceil(seeds / max(1, jobs))
    with quiet(not show_progress):
        prepared = prepare(asked, Clock(started, turns))
        return Explanation(prepared.plan, *prepared.plan.explained, forecast(prepared, turns))


def _first_of(asked: Recipe, seeds: int) -> Recipe:
    """What the first of several seeds is asked for: its own start."""
    if seeds < 2:
        raise UsageError(f"--seeds {seeds}: give at least 2, or leave it out")
    place = Place(seed=asked.seed)
    starts = member_starts(asked.model.init, [place]) if asked.model.init else {}
    model = asked.model.model_copy(update={"init": str(starts[place])}) if starts else asked.model
    return asked.model_copy(update={"model": model})


def train_seeds(
    data: str | Path | None = None, *, seeds: int, jobs: int = 1, out: str | Path | None = None,
    recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, overwrite: bool = False,
    show_progress: bool = True, started: float | None = None, on: str = LOCAL, **flags: Any,
) -> list[Run]:  # fmt: skip
    """The same recipe with several seeds, in one folder with one report. The split is the same for all.

    `init` may be a group of seeds: each seed starts from its own. `on` is where they are trained: local, ray (a cluster on this
    machine) or ray://HOST:PORT, whose machines must all see `out`.
    """
    if seeds < 2:
        raise UsageError(f"--seeds {seeds}: give at least 2, or leave it out")
    if join().size > 1:
        raise UsageError("--seeds trains runs of one process each: start it without torchrun, with --jobs or --on ray")
    check_place(on)
    asked = make_recipe(recipe, settings, data=data, **flags)
    places = [Place(seed=seed) for seed in range(asked.seed, asked.seed + seeds)]
    starts = member_starts(asked.model.init, places) if asked.model.init else {}
    if starts:
        asked = asked.model_copy(update={"model": asked.model.model_copy(update={"init": str(starts[places[0]])})})
    turns = math.ceil(seeds / max(1, jobs))
    with quiet(not show_progress):
        if asked.budget:
            say(
                f"{seeds} seeds share the budget of {duration(asked.budget)}: {duration(asked.budget / turns)} for each"
            )
        if out is not None:
            check_free(out, overwrite)
        clock, command = Clock(started, turns), command_line()
        plan = make_plan(asked, clock)
        stages = Stages.planned(plan, clock, command)
        if stages and starts:
            raise UsageError(
                f"--init {flags['init']}: seeds with a stage before them start from one run, not from a group"
            )
        if not stages:
            show_plan(plan, turns)
        group = claimed_group(
            out or default_folder(plan.recipe), [Planned(place, _at(place, plan, starts)) for place in places],
            command, overwrite, title=f"{plan.recipe.model.name}, {seeds} seeds", staged=stages is not None,
        )  # fmt: skip
        with group as folder:
            if stages:
                stages.run_and_plan_group(folder, jobs, on)
            return run_group(folder, jobs, on)


def pretrain(
    data: str | Path | None = None, *, method: str | None = None, recipe: str | Path | None = None,
    out: str | Path | None = None, settings: Mapping[str, Any] | None = None, **more: Any,
) -> Run:  # fmt: skip
    """Pretrain a model without labels (SupCon needs them) and return its finished run; then `train(..., init=run.path)`.

    `method` is idmm, simclr, supcon, mocov2, mocov3, dino or mae; it may be left out where a recipe says it. `more` is as
    for `train`. A folder of images will do.
    """
    return train(data, recipe=pretraining_recipe(method, recipe), out=out, settings=settings, **more)


def _at(place: Place, plan: Plan, starts: Mapping[Place, Path]) -> Plan:
    """The same plan for another seed, from its own start where it has one."""
    changes: dict[str, Any] = {} if place.seed is None else {"seed": place.seed}
    if place in starts:
        file = model_file(str(starts[place]), "--init")
        changes["model"] = plan.recipe.model.model_copy(update={"init": str(file), "init_digest": digest(file)})
        own = [choice._replace(value=str(file)) if choice.key == "model.init" else choice for choice in plan.choices]
        plan = plan._replace(choices=own)
    return plan._replace(recipe=plan.recipe.model_copy(update=changes))


def run_group(folder: Path, jobs: int = 1, on: str = LOCAL) -> list[Run]:
    """Finish every run of a group, which is held; diagnose them where the group asks for it; write its report."""
    run_members(folder, jobs, on)
    runs = open_runs(folder)
    if asked := diagnosis_of(folder):
        _diagnose_others(runs, asked)
        tell_difference(folder, runs)
    report(runs, folder / "report.html")
    return runs


def _diagnose_others(runs: Sequence[Run], asked: Diagnosis) -> None:
    (basis,) = [run for run in runs if run.path.name == asked.against]
    others = [run for run in runs if run is not basis and not read_findings(run)]
    with bar("diagnosing", len(others)) as advance:
        for run in others:
            findings = diagnose(run.path, against=basis.path, images=asked.images, show_progress=False)
            for finding in findings:
                if finding.verdict:
                    say(f"{run.path.name}: {finding.verdict}")
            advance(1, note=run.path.name)


def resume(
    folder: str | Path, *, jobs: int = 1, log: str | None = None, show_progress: bool = True, on: str = LOCAL
) -> list[Run]:
    """Go on with a run, or with all unfinished runs of a group, to the result it would have had anyway."""
    folder = Path(folder)
    with quiet(not show_progress):
        if is_tuning(folder):
            return [Run(resume_tuning(folder, on).final.path)]
        if is_group(folder):
            with sole_owner(folder):
                if any(is_unplanned(member.path) for member in final_members(folder)):
                    Stages.stored(folder).run_and_plan_group(folder, jobs, on)
                return run_group(folder, jobs, on)
        if is_unplanned(folder):
            if not (world := join()).writes:
                return [Run(train_along(world))]
            with sole_owner(folder):
                Stages.stored(folder).run_here(folder, check_logs(log), world)
            return [Run(folder)]
        run = Run(folder)
        if run.finished:
            say(f"{folder} is already finished")
            if not (folder / "report.html").is_file():
                report([run], folder / "report.html")
            return [run]
        world = join()
        with quiet(not show_progress or not world.writes):
            resume_run(run, check_logs(log) if world.writes else [], world)
        return [run]


def diagnose(
    folder: str | Path, *, against: str | Path | None = None, images: int = 256, threads: int | None = None,
    device: str = "auto", show_progress: bool = True,
) -> list[Finding]:  # fmt: skip
    """Measure a finished run, the weightiest finding first; they are stored with it, and its report is written anew.

    `against` is another run or a model's name.
    """
    from smallvit.diagnosis.diagnose import diagnose as measure_run

    with quiet(not show_progress):
        findings = measure_run(folder, against, images, threads, device)
        report([Run(folder)], Path(folder) / "report.html")
    return findings


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
                " ".join(filter(None, (difference.sentence, difference.caution))),
            )
            for difference in comparisons
        ]
        page = Path(out) if out else comparison.default_page(folders)
        write_report(runs, page, " and ".join(dict.fromkeys(side.name for side in sides)), verdicts)
        say(f"report: {page}")
    return comparisons


def report_folders(folders: Sequence[Path], out: Path) -> Path:
    """One page for runs, groups, or a search."""
    if len(folders) == 1 and is_tuning(folders[0]):
        return report_tuning(folders[0], out)
    return report([run for folder in folders for run in open_runs(folder)], out)


def open_runs(folder: str | Path) -> list[Run]:
    """The run of a folder, or the runs of a group that count."""
    folder = Path(folder)
    if is_tuning(folder):
        return [Run(folder / FINAL)]
    return [Run(member.path) for member in final_members(folder)] if is_group(folder) else [Run(folder)]
