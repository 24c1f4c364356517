"""What several commands share: options, the line before slow imports, the table at the end."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from smallvit.console import tell
from smallvit.listing.losses import auxiliary_names, in_words, pretraining_names

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run; default runs/DATA-MODEL-N.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="How many of several runs at once; they share the cores.")]
JobsAsPlanned = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="How many of several runs at once; default as many as they were planned for."),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="local|ray|ray://HOST:PORT",
        help="Where several runs are trained: processes here, or a Ray cluster that sees the folder.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for a process that is at work on it; else it is refused.")]
Log = Annotated[str | None, typer.Option("--log", help="Also log to tensorboard, wandb, or tensorboard,wandb.")]
OwnThreads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="CPU threads; default as the run had.")
]
OwnDevice = Annotated[str, typer.Option("--device", help="auto (as the run had, else cpu), cpu, cuda, mps.")]
Moved = Annotated[
    str | None, typer.Option("--data", metavar="NEW", help="Where the images of the run are now, if they were moved.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
RunOrGroup = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a group of seeds or folds.")]


class Spec(NamedTuple):
    """An option: its type with what typer is told of it, and its value where it is not given."""

    type: Any
    default: Any = None


def flag(kind: Any, help: str, **more: Any) -> Spec:
    """`--name VALUE`, where None says that it was not given."""
    return Spec(Annotated[kind | None, typer.Option(help=help, **more)])


def switch(name: str, help: str) -> Spec:
    return Spec(Annotated[bool, typer.Option(name, help=help)], False)


# What check, train and pretrain take. A command names those it has; one with words of its own brings its own Spec.
OPTIONS = {
    "data": Spec(Annotated[str, typer.Argument(help="As for train: a folder, .csv or .npz file, a named set, or hf:NAME.")], inspect.Parameter.empty),
    "data_dir": flag(str, "Folder that named sets lie in; default $SMALLVIT_DATA, else ./data.", metavar="DIR"),
    "download": switch("--download", "Fetch a named set that is missing, check its digest, and unpack it into --data-dir."),
    "lists": flag(str, "Lists of images below the folder DATA, a path and a label a line: train.txt,val.txt,test.txt; train=FILE says which.", metavar="FILES"),
    "model": flag(str, "A timm model or a short name (see `smallvit list models`)."),
    "out": Spec(Out),
    "img_size": flag(int, "Side of the training images in pixels."),
    "in_chans": flag(int, "Channels; 1 and 3 become each other."),
    "fit": flag(str, "How images become square: crop, squash or pad."),
    "epochs": flag(int, "Passes over the training images."),
    "budget": flag(str, "Time for the whole command, e.g. 20m; sets the epochs."),
    "batch_size": flag(int, "Images in one step."),
    "grad_accum": flag(int, "Pieces that the model takes a batch in, one after the other, where memory is short. The step is that of the whole batch."),
    "grad_checkpointing": switch("--grad-checkpointing", "Less memory: compute the inside of the model's blocks again in the backward pass."),
    "lr": flag(float, "Peak learning rate."),
    "drop_path": flag(float, "Rate of stochastic depth; 0 is off."),
    "mixup": flag(float, "Alpha of Mixup; 0 is off."),
    "cutmix": flag(float, "Alpha of CutMix; 0 is off."),
    "pretrain": flag(str, f"First learn from the training images without their labels, in the same command, then train from that: {in_words(['auto', *pretraining_names()])}.", metavar="METHOD"),
    "teacher": flag(str, "Also learn from the answers of a finished run, or of a model that is trained first in the same command; auto chooses it. Its options: --set aux.teacher.weight=0.5.", metavar="auto|RUN|MODEL"),
    "aux": flag(list[str], f"Auxiliary loss beside the objective: {in_words(auxiliary_names())}. Its options: --set aux.drloc.weight=0.1.", metavar="NAME"),
    "continued": Spec(Annotated[Path | None, typer.Option("--continue", metavar="RUN", help="Train a finished run longer, as a new run: --epochs N more, or --budget. Its recipe, images and split stay.")]),
    "class_weights": flag(str, "Weight of each class in the loss: auto is the inverse of its frequency; FILE is a CSV with class,weight or a JSON object.", metavar="auto|none|FILE"),
    "balanced": switch("--balanced", "Draw every class equally often in each epoch."),
    "val": flag(str, "Validation: none, a share such as 0.15, or a part's name."),
    "test": flag(str, "Test: none, a share such as 0.2, or a part's name."),
    "train_on": flag(str, "train, or train+val."),
    "per_class": flag(int, "Train on this many images of each class."),
    "fraction": flag(float, "Train on this share of each class."),
    "groups": flag(str, "Images that must stay together, as of one patient: a regular expression over their paths; its bracket, or all that it finds, names the group.", metavar="REGEX"),
    "recipe": Spec(Annotated[str, typer.Option(help="A recipe's name or a .toml file.")], "default"),
    "settings": Spec(Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key, e.g. optimizer.weight_decay=0.1. May be repeated.")]),
    "seed": flag(int, "Of weights, order and augmentation; the split has its own."),
    "jobs": Spec(Jobs, 1),
    "on": Spec(On, "local"),
    "device": flag(str, "auto, cpu, cuda, mps."),
    "threads": flag(int, "CPU threads."),
    "precision": flag(str, "auto, fp32 or bf16."),
    "compile": switch("--compile", "Use torch.compile, whose code is kept between runs; --set compile=auto: where a try shows that it pays."),
    "log": Spec(Log),
    "print_recipe": switch("--print-recipe", "Show the resolved recipe and stop."),
    "explain": switch("--explain", "Show the whole plan, what each choice is expected to bring and how to change it, and stop."),
    "overwrite": switch("--overwrite", "Replace a run that is already in --out."),
    "fast": switch("--fast", "Leave out near copies and the time."),
    "as_json": Spec(AsJson, False),
    "quiet": Spec(Quiet, False),
}  # fmt: skip

Command = Callable[..., None]


def takes(names: str, **own: Spec) -> Callable[[Command], Command]:
    """Gives a command that is written as f(**given) the named options, in the order of its help.

    typer reads them from the signature, which says them once for all commands that share them.
    """
    specs = {name: own.get(name) or OPTIONS[name] for name in names.split()}

    def with_signature(command: Command) -> Command:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, keyword, default=spec.default, annotation=spec.type) for name, spec in specs.items()
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return with_signature


def one_of_many() -> bool:
    """Whether torchrun has started this process beside the one that plans, writes and speaks."""
    return os.environ.get("RANK", "0") != "0" and os.environ.get("WORLD_SIZE", "1") != "1"


def announce(quiet: bool = False) -> None:
    """Importing torch and timm takes seconds: say so where someone is watching."""
    if not quiet and not one_of_many() and sys.stderr.isatty():
        print("loading torch ...", file=sys.stderr)


def show_results(runs: list[Any], page: Path, quiet: bool) -> None:
    if quiet or one_of_many():
        return
    from smallvit.report.tables import results_table
    from smallvit.runs.difference import DIFFERENCE, stored_difference
    from smallvit.runs.staged import tell_stages

    results_table(runs)
    for run in runs:
        if told := tell_stages(run):
            tell(told if len(runs) == 1 else f"{run.path.name}: {told}")
    if said := stored_difference(runs):
        tell(f"{DIFFERENCE}: {said}")
    tell(f"report: {page}")


def asked_for(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a command as api.py takes them: recipe, settings, and the everyday flags among them."""
    from smallvit.recipe import FLAGS, parse_assignment

    # A switch that is off was not given: what the recipe says holds.
    flags = {name: None if given[name] is False else given[name] for name in (*FLAGS, "aux") if name in given}
    settings = dict(parse_assignment(text) for text in given["settings"] or [])
    return {"recipe": given["recipe"], "settings": settings, **flags}
