"""The thresholds of unknown that lie in a run folder, as reject.json: by the error that each allows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from smallvit.errors import RunError, UsageError
from smallvit.runs.folder import write_json
from smallvit.runs.stored import read_json

FILE = "reject.json"
MOST_ERROR = 0.5
Share = Annotated[float, Field(ge=0, le=1)]


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Basis(Shape):
    part: str
    n: int = Field(ge=1)


class JudgedOn(Basis):
    on_own_images: bool
    curve: list[tuple[Share, Share]] = Field(min_length=1, max_length=1000)  # share answered, share of these right


class Reached(Shape):
    n: int
    answered: int
    coverage: Share
    coverage_interval: tuple[Share, Share]
    accuracy: Share | None
    interval: tuple[Share, Share]


class Level(Shape):
    """A threshold, or why there is none."""

    error: float = Field(gt=0, le=MOST_ERROR)
    confidence: Share
    calibrated_on: Basis
    cautions: list[str]
    judged_on: JudgedOn
    why_not: str = ""
    doubt: Share | None = None  # None: all are answered
    answered: int = 0
    wrong: int = 0
    thresholds_tried: int = 0
    reached: Reached | None = None

    @model_validator(mode="after")
    def _whole(self) -> Level:
        if "why_not" not in self.model_fields_set and (self.reached is None or "doubt" not in self.model_fields_set):
            raise ValueError("it has no threshold, and does not say why")
        return self


class Levels(Shape):
    levels: dict[str, Level]


def check_error(error: float) -> None:
    if not 0 < error <= MOST_ERROR:
        raise UsageError(
            f"--reject {error}: give the share of wrong answers that may be left, above 0 and up to {MOST_ERROR}"
        )


def store_rejection(path: Path, record: dict[str, Any]) -> None:
    levels = read_rejections(path)
    write_json(path / FILE, {"levels": {**levels, f"{record['error']:g}": record}})


def read_rejections(path: Path) -> dict[str, dict[str, Any]]:
    """By error; empty where none was asked for."""
    if not (path / FILE).is_file():
        return {}
    try:
        levels = Levels.model_validate(read_json(path / FILE, "levels")).levels
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(
            f"{path / FILE} is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']}): remove it, and calibrate anew with "
            f"`smallvit evaluate {path} --reject 0.05`"
        ) from None
    return {f"{level.error:g}": level.model_dump(exclude_unset=True) for level in levels.values()}


def stored_threshold(path: Path, error: float) -> float:
    """The doubt from which this run says unknown."""
    check_error(error)
    if not path.is_dir():
        raise UsageError(f"--reject {error:g}: {path} is a model file and has no threshold: give its run folder")
    record = read_rejections(path).get(f"{error:g}")
    if record is None:
        raise UsageError(
            f"--reject {error:g}: {path} has no threshold for it yet: calibrate it with `smallvit evaluate {path} --reject {error:g}`; "
            "that takes a run that was trained with a validation part (--val 0.15), or with --folds"
        )
    if "why_not" in record:
        raise UsageError(f"--reject {error:g}: {path} has no threshold for it: {record['why_not']}")
    return math.inf if record["doubt"] is None else float(record["doubt"])
