"""`smallvit demo`: what `train` takes by itself beside a ViT and a ResNet, on 1,000 real digits; why each does what it
does, what made the difference, and a report of all that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from smallvit.api import Run, command_line, make_recipe, run_group
from smallvit.console import quiet, say
from smallvit.planning.plan import make_plan, show_plan
from smallvit.runs.axes import Place
from smallvit.runs.folder import check_free
from smallvit.runs.group import Diagnosis, Planned, claimed_group


class Entrant(NamedTuple):
    recipe: str
    model: str


# All but the last are diagnosed against the last.
ENTRANTS = (Entrant("default", "auto"), Entrant("demo", "vit_nano"), Entrant("demo", "resnet_nano"))
EPOCHS = 50  # all in two to three minutes on two cores


def demo(
    out: str | Path = "runs/demo", *, quick: bool = False, overwrite: bool = True, show_progress: bool = True
) -> list[Run]:
    """Train the models beside each other, one thread each, and write one report. `quick` is a smoke test of seconds."""
    epochs, per_class = (2, 20) if quick else (EPOCHS, 100)
    with quiet(not show_progress):
        check_free(out, overwrite)
        arms: list[Planned] = []
        for recipe, model in ENTRANTS:
            # One precision for all: left to a try of a few steps, it would differ between models, and from day to day.
            asked = make_recipe(
                recipe, data="mnist5k", model=model, epochs=epochs, per_class=per_class, threads=1, precision="fp32"
            )
            plan = make_plan(asked, with_floors=not arms)
            # The floors depend on the data alone: compute them once.
            plan = plan._replace(floors=arms[0].plan.floors) if arms else plan
            arms.append(Planned(Place(arm=plan.recipe.model.name), plan))
        names = [str(arm.place.arm) for arm in arms]
        say(f"{', '.join(names)} on {len(arms[0].plan.split.train):,} real digits, one process each")
        show_plan(arms[0].plan)
        diagnosis = Diagnosis(against=names[-1], images=32 if quick else 256)
        jobs, title = min(len(arms), os.cpu_count() or 1), "smallvit demo"
        with claimed_group(out, arms, command_line(), overwrite, title, diagnosis, jobs=jobs) as folder:
            return run_group(folder, jobs)
