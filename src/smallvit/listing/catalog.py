"""What `smallvit list` and `smallvit recipe show` print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from smallvit.errors import UsageError, nearest
from smallvit.listing.counted import stored_rows
from smallvit.listing.losses import declared_losses
from smallvit.recipe import Recipe, build_recipe, flat, validate
from smallvit.recipes import preset_names, read_preset

Rows = Iterator[tuple[str, ...]]


def models(pattern: str = "") -> Rows:
    """Name, parameters, MACs, native size, where it comes from; with a pattern, the names of timm models."""
    if pattern:
        yield from ((name,) for name in _timm_names(pattern))
        return
    yield "name", "parameters", "MACs", "size", "source", "what it is"
    yield from map(tuple, stored_rows())
    yield "...", "", "", "", "", "every timm model: `smallvit list models 'convnext*'`"


def _timm_names(pattern: str) -> list[str]:
    import timm

    import smallvit.models  # noqa: F401

    names: list[str] = timm.list_models(pattern)
    if not names:
        raise UsageError(f"no timm model matches {pattern!r}: {nearest(pattern, timm.list_models())}")
    return names


def recipes(pattern: str = "") -> Rows:
    for name in preset_names():
        yield name, read_preset(name).get("about", {}).get("description", "")


def methods(pattern: str = "") -> Rows:
    for kind, words in (("Objective", "objective"), ("Auxiliary", "auxiliary loss")):
        yield from ((loss.name, f"{words}: {loss.line}") for loss in declared_losses() if loss.kind == kind)


def datasets(pattern: str = "") -> Rows:
    from smallvit.data.named.declared import named_sets

    for name, chosen in named_sets().items():
        yield name, chosen.line
    yield (
        "FOLDER",
        "a folder of class folders, or the same below train/, val/ and test/; --lists for lists of it; what save_to_disk wrote",
    )
    yield "FILE.csv", "path,label[,split][,group], with paths relative to the file"
    yield "FILE.npz", "x_train, y_train, x_test, y_test (uint8 images, whole-number labels)"
    yield "hf:NAME", "a data set of Hugging Face (extra smallvit[hf]); hf:NAME@CONFIGURATION, hf:NAME#LABEL-COLUMN"
    yield "no labels", "for pretrain: a folder of images, a FILE.csv of path alone, a FILE.npz of x or images alone"


CATALOG: dict[str, Callable[[str], Rows]] = {
    "models": models,
    "recipes": recipes,
    "methods": methods,
    "datasets": datasets,
}


def recipe_page(name: str) -> str:
    """About the recipe, then every key with its value; what the preset itself sets is marked. It is a recipe file."""
    from smallvit.objectives.base import all_options

    about = read_preset(name).get("about", {})
    recipe = build_recipe(name)
    own = flat(recipe.model_dump(exclude_unset=True))
    notes = dict.fromkeys(own, "set by this recipe")
    whole = validate(recipe.model_dump() | all_options(recipe))
    return "\n".join([*(f"# {key}: {value}" for key, value in about.items()), toml_page(whole, notes)])


def toml_page(recipe: Recipe, notes: Mapping[str, str]) -> str:
    """A recipe as TOML with dotted keys, as `--set` and `--recipe` take them, with a note beside some."""
    rows = flat(recipe.model_dump()).items()
    return "\n".join(toml_line(key, value) + (f"  # {notes[key]}" if key in notes else "") for key, value in rows)


def toml_line(key: str, value: Any) -> str:
    if value is None:
        return f"# {key} is not set"
    # JSON is TOML here: no null, and no \\u escapes, of which TOML takes other ones.
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"


def describe_recipe(asked: Recipe) -> str:
    """The resolved recipe as TOML, every key with its value and, where it was chosen, the reason."""
    from smallvit.planning.plan import make_plan

    plan = make_plan(asked, with_floors=False)
    given = {key for key, value in flat(asked.model_dump(exclude_unset=True)).items() if value != "auto"}
    notes = {choice.key: choice.why if choice.key in given else f"auto: {choice.why}" for choice in plan.choices}
    return toml_page(plan.recipe, notes)
