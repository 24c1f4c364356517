"""A run with a budget counts its steps anew, once, when its speed is known.

Planning measures a few steps and sets their number. After a part of them, which the recipe names, or when that part of the
time is gone, whichever is first, the time that is left is divided by what a step really took. The decision is written and synced before the first step that depends on it, so a
run that is killed afterwards ends with the weights it would have had.
"""

from __future__ import annotations

import json
from pathlib import Path

from smallvit.console import say, several
from smallvit.runs.atomic import write_text
from smallvit.runs.stored import read_json
from smallvit.training.loop import Decision, Training

FILE = "decision.json"
MOST_CHANGE = 8.0  # times the planned steps that are left, either way: a pause of the machine is no speed


def read_decision(folder: Path) -> Decision | None:
    path = folder / FILE
    if not path.is_file():
        return None
    stored = read_json(path)
    return Decision(stored["at"], stored["total"])


def is_due(t: Training, spent: float) -> bool:
    replan = t.recipe.replan
    return replan is not None and t.decision is None and (t.done == replan.at or spent >= replan.by)


def decide(t: Training, spent: float, trained: float) -> Decision:
    """How many steps fit. `spent` seconds of the budget are gone, `trained` of them in the steps so far."""
    replan = t.recipe.replan
    assert replan is not None
    planned = t.planned - t.done
    step = trained / t.done
    # What slowed the steps down will slow down judging and the report, too.
    end = replan.end * min(max(step / replan.step, 1 / MOST_CHANGE), MOST_CHANGE)
    fitting = (replan.seconds - end - spent) / (replan.dearer * step)
    left = round(min(max(fitting, planned / MOST_CHANGE, 1), planned * MOST_CHANGE))
    return Decision(t.done, t.done + left)


def write_decision(folder: Path, decision: Decision, planned: int) -> None:
    at, total = decision
    write_text(folder / FILE, json.dumps({"at": at, "total": total, "planned": planned}) + "\n")
    if total != planned:
        say(f"after {several(at, 'step')} the speed is known: {total:,} fit, {planned:,} were planned")
