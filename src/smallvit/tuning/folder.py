"""The folder of a search: what was asked for, and the trials, each a run of a group with trial.json beside its recipe.

All that the search knows is read from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from smallvit.errors import RunError, UsageError
from smallvit.recipe import Recipe, flat, validate
from smallvit.runs.atomic import write_text
from smallvit.runs.axes import Place
from smallvit.runs.folder import RunFolder
from smallvit.runs.following import Follower
from smallvit.runs.stored import read_as
from smallvit.tuning.search import Trial
from smallvit.tuning.space import Space, make_space

FILE, TRIAL, FINAL = "tune.json", "trial.json", "final"


class Asked(BaseModel):
    """What a search was asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    command: str
    recipe: dict[str, Any]  # as it was asked for: the default of the search
    space: str
    parameters: dict[str, dict[str, Any]]
    trials: int | None = Field(ge=1)  # None: as many as there is time for
    budget: float | None = Field(gt=0)
    folds: int | None = Field(default=None, ge=2)  # that judge a trial; None: validation images do
    jobs: int = Field(ge=1)
    threads: int | None = Field(ge=1)  # of each trial; None: what was measured to be fastest for the first


class Stored(BaseModel):
    """What a trial's folder says beside its run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    values: dict[str, Any]
    settings: dict[str, Any]
    ended_early: bool = False
    problem: str = ""
    seconds: float = Field(default=0.0, ge=0)


class Spent(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    seconds: float = Field(ge=0)


class Tuning(NamedTuple):
    path: Path
    asked: Asked
    space: Space

    @property
    def recipe(self) -> Recipe:
        return validate(self.asked.recipe, origin=str(self.path / FILE))

    @property
    def final(self) -> Path:
        return self.path / FINAL

    def places(self, number: int) -> list[Place]:
        """Of the runs that are one trial: one, or one for each fold."""
        name = f"trial-{number:03d}"
        return (
            [Place(arm=name, fold=fold) for fold in range(self.asked.folds)] if self.asked.folds else [Place(arm=name)]
        )

    def runs(self, number: int) -> list[Path]:
        return [self.path / place.folder for place in self.places(number)]

    def trial(self, number: int) -> Path:
        """The first of its runs, whose folder says what the trial is."""
        return self.runs(number)[0]

    @property
    def spent(self) -> float:
        """Seconds of the budget that earlier processes used."""
        try:
            return read_as(self.path / "spent.json", Spent).seconds
        except RunError:
            return 0.0

    def spend(self, seconds: float) -> None:
        write_text(self.path / "spent.json", json.dumps({"seconds": round(seconds, 1)}) + "\n")

    @property
    def basis(self) -> dict[str, Any]:
        """The default as it was resolved for the first trial."""
        return flat(RunFolder(self.trial(0)).recipe.model_dump())

    def trials(self) -> list[Trial]:
        """All that were planned, in order."""
        found: list[Trial] = []
        while (self.trial(len(found)) / TRIAL).is_file():
            found.append(self.read(len(found)))
        return found

    def read(self, number: int) -> Trial:
        """A trial as its folders have it."""
        stored, runs = stored_trial(self.trial(number)), self.runs(number)
        done = [accuracy_of(path) for path in runs if (path / "results.json").is_file()]
        trial = Trial(number, stored.values, course=_course(runs, done), seconds=stored.seconds)
        if stored.problem:
            return trial._replace(state="failed", problem=stored.problem)
        if len(done) == len(runs):
            return trial._replace(state="done", accuracy=sum(done) / len(done))
        return trial._replace(state="ended early") if stored.ended_early else trial


def is_tuning(folder: Path) -> bool:
    return (folder / FILE).is_file()


def write_asked(folder: Path, asked: Asked) -> Tuning:
    write_text(folder / FILE, json.dumps(asked.model_dump(), indent=1) + "\n")
    return Tuning(folder, asked, space_around(asked))


def space_around(asked: Asked) -> Space:
    """The space, in which the default stands where its recipe has it: one with `vit_nano` is no `auto`."""
    space, given = make_space(asked.space, asked.parameters), flat(asked.recipe)
    own = {
        name: parameter.model_copy(update={"default": given[name]})
        for name, parameter in space.parameters.items()
        if parameter.default is not None and given.get(name, "auto") != "auto"
    }
    return space._replace(parameters=space.parameters | own)


def open_tuning(folder: Path) -> Tuning:
    asked = read_as(folder / FILE, Asked)
    try:
        return Tuning(folder, asked, space_around(asked))
    except UsageError as error:
        raise RunError(f"{folder / FILE} is damaged: {error}") from None


def write_trial(folder: Path, trial: Stored) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / TRIAL, json.dumps(trial.model_dump(), indent=1) + "\n")


def stored_trial(folder: Path) -> Stored:
    return read_as(folder / TRIAL, Stored)


def update_trial(folder: Path, changes: Mapping[str, Any]) -> None:
    write_trial(folder, stored_trial(folder).model_copy(update=dict(changes)))


def trial_number(path: Path) -> int:
    return int(path.name.split("-")[1])


def accuracy_of(path: Path) -> float:
    """Of a finished run, on what judges a trial: validation images, or those that its fold left out."""
    results = RunFolder(path).results
    if results["evaluated_part"] is None:
        raise RunError(f"{path / 'results.json'} is damaged: it has no accuracy to judge the trial by")
    return float(results["parts"][results["evaluated_part"]]["accuracy"])


def _course(runs: list[Path], done: list[float]) -> tuple[tuple[float, float], ...]:
    """Share of a trial that was done, accuracy then: at the looks of its run, or as its folds end."""
    if len(runs) > 1:
        return tuple((count / len(runs), sum(done[:count]) / count) for count in range(1, len(done) + 1))
    follower = Follower(runs[0])
    follower.look()
    return tuple(follower.course)
