"""Commands that look at images and train on them: demo, check, train, pretrain, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smallvit.commands import STARTED
from smallvit.commands.options import (
    Aux,
    BatchSize,
    Budget,
    Device,
    DropPath,
    Epochs,
    Fit,
    Fraction,
    ImgSize,
    InChans,
    Jobs,
    Log,
    Method,
    Model,
    Out,
    Overwrite,
    PerClass,
    Precision,
    PrintRecipe,
    Quiet,
    Rate,
    RecipeName,
    RunFolder,
    Seed,
    Settings,
    Test,
    Threads,
    TrainOn,
    Val,
    announce,
    show_results,
)
from smallvit.errors import UsageError


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the demo.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of minutes: only to see that it works.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train a ViT, a DHVT and a ResNet of 0.2 M parameters on 1,000 embedded digits, and report how they do and why."""
    announce(quiet)
    from smallvit.demo import demo as run_demo

    runs = run_demo(out, quick=quick, show_progress=not quiet)
    show_results(runs, out / "report.html", quiet)


def check(
    data: Annotated[str, typer.Argument(help="As for train: a folder, .csv or .npz file, or a named set.")],
    model: Model = None,
    img_size: ImgSize = None,
    in_chans: InChans = None,
    fit: Fit = None,
    epochs: Epochs = None,
    budget: Annotated[str | None, typer.Option(help="Time for training, e.g. 20m; sets the epochs.")] = None,
    batch_size: BatchSize = None,
    val: Val = None,
    test: Test = None,
    train_on: TrainOn = None,
    per_class: PerClass = None,
    fraction: Fraction = None,
    recipe: RecipeName = "default",
    settings: Settings = None,
    device: Device = None,
    threads: Threads = None,
    fast: Annotated[bool, typer.Option("--fast", help="Leave out near copies and the time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Look at the images before training: damage, copies, leaks, recipe and time. Status 1: something would spoil it."""
    given = dict(locals())
    import json

    announce(quiet or as_json)
    from smallvit.checking.check import check as run_check
    from smallvit.checking.printout import show_report

    found = run_check(**_asked(given), fast=fast, show_progress=not (quiet or as_json))
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
    elif not quiet:
        show_report(found)
    if not found.ok:
        raise typer.Exit(1)


def train(
    data: Annotated[str | None, typer.Argument(help="Folder of class folders, .csv of path,label[,split], .npz, or mnist5k (default) | digits.")] = None,
    model: Model = None,
    out: Out = None,
    img_size: ImgSize = None,
    in_chans: InChans = None,
    fit: Fit = None,
    epochs: Epochs = None,
    budget: Budget = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    init: Annotated[str | None, typer.Option(metavar="RUN|FILE", help="Start from the model of a run, from a checkpoint that the authors released (.safetensors, .pth), or, with --seeds, each seed from its own run of a group.")] = None,
    drop_path: DropPath = None,
    mixup: Annotated[float | None, typer.Option(help="Alpha of Mixup; 0 is off.")] = None,
    cutmix: Annotated[float | None, typer.Option(help="Alpha of CutMix; 0 is off.")] = None,
    aux: Aux = None,
    class_weights: Annotated[str | None, typer.Option(metavar="auto|none|FILE", help="Weight of each class in the loss: auto is the inverse of its frequency; FILE is a CSV with class,weight or a JSON object.")] = None,
    balanced: Annotated[bool, typer.Option("--balanced", help="Draw every class equally often in each epoch.")] = False,
    val: Val = None,
    test: Test = None,
    train_on: TrainOn = None,
    per_class: PerClass = None,
    fraction: Fraction = None,
    recipe: RecipeName = "default",
    settings: Settings = None,
    seed: Seed = None,
    seeds: Annotated[int | None, typer.Option(help="Train this many seeds of the same recipe.")] = None,
    jobs: Jobs = 1,
    device: Device = None,
    threads: Threads = None,
    precision: Precision = None,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    log: Log = None,
    print_recipe: PrintRecipe = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Train on a folder of images; ends with a report. What is not given is chosen, printed and stored."""
    given = dict(locals())
    announce(quiet)
    _run(_asked(given), {"out": out, "overwrite": overwrite}, seeds, jobs, log, print_recipe, quiet)


def pretrain(
    data: Annotated[str | None, typer.Argument(help="As for train; images without labels will do, except for supcon: a flat folder, a .csv of path, an .npz of x.")] = None,
    method: Method = None,
    model: Model = None,
    out: Out = None,
    img_size: ImgSize = None,
    in_chans: InChans = None,
    fit: Fit = None,
    epochs: Epochs = None,
    budget: Budget = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    init: Annotated[str | None, typer.Option(metavar="RUN|FILE", help="Start from the model of a run, from a checkpoint file, or, with --seeds, each seed from its own run of a group.")] = None,
    drop_path: DropPath = None,
    aux: Aux = None,
    val: Val = None,
    test: Test = None,
    train_on: TrainOn = None,
    per_class: PerClass = None,
    fraction: Fraction = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's name or a .toml file; default pretrain-METHOD.")] = None,
    settings: Settings = None,
    seed: Seed = None,
    seeds: Annotated[int | None, typer.Option(help="Pretrain this many seeds of the same recipe.")] = None,
    jobs: Jobs = 1,
    device: Device = None,
    threads: Threads = None,
    precision: Precision = None,
    log: Log = None,
    print_recipe: PrintRecipe = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Learn features from the images alone; then `smallvit train DATA --init RUN`. Without labels, except supcon."""
    given = dict(locals())
    announce(quiet)
    from smallvit import api

    chosen = _asked(given) | {"recipe": api.pretraining_recipe(method, recipe)}
    runs = _run(chosen, {"out": out, "overwrite": overwrite}, seeds, jobs, log, print_recipe, quiet)
    if runs and not quiet:
        start = f"--seeds {seeds} --init {runs[0].path.parent}" if seeds else f"--init {runs[0].path}"
        typer.echo(f"next: smallvit train DATA {start}")


def resume(folder: RunFolder, jobs: Jobs = 1, log: Log = None, quiet: Quiet = False) -> None:
    """Go on after a crash, a kill or Ctrl-C: the result is the one it would have had anyway."""
    announce(quiet)
    from smallvit import api

    runs = api.resume(folder, jobs=jobs, log=log, show_progress=not quiet)
    show_results(runs, folder / "report.html", quiet)


def _run(
    chosen: dict[str, Any], where: dict[str, Any], seeds: int | None, jobs: int, log: str | None, print_recipe: bool,
    quiet: bool,
) -> list[Any]:  # fmt: skip
    """One run or several seeds of it, for train and pretrain."""
    from smallvit import api

    if print_recipe:
        typer.echo(api.describe_recipe(api.make_recipe(**chosen)))
        return []
    common: dict[str, Any] = {**where, "show_progress": not quiet, "started": STARTED}
    if seeds is not None:
        if log:
            raise UsageError("--log works with a single run; leave out --seeds")
        runs = api.train_seeds(**chosen, **common, seeds=seeds, jobs=jobs)
        show_results(runs, runs[0].path.parent / "report.html", quiet)
        return runs
    run = api.train(**chosen, **common, log=log)
    show_results([run], run.path / "report.html", quiet)
    return [run]


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a command as api.py takes them: recipe, settings, and the everyday flags among them."""
    from smallvit.api import FLAGS
    from smallvit.recipe import parse_assignment

    # A switch that is off was not given: what the recipe says holds.
    flags = {name: None if given[name] is False else given[name] for name in (*FLAGS, "aux") if name in given}
    settings = dict(parse_assignment(text) for text in given["settings"] or [])
    return {"recipe": given["recipe"], "settings": settings, **flags}
