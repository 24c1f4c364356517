"""The command that says how many more images would help: curve."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from smallvit.commands import STARTED
from smallvit.commands.early import refuse_data
from smallvit.commands.options import Spec, announce, asked_for, flag, takes
from smallvit.console import tell
from smallvit.errors import UsageError


@takes(
    "data data_dir download lists budget shares seeds model out img_size in_chans fit epochs batch_size lr val test per_class groups recipe settings seed "
    "jobs on device threads precision overwrite as_json quiet",
    budget=flag(str, "Time for all runs together, e.g. 20m (the default where no --epochs are given)."),
    shares=flag(str, "Of the training images, with commas; default 0.125,0.25,0.5,1."),
    seeds=Spec(Annotated[int, typer.Option(min=1, help="Runs of each share, each on other images of it.")], 2),
    epochs=flag(int, "Passes over all images; a share has as many steps. Instead of a budget."),
)
def curve(**given: Any) -> None:
    """How many more images would help: trains on shares of them, and says what twice as many would bring."""
    import json

    silent = given["quiet"] or given["as_json"]
    shares = _numbers(given["shares"])
    refuse_data(given)
    announce(silent)
    from smallvit import api
    from smallvit.report.tables import shares_table

    own = {name: given[name] for name in ("out", "seeds", "jobs", "on", "overwrite")}
    found = api.curve(
        **asked_for(given), **own, shares=shares, show_progress=not silent, started=STARTED, command=api.command_line()
    )
    if given["as_json"]:
        typer.echo(json.dumps(found.as_dict() | {"folder": str(found.folder)}, indent=1))
    elif not given["quiet"]:
        shares_table([(point.share, point.images, point.accuracies) for point in found.points])
        tell(f"report: {found.folder / 'report.html'}")  # its sentence was told when the last run had ended


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(share) for share in text.split(",")]
    except ValueError:
        raise UsageError(f"--shares {text}: give numbers with commas, such as 0.25,0.5,1") from None
