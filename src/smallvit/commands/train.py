"""Commands that look at images and train on them: demo, check, train, pretrain, resume."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from smallvit.commands import STARTED
from smallvit.commands.early import refuse_data, refuse_no_run
from smallvit.commands.options import (
    JobsAsPlanned,
    Log,
    Moved,
    On,
    Quiet,
    RunFolder,
    Spec,
    Wait,
    announce,
    asked_for,
    flag,
    one_of_many,
    show_results,
    takes,
)
from smallvit.console import tell
from smallvit.errors import UsageError
from smallvit.listing.losses import in_words, pretraining_names


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the demo.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of minutes: only to see that it works.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train what auto takes, a ViT and a ResNet on 1,000 embedded digits; report how they do, and what made the difference."""
    announce(quiet)
    from smallvit.demo import demo as run_demo

    runs = run_demo(out, quick=quick, show_progress=not quiet)
    show_results(runs, out / "report.html", quiet)


@takes(
    "data data_dir download lists model img_size in_chans fit epochs budget batch_size val test train_on per_class fraction groups recipe settings "
    "device threads fast as_json quiet",
    budget=flag(str, "Time for training, e.g. 20m; sets the epochs."),
)
def check(**given: Any) -> None:
    """Look at the images before training: damage, copies, leaks, recipe and time. Status 1: something would spoil it."""
    import json

    silent = given["quiet"] or given["as_json"]
    refuse_data(given)
    announce(silent)
    from smallvit.checking.check import check as run_check
    from smallvit.checking.printout import show_report

    report = run_check(**asked_for(given), fast=given["fast"], show_progress=not silent)
    if given["as_json"]:
        typer.echo(json.dumps(report.as_dict(), indent=1))
    elif not given["quiet"]:
        show_report(report)
    if not report.ok:
        raise typer.Exit(1)


@takes(
    "data data_dir download lists model out img_size in_chans fit epochs budget batch_size lr init continued pretrain teacher drop_path mixup cutmix aux "
    "class_weights balanced val test train_on per_class fraction groups recipe settings seed seeds folds jobs on device "
    "threads precision compile grad_accum grad_checkpointing log explain print_recipe overwrite quiet",
    data=Spec(Annotated[str | None, typer.Argument(help="Folder of class folders, .csv of path,label[,split][,group], .npz, a named set (`smallvit list datasets`; default mnist5k), or hf:NAME.")]),
    init=flag(str, "Start from the model of a run, from a checkpoint that the authors released (.safetensors, .pth), or, with --seeds, each seed from its own run of a group.", metavar="RUN|FILE"),
    seeds=flag(int, "Train this many seeds of the same recipe."),
    folds=flag(int, "Train this many runs, each of which leaves out other images and is judged by them: all images train, and all are judged."),
)  # fmt: skip
def train(**given: Any) -> None:
    """Train on a folder of images; ends with a report. What is not given is chosen, printed and stored."""
    if given["continued"] is not None:
        _train_longer(given)
        return
    refuse_data(given)
    announce(given["quiet"])
    _run(given, asked_for(given))


def _train_longer(given: dict[str, Any]) -> None:
    """`train --continue RUN`: with the recipe of the run, so that most other flags are refused."""
    run, quiet = given["continued"], given["quiet"]
    refuse_no_run(run)
    announce(quiet)
    from smallvit import api
    from smallvit.recipe import parse_assignment

    own = {name: given[name] for name in ("out", "overwrite", "log", "data", "epochs", "budget")}
    unsaid = {"recipe": "default", "jobs": 1, "on": "local"}
    others = given.keys() - own.keys() - {"continued", "settings", "quiet"}
    flags = {
        name: given[name] for name in given if name in others and given[name] not in (None, False, unsaid.get(name))
    }
    settings = dict(parse_assignment(text) for text in given["settings"] or [])
    done = api.train_longer(run, settings=settings, show_progress=not quiet, started=STARTED, **own, **flags)
    show_results([done], done.path / "report.html", quiet)


@takes(
    "data data_dir download lists method model out img_size in_chans fit epochs budget batch_size lr init drop_path aux val test train_on "
    "per_class fraction groups recipe settings seed seeds jobs on device threads precision grad_accum grad_checkpointing log explain print_recipe overwrite quiet",
    data=Spec(Annotated[str | None, typer.Argument(help="As for train; images without labels will do, except for supcon: a flat folder, a .csv of path, an .npz of x.")]),
    method=flag(str, f"{in_words(pretraining_names())}."),
    init=flag(str, "Start from the model of a run, from a checkpoint file, or, with --seeds, each seed from its own run of a group.", metavar="RUN|FILE"),
    recipe=flag(str, "A recipe's name or a .toml file; default pretrain-METHOD."),
    seeds=flag(int, "Pretrain this many seeds of the same recipe."),
)  # fmt: skip
def pretrain(**given: Any) -> None:
    """Learn features from the images alone; then `smallvit train DATA --init RUN`. Without labels, except supcon."""
    refuse_data(given, labelled=False)
    announce(given["quiet"])
    from smallvit import api

    recipe = api.pretraining_recipe(given["method"], given["recipe"])
    runs = _run(given, asked_for(given) | {"recipe": recipe})
    if runs and not given["quiet"] and not one_of_many():
        seeds = given["seeds"]
        start = f"--seeds {seeds} --init {runs[0].path.parent}" if seeds else f"--init {runs[0].path}"
        data = "DATA" if given["data"] is None else shlex.quote(given["data"])
        tell(f"next: smallvit train {data} {start}")


def resume(
    folder: RunFolder, jobs: JobsAsPlanned = None, on: On = "local", data: Moved = None, log: Log = None, wait: Wait = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Go on after a crash, a kill or Ctrl-C: the result is the one it would have had anyway."""
    refuse_no_run(folder)
    announce(quiet)
    from smallvit import api
    from smallvit.commands.study import show_study
    from smallvit.studies.record import is_study, open_study

    runs = api.resume(folder, jobs=jobs, on=on, log=log, show_progress=not quiet, data=data, wait=wait)
    if is_study(folder):
        show_study(open_study(folder), quiet)
    else:
        show_results(runs, folder / "report.html", quiet)


def _run(given: dict[str, Any], asked: dict[str, Any]) -> list[Any]:
    """One run or several seeds of it, for train and pretrain."""
    from smallvit import api

    if given["print_recipe"]:
        tell(api.describe_recipe(api.make_recipe(**asked)))
        return []
    quiet = given["quiet"]
    if given["explain"]:
        from smallvit.report.plan_table import show_explanation

        seeds = {"seeds": given["seeds"], "jobs": given["jobs"]}
        found = api.explain(**asked, **seeds, show_progress=not quiet, started=STARTED)
        show_explanation(found.plan, found.expected)
        return []
    common = {"out": given["out"], "overwrite": given["overwrite"], "show_progress": not quiet, "started": STARTED}
    if given["seeds"] is not None:
        if given["log"]:
            raise UsageError("--log works with a single run; leave out --seeds")
        runs = api.train_seeds(**asked, **common, seeds=given["seeds"], jobs=given["jobs"], on=given["on"])
        show_results(runs, runs[0].path.parent / "report.html", quiet)
        return runs
    done: Any = api.train(**asked, **common, log=given["log"], jobs=given["jobs"], on=given["on"])  # a run, or folds
    runs = api.open_runs(done.path)
    show_results(runs, done.path / "report.html", quiet)
    return runs
