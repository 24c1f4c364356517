"""Where a new run goes when nobody says so, and what it was started by."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from smallvit.objectives.base import objectives
from smallvit.recipe import Recipe


def default_folder(recipe: Recipe) -> Path:
    """runs/NAME-MODEL-1, or the next free number; runs/NAME-METHOD-MODEL-1 for pretraining."""
    method = [] if objectives()[recipe.objective.name].classifies else [recipe.objective.name]
    stem = "-".join([Path(recipe.data.source).stem, *method, recipe.model.name])
    number = 1
    while (path := Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return path


def command_line() -> str:
    """What was typed, where it was the command line."""
    program = Path(sys.argv[0])
    ours = "smallvit" in (program.stem, program.parent.name if program.stem == "__main__" else "")
    return shlex.join(["smallvit", *sys.argv[1:]]) if ours else "smallvit.train(...)"
