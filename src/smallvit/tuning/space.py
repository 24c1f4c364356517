"""What a search may change: parameters, each with the values it may take and the settings that these mean.

A space is a TOML file with a table for each parameter: `choices`, or `low` and `high` (with `log` where it spans
magnitudes), or `times`: multiples of what the default takes. Where the name of a parameter is no key of the recipe,
`means` says what each choice sets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from smallvit.errors import UsageError, nearest
from smallvit.planning.explanation import brief
from smallvit.recipe import Recipe, flat

Value = bool | int | float | str
MOST_BYTES = 100_000


class Parameter(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    choices: tuple[Value, ...] = ()
    times: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False
    default: Value | None = None  # None: what the default recipe takes
    means: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> Parameter:
        ranged = self.low is not None or self.high is not None
        if bool(self.choices) + bool(self.times) + ranged != 1:
            raise ValueError("give one of choices = [...], times = [...], or low and high")
        if ranged and (self.low is None or self.high is None or not self.low < self.high):
            raise ValueError("low must be there, high too, and low below high")
        if self.log and (self.low is None or self.low <= 0):
            raise ValueError("log = true needs a low above 0")
        if self.means and (missing := [choice for choice in self.choices if choice not in self.means]):
            raise ValueError(f"means says nothing of the choice {missing[0]!r}")
        if self.means and self.default not in self.choices:
            raise ValueError("means needs a default that is one of its choices: which of them the default recipe is")
        return self


class Space(NamedTuple):
    name: str
    parameters: dict[str, Parameter]

    def touching(self, keys: Collection[str]) -> list[str]:
        """The parameters that would set one of these keys."""
        return [
            name
            for name, parameter in self.parameters.items()
            if not {name, *(key for choice in parameter.means.values() for key in flat(choice))}.isdisjoint(keys)
        ]

    def settings(self, values: Mapping[str, Any], basis: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the recipe that values mean; `basis` is the default as it was resolved, by dotted key."""
        found: dict[str, Any] = {}
        for name, value in values.items():
            parameter = self.parameters[name]
            if parameter.means:
                found |= flat(parameter.means[value])
            else:
                found[name] = _multiple(basis[name], value) if parameter.times else value
        return found

    def defaults(self, basis: Mapping[str, Any]) -> dict[str, Any]:
        """Where the default recipe stands in the space."""
        unknown = [name for name, one in self.parameters.items() if one.default is None and name not in basis]
        if unknown:
            raise UsageError(
                f"the space {self.name}: what the default recipe has for {unknown[0]} is not known: give it a default"
            )
        found = {
            name: 1.0 if parameter.times else basis[name] if parameter.default is None else parameter.default
            for name, parameter in self.parameters.items()
        }
        for name, parameter in self.parameters.items():
            if parameter.low is not None and not _has_place(found[name], parameter.log):
                number = "a number above 0" if parameter.log else "a number"
                raise UsageError(
                    f"the space {self.name}: the default recipe has {name} = {brief(found[name])}, which has no place in a range"
                    f"{' with log = true' * parameter.log}: give the parameter a default, {number}, or choices instead of low and high"
                )
        return found


def _has_place(value: Any, log: bool) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and (value > 0 or not log)


def _multiple(value: float, times: float) -> float:
    """A whole number stays one; of those above 16 (pixels) a multiple of 8, which patches and strides divide."""
    if not isinstance(value, int):
        return value * times
    grain = 8 if value > 16 else 1
    return max(grain, round(value * times / grain) * grain) if times != 1 else value


def space_names() -> list[str]:
    folder = resources.files("smallvit") / "tuning" / "spaces"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_space(name: str | Path) -> Space:
    """A space of ours by name, or a TOML file."""
    text = _text(name)
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the space {name} is not valid TOML: {error}") from None
    return make_space(str(name), {key: table for key, table in tree.items() if key != "about"})


def make_space(name: str, tables: Mapping[str, Any]) -> Space:
    if not tables:
        raise UsageError(f"the space {name} has no parameter")
    parameters = {}
    for key, table in tables.items():
        try:
            parameters[key] = Parameter.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            what = first["msg"].removeprefix("Value error, ")
            raise UsageError(f"the space {name}, parameter {key!r}{f', {place}' if place else ''}: {what}") from None
        if not parameters[key].means and not _is_key(key):
            known = [*flat(Recipe().model_dump()), "objective.label_smoothing", "objective.mixup", "objective.cutmix"]
            raise UsageError(
                f"the space {name}: {key!r} is no key of the recipe and has no `means`: {nearest(key, known)}"
            )
    return Space(name, parameters)


def _is_key(key: str) -> bool:
    """Sections that take any key (options of losses, arguments of models) say themselves what is wrong."""
    return key in flat(Recipe().model_dump()) or key.startswith(("objective.", "aux.", "model.kwargs."))


def _text(name: str | Path) -> str:
    if str(name).endswith(".toml"):
        try:
            with Path(name).open("rb") as file:
                return file.read(MOST_BYTES).decode("utf-8")
        except OSError as error:
            raise UsageError(f"cannot read the space {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"the space {name} is not valid TOML: it is not UTF-8 text") from None
    if str(name) not in space_names():
        raise UsageError(f"--space {name}: {nearest(str(name), space_names())}, or give a .toml file")
    return (resources.files("smallvit") / "tuning" / "spaces" / f"{name}.toml").read_text(encoding="utf-8")
