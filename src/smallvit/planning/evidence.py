"""The levers of the default, and what each was measured to bring: read from evidence.toml, which says what its keys mean."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from smallvit.recipe import Section


class Measured(Section):
    """Points of accuracy with a lever less without it."""

    points: float
    interval: tuple[float, float] | None = None
    seeds: Annotated[int, Field(ge=1)]
    model: str = ""  # empty: that of the lever, or of the default
    images: str
    count: Annotated[int, Field(ge=1)] | None = (
        None  # of the training images, where the nearest measurement is asked for
    )
    seconds: Annotated[float, Field(gt=0)]
    source: str
    note: str = ""

    @model_validator(mode="after")
    def _one_seed_has_no_interval(self) -> Self:
        if (self.interval is None) != (self.seeds == 1):
            raise ValueError("several seeds have an interval, and one seed has none")
        return self

    @property
    def is_gain(self) -> bool:
        """Beyond chance: its interval is above 0."""
        return self.interval is not None and self.interval[0] > 0

    def __str__(self) -> str:
        between = "" if self.interval is None else f", {self.interval[0]:+.1f} to {self.interval[1]:+.1f}"
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        where = "; ".join(filter(None, (seeds, self.model, f"{self.images}, {self.seconds:.0f} s", self.note)))
        return f"{self.points:+.1f} points{between} ({where})"


class Lever(Section):
    """One thing that can be used or left out, by the value of one setting."""

    name: str
    setting: str
    default: Any = None  # the value where a recipe does not name the setting; None: it has no meaning there
    used: tuple[Any, ...] = ()
    unused: tuple[Any, ...] = ()
    needs: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    off: str
    on: str
    why_not: str = ""
    measured: tuple[Measured, ...] = ()

    @model_validator(mode="after")
    def _used_or_unused(self) -> Self:
        if bool(self.used) == bool(self.unused):
            raise ValueError("give the values with which it is in use, or those with which it is not")
        return self

    def value(self, recipe: Mapping[str, Any]) -> Any:
        """Of its setting in a recipe with dotted keys."""
        return recipe.get(self.setting, self.default)

    def applies(self, recipe: Mapping[str, Any]) -> bool:
        """Whether there is anything to be switched."""
        return self.value(recipe) is not None and all(recipe.get(key) in values for key, values in self.needs.items())

    def in_use(self, recipe: Mapping[str, Any]) -> bool:
        value = self.value(recipe)
        return value in self.used if self.used else value not in self.unused


class Evidence(Section):
    needs: dict[str, tuple[Any, ...]]  # of every lever
    lever: tuple[Lever, ...]


class Gain(NamedTuple):
    """A lever that helped a model beyond chance, and by how much."""

    lever: Lever
    measured: Measured


def gains(setting: str, model: str) -> list[Gain]:
    """The levers of a setting that were measured to help this model, the one that gave most first."""
    found = [
        Gain(lever, measured)
        for lever in levers()
        if lever.setting == setting
        for measured in lever.measured
        if measured.model == model and measured.is_gain
    ]
    return sorted(found, key=lambda gain: -gain.measured.points)


def best_gain(setting: str, model: str, now: Any) -> Gain | None:
    """The lever that helped this model most and is not in use with the value that the setting has now."""
    return next((gain for gain in gains(setting, model) if now not in gain.lever.used), None)


def nearest(setting: str, value: Any, count: int, seconds: float) -> Measured | None:
    """What the lever that this value switches on brought on about as many images in about as much time: by the ratios of both."""
    found = [
        (abs(math.log(measured.count / count)) + abs(math.log(measured.seconds / seconds)), measured)
        for lever in levers()
        if lever.setting == setting and value in lever.used
        for measured in lever.measured
        if measured.count is not None
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None


@cache
def levers() -> tuple[Lever, ...]:
    text = (resources.files("smallvit.planning") / "evidence.toml").read_text(encoding="utf-8")
    evidence = Evidence.model_validate(tomllib.loads(text))
    return tuple(one.model_copy(update={"needs": evidence.needs | one.needs}) for one in evidence.lever)
