"""The folder of a search: what was asked for, and the trials, each a run of a group with trial.json beside its recipe.

All that the search knows is read from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smallvit.errors import RunError
from smallvit.recipe import Recipe, flat, validate
from smallvit.runs.atomic import write_text
from smallvit.runs.folder import RunFolder
from smallvit.runs.following import Follower
from smallvit.tuning.search import Trial
from smallvit.tuning.space import Space, make_space

Kind = TypeVar("Kind", bound=BaseModel)
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
    jobs: int = Field(ge=1)
    threads: int = Field(ge=1)  # of each trial


class Stored(BaseModel):
    """What a trial's folder says beside its run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    values: dict[str, Any]
    settings: dict[str, Any]
    ended_early: bool = False
    problem: str = ""
    seconds: float = Field(default=0.0, ge=0)


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

    def trial(self, number: int) -> Path:
        return self.path / f"trial-{number:03d}"

    @property
    def spent(self) -> float:
        """Seconds of the budget that earlier processes used."""
        try:
            return float(json.loads((self.path / "spent.json").read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
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
            found.append(read_trial(self.trial(len(found)), len(found)))
        return found


def is_tuning(folder: Path) -> bool:
    return (folder / FILE).is_file()


def write_asked(folder: Path, asked: Asked) -> Tuning:
    write_text(folder / FILE, json.dumps(asked.model_dump(), indent=1) + "\n")
    return Tuning(folder, asked, make_space(asked.space, asked.parameters))


def open_tuning(folder: Path) -> Tuning:
    asked = _read(folder / FILE, Asked)
    return Tuning(folder, asked, make_space(asked.space, asked.parameters))


def write_trial(folder: Path, trial: Stored) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / TRIAL, json.dumps(trial.model_dump(), indent=1) + "\n")


def stored_trial(folder: Path) -> Stored:
    return _read(folder / TRIAL, Stored)


def update_trial(folder: Path, changes: Mapping[str, Any]) -> None:
    write_trial(folder, stored_trial(folder).model_copy(update=dict(changes)))


def read_trial(folder: Path, number: int) -> Trial:
    stored = stored_trial(folder)
    follower = Follower(folder)
    follower.look()
    trial = Trial(number, stored.values, course=tuple(follower.course), seconds=stored.seconds)
    if stored.problem:
        return trial._replace(state="failed", problem=stored.problem)
    if (folder / "results.json").is_file():
        results = RunFolder(folder).results
        try:
            return trial._replace(state="done", accuracy=float(results["parts"]["val"]["accuracy"]))
        except (KeyError, TypeError, ValueError):
            raise RunError(f"{folder / 'results.json'} is damaged: it has no accuracy on validation images") from None
    return trial._replace(state="ended early") if stored.ended_early else trial


def _read(file: Path, kind: type[Kind]) -> Kind:
    try:
        return kind.model_validate_json(file.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {file}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(f"{file} is damaged: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
