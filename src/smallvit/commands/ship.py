"""`smallvit export`: a finished run for use elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smallvit.commands.options import Moved, Quiet, RunOrGroup, announce
from smallvit.console import tell


def export(
    folder: RunOrGroup,
    out: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The new folder; default RUN-FORMAT beside the run.")
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="One ONNX file; needs neither torch nor smallvit.")] = False,
    torch_export: Annotated[
        bool, typer.Option("--torch-export", help="One torch.export file; needs torch alone.")
    ] = False,
    timm: Annotated[
        bool, typer.Option("--timm", help="Weights and config.json as timm.create_model loads them.")
    ] = False,
    hf: Annotated[bool, typer.Option("--hf", help="The same with a card as the Hugging Face hub reads it.")] = False,
    images: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER|FILE", help="Compare on these images.", show_default="200 of the run's own"),
    ] = None,
    data: Moved = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an export that is already there.")] = False,
    quiet: Quiet = False,
) -> None:
    """A run for use elsewhere: pixels in, probabilities out, with predict.py and a model card.

    What was written answers for real images of the run; where a probability differs by more than 1e-4 it is refused.
    """
    from smallvit.shipping.request import make_request, one_format

    format = one_format({"onnx": onnx, "torch-export": torch_export, "timm": timm, "hf": hf})
    make_request(folder, format, out, overwrite)  # what is wrong is said before torch is loaded
    announce(quiet)
    from smallvit import api

    made = api.export(folder, format, out, images=images, data=data, overwrite=overwrite, show_progress=not quiet)
    if not quiet:
        tell(str(made.path))
