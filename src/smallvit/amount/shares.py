"""Nested shares of the training images as a group of runs, all judged on the same test images.

Every run has as many steps, and so as much time. Equal epochs would give the small shares few steps: part of what looks
like a gain of images would be one of training, and the law would promise too much. With equal steps each share gets what
the time allows it, as it would if these were all images there are.

P shares, S seeds, N test images.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smallvit.amount.law import Measured, Told, sentence, tell
from smallvit.console import duration, say
from smallvit.errors import RunError, UsageError
from smallvit.objectives.base import objectives
from smallvit.planning.cut_short import most_trials
from smallvit.planning.elsewhere import at_share
from smallvit.planning.length import Clock
from smallvit.planning.plan import Plan, make_plan, show_plan
from smallvit.planning.stages import stages_of
from smallvit.recipe import Recipe
from smallvit.runs.atomic import write_text
from smallvit.runs.axes import Place
from smallvit.runs.folder import RunFolder
from smallvit.runs.group import Planned, run_members
from smallvit.runs.members import final_members
from smallvit.runs.paired import read_said
from smallvit.runs.stored import read_json

FILE = "curve.json"
USUAL_BUDGET, USUAL_SHARES, USUAL_SEEDS = "20m", (0.125, 0.25, 0.5, 1.0), 2


class Point(NamedTuple):
    """What was reached with a share of the images."""

    share: float
    images: int
    accuracies: list[float]  # of each seed

    @property
    def accuracy(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)


class Curve(NamedTuple):
    """What shares of the images reached, and what that says of more of them."""

    folder: Path
    points: list[Point]  # the smallest share first
    told: Told
    sentence: str

    @property
    def gain(self) -> float:
        """What twice the images would bring, as a share of the test images."""
        return self.told.gain

    @property
    def interval(self) -> tuple[float, float]:
        return self.told.interval

    def as_dict(self) -> dict[str, Any]:
        law = self.told.law
        c = float(law.c_D[0])
        return {
            "points": [point._asdict() | {"accuracy": point.accuracy} for point in self.points],
            "law": {"a": float(law.a_D[0]), "b": float(law.b_D[0] * law.most**c), "c": c},
            "images": self.points[-1].images,
            "accuracy": 1 - self.told.error,
            "gain_of_twice_the_images": self.gain,
            "interval": self.interval,
            "telling": self.told.telling,
            "sentence": self.sentence,
        }


def is_curve(folder: Path) -> bool:
    return (folder / FILE).is_file()


def checked(shares: Sequence[float] | None, seeds: int) -> tuple[list[float], int]:
    kept = sorted(set(USUAL_SHARES if shares is None else shares))
    if bad := [share for share in kept if not 0 < share <= 1]:
        raise UsageError(f"--shares {bad[0]:g}: each is a share of the training images, above 0 and up to 1")
    if len(kept) < 2 or kept[-1] != 1:
        raise UsageError(
            f"--shares {','.join(f'{share:g}' for share in kept)}: give 1 and smaller ones, such as 0.25,0.5,1"
        )
    if seeds < 1:
        raise UsageError(f"--seeds {seeds}: give at least 1")
    bound = most_trials(None)
    return (kept[-bound:], 1) if bound else (kept, seeds)


def check(asked: Recipe) -> None:
    if not objectives()[asked.objective.name].classifies:
        raise UsageError(
            f"curve judges by accuracy, and {asked.objective.name} has no classifier: take a supervised recipe"
        )
    if asked.data.folds:
        raise UsageError("curve judges all shares on the same test images: leave out data.folds")
    if stages := [stage.name for stage in stages_of(asked)]:
        raise UsageError(f"curve trains its runs in one stage: leave out {', '.join(stages)}")


def plan_shares(asked: Recipe, shares: Sequence[float], seeds: int, jobs: int, started: float | None) -> list[Planned]:
    """All runs, by one decision on model, batch and steps, which is made for all images."""
    turns = math.ceil(len(shares) * seeds / max(1, jobs))
    if asked.budget:
        say(
            f"{len(shares) * seeds} runs share the budget of {duration(asked.budget)}: {duration(asked.budget / turns)} for each"
        )
    whole = make_plan(asked, Clock(started, turns))
    if not len(whole.split.test):
        raise UsageError("curve needs a test part, on which all shares are judged: give --test 0.2")
    show_plan(whole, turns)
    planned = [_at(whole, share, asked.seed + number) for share in shares for number in range(seeds)]
    told = ", ".join(f"{len(run.plan.split.train):,}" for run in planned[::seeds])
    say(
        f"training on {told} images, {seeds} {'seeds' if seeds > 1 else 'seed'} each, {planned[0].plan.recipe.steps:,} steps in every run"
    )
    return planned


def _at(whole: Plan, share: float, seed: int) -> Planned:
    plan = at_share(whole, share, seed)
    plan = plan._replace(
        recipe=plan.recipe.model_copy(update={"seed": seed}), floors=whole.floors if share == 1 else {}
    )
    return Planned(Place(arm=f"share-{share:g}", seed=seed), plan)


def run_shares(folder: Path, jobs: int, on: str) -> Curve:
    """From wherever the folder, which is held, stands."""
    run_members(folder, jobs, on)
    found = read_curve(folder)
    asked = read_json(folder / FILE, "shares", "seeds")
    write_text(folder / FILE, json.dumps(asked | {"found": found.as_dict()}, indent=1) + "\n")
    return found


def read_curve(folder: Path) -> Curve:
    """From the finished runs of the folder."""
    shares = [float(share) for share in read_json(folder / FILE, "shares", "seeds")["shares"]]
    said = [[read_said(run) for run in runs_of(folder, share)] for share in shares]
    if len({len(of_share) for of_share in said}) > 1:
        raise RunError(f"{folder}: its shares have not the same number of seeds")
    rows = said[0][0].rows_N
    if any(len(one.rows_N) != len(rows) or (one.rows_N != rows).any() for of_share in said for one in of_share):
        raise RunError(f"{folder}: its runs were not judged on the same images")
    wrong_PSN = np.array([[one.probabilities_NK.argmax(1) != one.labels_N for one in of_share] for of_share in said])
    images = [_trained_on(runs_of(folder, share)[0]) for share in shares]
    labels_N = said[0][0].labels_N
    chance = float(np.bincount(labels_N).max() / len(labels_N))
    measured = Measured(np.array(images, dtype=np.float64), wrong_PSN, said[0][0].groups_N, chance)
    points = [
        Point(share, n, (1 - error_S).tolist())
        for share, n, error_S in zip(shares, images, measured.errors, strict=True)
    ]
    told = tell(measured)
    return Curve(folder, points, told, sentence(told, images[-1], len(shares), wrong_PSN.shape[1]))


def runs_of(folder: Path, share: float) -> list[RunFolder]:
    """The finished runs of one share, by seed."""
    members = [member for member in final_members(folder) if member.place.arm == f"share-{share:g}"]
    runs = [RunFolder(member.path) for member in sorted(members, key=lambda member: member.place.seed or 0)]
    if not runs or not all(run.finished for run in runs):
        raise RunError(f"{folder} is not finished: go on with `smallvit resume {folder}`")
    return runs


def _trained_on(run: RunFolder) -> int:
    return int(run.read("split.json", "parts")["parts"]["train"]["n"])


def next_folder(source: str) -> Path:
    number = 1
    while (path := Path("runs") / f"{Path(source).stem}-curve-{number}").exists():
        number += 1
    return path
