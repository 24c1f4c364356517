"""What several commands share: options, the line before slow imports, the table at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from smallvit.listing.losses import auxiliary_names, in_words, pretraining_names

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run; default runs/DATA-MODEL-N.")]
Budget = Annotated[str | None, typer.Option(help="Time for the whole command, e.g. 20m; sets the epochs.")]
Rate = Annotated[float | None, typer.Option(help="Peak learning rate.")]
DropPath = Annotated[float | None, typer.Option(help="Rate of stochastic depth; 0 is off.")]
Aux = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help=f"Auxiliary loss beside the objective: {in_words(auxiliary_names())}. Its options: --set aux.drloc.weight=0.1.",
    ),
]
Method = Annotated[str | None, typer.Option(help=f"{in_words(pretraining_names())}.")]
Seed = Annotated[int | None, typer.Option(help="Of weights, order and augmentation; the split has its own.")]
Precision = Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")]
PrintRecipe = Annotated[bool, typer.Option("--print-recipe", help="Show the resolved recipe and stop.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already in --out.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="How many of several runs at once (give each --threads 1).")]
Log = Annotated[str | None, typer.Option("--log", help="Also log to tensorboard, wandb, or tensorboard,wandb.")]
# What train and check share.
Model = Annotated[str | None, typer.Option(help="A timm model or a short name (see `smallvit list models`).")]
ImgSize = Annotated[int | None, typer.Option(help="Side of the training images in pixels.")]
InChans = Annotated[int | None, typer.Option(help="Channels; 1 and 3 become each other.")]
Fit = Annotated[str | None, typer.Option(help="How images become square: crop, squash or pad.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training images.")]
BatchSize = Annotated[int | None, typer.Option(help="Images in one step.")]
Val = Annotated[str | None, typer.Option(help="Validation: none, a share such as 0.15, or a part's name.")]
Test = Annotated[str | None, typer.Option(help="Test: none, a share such as 0.2, or a part's name.")]
TrainOn = Annotated[str | None, typer.Option(help="train, or train+val.")]
PerClass = Annotated[int | None, typer.Option(help="Train on this many images of each class.")]
Fraction = Annotated[float | None, typer.Option(help="Train on this share of each class.")]
RecipeName = Annotated[str, typer.Option(help="A recipe's name or a .toml file.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, mps.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key, e.g. optimizer.weight_decay=0.1. May be repeated."),
]
OwnThreads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="CPU threads; default as the run had.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def announce(quiet: bool = False) -> None:
    """Importing torch and timm takes seconds: say so where someone is watching."""
    if not quiet and sys.stderr.isatty():
        print("loading torch ...", file=sys.stderr)


def show_results(runs: list[Any], page: Path, quiet: bool) -> None:
    if quiet:
        return
    from smallvit.report.tables import results_table

    results_table(runs)
    typer.echo(f"report: {page}")
