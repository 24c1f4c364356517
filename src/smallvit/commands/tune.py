"""The command that searches for settings: tune."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from smallvit.commands import STARTED
from smallvit.commands.early import refuse_data
from smallvit.commands.options import Spec, announce, asked_for, flag, show_results, takes
from smallvit.console import tell

SAME_IMAGES = ("data_dir", "lists", "val", "test", "per_class", "fraction")  # best.toml leaves them to the command


@takes(
    "data data_dir download lists budget trials folds space model out img_size in_chans fit epochs val test per_class fraction groups recipe settings seed "
    "jobs on device threads precision overwrite quiet",
    budget=flag(str, "Time for all trials and the final model, e.g. 2h; default 30m where no --trials are given."),
    trials=flag(int, "Stop after so many trials; the default recipe is the first."),
    folds=flag(int, "Folds that judge a trial; 1: validation images do. Default 5 under 1,000 training images.", min=1),
    space=Spec(Annotated[str, typer.Option(help="What may change: small, wide, or a .toml file.")], "small"),
    epochs=flag(int, "Of each trial and of the final model, instead of a budget."),
    jobs=flag(int, "Trials at once; default as many as there are cores.", min=1),
)
def tune(**given: Any) -> None:
    """Find the settings that suit these images: trials in a given time, best.toml, and a model trained with it."""
    refuse_data(given | {"folds": None})  # folds that judge a trial; 1 is none
    announce(given["quiet"])
    from smallvit import api
    from smallvit.tuning.page import about_gain

    own = {name: given[name] for name in ("budget", "trials", "folds", "space", "out", "jobs", "on", "overwrite")}
    flags = {name: value for name, value in asked_for(given).items() if name not in ("budget", "folds")}
    tuned = api.tune(**flags, **own, show_progress=not given["quiet"], started=STARTED, command=api.command_line())
    if not given["quiet"]:
        verdict = about_gain(tuned.gain, tuned.trials, tuned.best)
        tell(f"{verdict.word}. {verdict.text}")
    show_results([api.Run(tuned.final.path)], tuned.folder / "report.html", given["quiet"])
    if not given["quiet"]:
        same = {"--" + name.replace("_", "-"): given[name] for name in SAME_IMAGES if given[name] is not None}
        words = [given["data"], *(str(word) for pair in same.items() for word in pair), "--recipe", str(tuned.recipe)]
        tell(f"recipe: smallvit train {shlex.join(words)}")
