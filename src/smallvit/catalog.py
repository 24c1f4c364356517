"""What `smallvit list` and `smallvit recipe show` print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from smallvit.recipe import build_recipe, preset_names, read_preset

Rows = Iterator[tuple[str, str]]


def models(pattern: str = "") -> Rows:
    import timm

    import smallvit.models  # noqa: F401
    from smallvit.models.aliases import ALIASES, architecture

    if pattern:
        yield from ((name, "") for name in timm.list_models(pattern))
        return
    for name in sorted({*ALIASES, *ours()}):
        if timm.is_model(name):
            yield name, first_line(timm.model_entrypoint(name))
        else:
            yield name, f"{architecture(name, 224).timm_name}, with the patch or stem that suits the image size"
    yield "...", f"and every timm model: {len(timm.list_models()):,} names, `smallvit list models 'convnext*'`"


def ours() -> list[str]:
    """timm names that smallvit registered."""
    import timm

    return [name for name in timm.list_models() if timm.model_entrypoint(name).__module__.startswith("smallvit.")]


def recipes(pattern: str = "") -> Rows:
    for name in preset_names():
        yield name, read_preset(name).get("about", {}).get("description", "")


def methods(pattern: str = "") -> Rows:
    from smallvit.objectives import auxiliaries, objectives

    for kind, found in (("objective", objectives()), ("auxiliary loss", auxiliaries())):
        for name, cls in found.items():
            yield name, f"{kind}: {first_line(__import__(cls.__module__, fromlist=['_']))}"


def datasets(pattern: str = "") -> Rows:
    from smallvit.data.sources import describe_named

    yield from describe_named().items()
    yield "FOLDER", "a folder of class folders, or the same below train/, val/ and test/"
    yield "FILE.npz", "x_train, y_train, x_test, y_test (uint8 images, whole-number labels)"


def first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0] if documented.__doc__ else ""


CATALOG: dict[str, Callable[[str], Rows]] = {
    "models": models,
    "recipes": recipes,
    "methods": methods,
    "datasets": datasets,
}


def recipe_page(name: str) -> str:
    """About the recipe, then every key with its value; what the preset itself sets is marked."""
    about = read_preset(name).get("about", {})
    recipe = build_recipe(name)
    lines = [f"# {key}: {value}" for key, value in about.items()]
    own = flat(recipe.model_dump(exclude_unset=True))
    lines += [f"{key} = {toml_value(value)}{'  # set by this recipe' if key in own else ''}"
              for key, value in flat(recipe.model_dump()).items()]  # fmt: skip
    return "\n".join(lines)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys, as `--set` takes them."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def toml_value(value: Any) -> str:
    if value is None:
        return '"none"' if value == "none" else "# not set"
    if isinstance(value, dict):
        return "{}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)
