"""`smallvit curve`: trains on shares of the images, fits a power law, and leaves a page with what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smallvit.amount.law import LEAST_SHARES
from smallvit.amount.page import write_page
from smallvit.amount.shares import (
    FILE,
    USUAL_BUDGET,
    USUAL_SEEDS,
    Curve,
    check,
    checked,
    next_folder,
    plan_shares,
    read_curve,
    run_shares,
)
from smallvit.console import quiet, say, warn
from smallvit.data.kept import Data, hold
from smallvit.planning.flags import given_keys, make_recipe
from smallvit.runs.atomic import write_text
from smallvit.runs.folder import check_free
from smallvit.runs.group import claimed_group
from smallvit.runs.ownership import sole_owner
from smallvit.runs.places import LOCAL, as_one_of, check_place


def curve(
    data: Data = None, *, budget: str | float | None = None, shares: Sequence[float] | None = None, seeds: int = USUAL_SEEDS,
    out: str | Path | None = None, recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, jobs: int = 1,
    overwrite: bool = False, show_progress: bool = True, started: float | None = None, on: str = LOCAL,
    command: str = "smallvit.curve(...)", **flags: Any,
) -> Curve:  # fmt: skip
    """How many more images would help: runs on `shares` of the training images, each with `seeds`, within `budget`.

    `data` and `flags` are as for `train`; `epochs` instead of a budget are those of all images. The same seed of two shares
    trains on nested images, another seed on others.
    """
    check_place(on)
    shares, seeds = checked(shares, seeds)
    with quiet(not show_progress):
        if len(shares) < LEAST_SHARES:
            warn(f"{len(shares)} shares cannot tell what more images would bring: it takes {LEAST_SHARES}")
        held = hold(data, out)
        if budget is None and "epochs" not in given_keys(settings, flags):
            budget = USUAL_BUDGET
        asked = make_recipe(recipe, settings, data=held.source, budget=budget, **flags)
        check(asked)
        if out is not None:
            check_free(out, overwrite)
        held.write()
        with as_one_of(min(jobs, len(shares) * seeds), on):
            planned = plan_shares(asked, shares, seeds, jobs, started)
        title = f"{planned[-1].plan.recipe.model.name}, {len(shares)} shares of {Path(asked.data.source).name}"
        with claimed_group(
            out or next_folder(asked.data.source), planned, command, overwrite, title, jobs=jobs
        ) as folder:
            write_text(folder / FILE, json.dumps({"shares": shares, "seeds": seeds}) + "\n")
            return _finished(folder, jobs, on)


def resume_curve(folder: Path, jobs: int = 1, on: str = LOCAL) -> Curve:
    with sole_owner(folder):
        return _finished(folder, jobs, on)


def report_curve(folder: Path, out: Path) -> Path:
    """The page of one that has ended, anew."""
    return write_page(read_curve(folder), out)


def _finished(folder: Path, jobs: int, on: str) -> Curve:
    """From wherever the folder, which is held, stands."""
    found = run_shares(folder, jobs, on)
    write_page(found, folder / "report.html")
    say(found.sentence)
    return found
