"""What the files of a run folder hold, a shape for each of them.

Keys that are not named here are kept as they are: they are of a later version, or nobody computes with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from smallvit.recipe import flat, validate

Share = Annotated[float, Field(ge=-1e-9, le=1 + 1e-9)]  # a mean of shares is rounded
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Place = Annotated[int, Field(ge=0, lt=1 << 53)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]


class Stored(BaseModel):
    """A number is no text here, and nothing becomes what it is not."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)


# ---- the plan ----------------------------------------------------------------------------------------


class StoredChoice(Stored):
    model_config = ConfigDict(extra="forbid", strict=True)
    key: str
    value: Any
    why: str


class StoredLine(Stored):
    model_config = ConfigDict(extra="forbid", strict=True)
    what: str
    value: str
    why: str
    brings: str
    switch: str


class StoredExplanation(Stored):
    chosen: list[StoredLine]
    left_out: list[StoredLine]


class RecipeFile(Stored):
    resolved: dict[str, Any]
    choices: list[StoredChoice]
    command: str = ""
    asked: dict[str, Any] = {}
    explained: StoredExplanation | None = None
    cautions: list[str] = []
    cores: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _a_recipe(self) -> RecipeFile:
        recipe = validate(self.resolved)
        named = {"model.name"} if "name" in recipe.model.model_fields_set else set()
        if missing := {"seed", "data", "model.name"} - recipe.model_fields_set - named:
            raise ValueError(f"the recipe that it resolved to has no {min(missing)}")
        # What a loss leaves to itself (the size of small crops, weights of classes) it settles when it is built.
        own = ("objective.", "aux.")
        if left := [key for key, value in flat(self.resolved).items() if value == "auto" and not key.startswith(own)]:
            raise ValueError(f"{left[0]} is still auto in the recipe that it resolved to")
        return self


class EnvironmentFile(Stored):
    __pydantic_extra__: dict[str, str | int]  # names and versions
    threads: Annotated[int, Field(ge=1)] = 1


class StoredPart(Stored):
    n: Count
    how: str
    counts: list[Count]
    rows: list[Place]

    @model_validator(mode="after")
    def _counted(self) -> StoredPart:
        if self.n != len(self.rows) or len({*self.rows}) != self.n:
            raise ValueError(f"it should hold {self.n} different rows")
        return self


class StoredSkipped(Stored):
    file: str
    why: str


class SplitFile(Stored):
    class_names: list[str]
    parts: dict[Literal["train", "val", "test", "left_out"], StoredPart]
    source: str = ""
    skipped: list[StoredSkipped] = []

    @model_validator(mode="after")
    def _apart(self) -> SplitFile:
        taken: dict[int, str] = {}
        for name, part in self.parts.items():
            if (again := next((row for row in part.rows if row in taken), None)) is not None:
                raise ValueError(f"row {again} is in the part {taken[again]} and in the part {name}")
            taken |= dict.fromkeys(part.rows, name)
            if part.n and len(part.counts) != len(self.class_names):
                raise ValueError(f"the part {name} should count the images of {len(self.class_names)} classes")
        return self


class DecisionFile(Stored):
    at: Annotated[int, Field(gt=0, lt=1 << 53)]
    total: Annotated[int, Field(gt=0, lt=1 << 53)]

    @model_validator(mode="after")
    def _later(self) -> DecisionFile:
        if self.at >= self.total:
            raise ValueError(f"a run of {self.total} steps decides nothing after step {self.at}")
        return self


# ---- what else lies there ----------------------------------------------------------------------------


class StoredDiagnosis(Stored):
    model_config = ConfigDict(extra="forbid", strict=True)
    against: str
    images: Annotated[int, Field(ge=1)]


class GroupFile(Stored):
    members: list[Annotated[str, Field(min_length=1, max_length=255)]]
    axes: dict[str, dict[str, Any]] | None = None  # None: of version 0.1
    title: str = ""
    command: str = ""
    difference: str = ""
    diagnosis: StoredDiagnosis | None = None
    jobs: Annotated[int, Field(ge=1, le=100_000)] | None = None

    @model_validator(mode="after")
    def _inside(self) -> GroupFile:
        for name in self.members:
            if name != Path(name).name or name == ".." or "\0" in name:
                raise ValueError(f"{name!r} is no folder of this group")
        if self.axes is not None and (lost := [name for name in self.members if name not in self.axes]):
            raise ValueError(f"axes does not say where {lost[0]!r} stands")
        return self


class FindingFile(Stored):  # of a diagnosis; `version` is asked for first
    verdict: str
    weight: float
    numbers: dict[str, Annotated[float, Field(allow_inf_nan=True)]]
    labels: dict[str, list[str]]


class Progress(Stored):
    """How far a run is: what is looked at while it writes."""

    step: Annotated[int, Field(ge=1, lt=1 << 53)]
    steps: Annotated[int, Field(ge=1, lt=1 << 53)] | None = None
    val_accuracy: Share | None = None


class Record(Progress):
    """A line of metrics.jsonl. What else was measured stands in it, too."""

    kind: str
    epoch: Count = 0
    seconds: Seconds
    parts: dict[str, Annotated[float, Field(allow_inf_nan=True)]] = {}
    spread: float | None = None
    effective_rank: float | None = None


class MovedFile(Stored):
    source: str


class CurveFile(Stored):
    shares: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=2)]
    seeds: Annotated[int, Field(ge=1)]
