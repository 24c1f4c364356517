"""`smallvit demo`: a ViT, a DHVT and a ResNet of one size side by side on 1,000 real digits, why the first two do what
they do, and a report of all that.
"""

from __future__ import annotations

import os
from pathlib import Path

from smallvit.api import command_line, make_recipe, run_group
from smallvit.console import quiet, say
from smallvit.many import Diagnosis, Member, claimed_group
from smallvit.plan import make_plan, show_plan
from smallvit.run import Run, check_free

MODELS = ("vit_nano", "dhvt_nano", "resnet_nano")  # the others are diagnosed against the last


def demo(
    out: str | Path = "runs/demo", *, quick: bool = False, overwrite: bool = True, show_progress: bool = True
) -> list[Run]:
    """Train the models beside each other, one thread each, and write one report. `quick` is a smoke test of seconds."""
    epochs, per_class = (2, 20) if quick else (50, 100)
    with quiet(not show_progress):
        check_free(out, overwrite)
        members: list[Member] = []
        for model in MODELS:
            asked = make_recipe("demo", data="mnist5k", model=model, epochs=epochs, per_class=per_class, threads=1)
            plan = make_plan(asked, with_floors=not members)
            # The floors depend on the data alone: compute them once.
            members.append(Member(model, plan._replace(floors=members[0].plan.floors) if members else plan))
        say(f"{', '.join(MODELS)} on {len(members[0].plan.split.train):,} real digits, one process each")
        show_plan(members[0].plan)
        diagnosis = Diagnosis(against=MODELS[-1], images=32 if quick else 256)
        group = claimed_group(out, members, command_line(), overwrite, title="smallvit demo", diagnosis=diagnosis)
        with group as folder:
            return run_group(folder, jobs=min(len(MODELS), os.cpu_count() or 1))
