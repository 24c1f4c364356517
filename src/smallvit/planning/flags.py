"""From what was asked, by flags or in Python, to a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smallvit.errors import UsageError, nearest
from smallvit.recipe import FLAGS, Recipe, build_recipe, flat, with_settings
from smallvit.recipes import read_preset

SHARE_OF_WARMUP = 0.2  # at most, of a run that is not as long as its recipe has it


def make_recipe(recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, **flags: Any) -> Recipe:
    """A recipe from a preset, everyday flags (None: not given) and dotted settings. `aux` names auxiliary losses."""
    from smallvit.objectives.base import all_options

    asked, spelled = read_flags(recipe, settings, **flags)
    all_options(asked, spelled)  # refuses what cannot be
    _check_pretraining(asked)
    return asked


def read_flags(
    recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, **flags: Any
) -> tuple[Recipe, dict[str, str]]:
    """The same without a look at the options of losses, which needs torch; and which keys were given by which flag."""
    names = flags.pop("aux", None) or []
    preset = read_preset(recipe)
    losses = preset.get("aux", {})  # a name alone keeps the options that the preset gives it
    overrides: dict[str, Any] = {
        f"aux.{name}": losses.get(name, {}) for name in ([names] if isinstance(names, str) else names)
    }
    for name, value in flags.items():
        if name == "seeds":
            raise UsageError(
                "seeds: several runs are smallvit.train_seeds(data, seeds=3, ...); the seed of one is seed"
            )
        if name not in FLAGS:
            raise UsageError(
                f"unknown argument {name!r}: {nearest(name, [*FLAGS, 'aux'])}; other keys go through settings={{...}}"
            )
        if name in ("val", "test") and not isinstance(value, str | int | float | None):
            raise UsageError(f"{name}: images of their own go with the others: data={{'train': ..., {name!r}: ...}}")
        if value is not None:
            overrides[FLAGS[name]] = str(value) if isinstance(value, Path) else value
    # What is set by key is named by key, also where a flag was given beside it.
    spelled = {
        FLAGS[name]: f"--{name.replace('_', '-')}"
        for name, value in flags.items()
        if value is not None and FLAGS[name] not in (settings or {})
    }
    overrides |= settings or {}
    asked = build_recipe(recipe, overrides, spelled)
    return _of_another_length(asked, preset.get("epochs", "auto"), flat(overrides)), spelled


def _of_another_length(asked: Recipe, published: int | str, given: Mapping[str, Any]) -> Recipe:
    """What a preset says for its own number of epochs, where the run has another.

    A budget that was given sets the epochs, and with them the warm-up. Where epochs were given, a warm-up that was not is cut:
    it might be the whole of a shorter run, which would end at the highest learning rate.
    """
    open_length = asked.epochs == "auto" or ("epochs" not in given and given.get("budget") is not None)
    epochs = "auto" if open_length else asked.epochs
    if epochs == published:
        return asked
    changes: dict[str, Any] = {"epochs": epochs}
    warmup = asked.schedule.warmup_epochs
    if warmup != "auto" and "schedule.warmup_epochs" not in given:
        changes["schedule.warmup_epochs"] = "auto" if epochs == "auto" else min(warmup, longest_warmup(epochs))
    return with_settings(asked, changes)


def longest_warmup(epochs: int) -> float:
    """Of so many epochs, where the recipe was made for another number of them."""
    return round(SHARE_OF_WARMUP * epochs, 2)


def given_keys(settings: Mapping[str, Any] | None, flags: Mapping[str, Any]) -> set[str]:
    """Which keys of the recipe were given, by flag or as a setting; `auto` leaves one open."""
    by_key = {FLAGS[name]: value for name, value in flags.items() if name in FLAGS} | {**(settings or {})}
    return {key for key, value in by_key.items() if value is not None and value != "auto"}


def _check_pretraining(asked: Recipe) -> None:
    method = asked.pretrain.method
    if method in ("none", "auto"):
        return
    if method not in (methods := pretraining_methods()):
        raise UsageError(f"unknown method --pretrain {method!r}: {nearest(method, ['none', 'auto', *methods])}")
    if asked.model.init:
        raise UsageError(f"--pretrain {method} and --init exclude each other: both say what the model starts from")


def pretraining_methods() -> list[str]:
    from smallvit.objectives.base import objectives

    return [name for name, kind in objectives().items() if not kind.classifies]


def pretraining_recipe(method: str | None, recipe: str | Path | None = None) -> str | Path:
    """The recipe of a method, or the given one, which must be of that method."""
    methods = pretraining_methods()
    method = method.lower() if method else None
    if method is None and recipe is None:
        raise UsageError(f"pretraining needs a method: {', '.join(methods)}")
    if method is not None and method not in methods:
        raise UsageError(f"unknown method {method!r}: {nearest(method, methods)}")
    if recipe is None:
        return f"pretrain-{method}"
    named = build_recipe(recipe).objective.name
    if named not in methods or method not in (None, named):
        raise UsageError(f"the recipe {recipe} is one for {named}, not for {method or 'pretraining'}")
    return recipe
