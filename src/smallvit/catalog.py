"""What `smallvit list` and `smallvit recipe show` print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from smallvit.errors import UsageError, nearest
from smallvit.recipe import Recipe, build_recipe, flat, preset_names, read_preset

Rows = Iterator[tuple[str, ...]]


def models(pattern: str = "") -> Rows:
    """Name, parameters, MACs, native size, where it comes from. The models are built to be counted."""
    import timm

    import smallvit.models  # noqa: F401
    from smallvit.models.aliases import ALIASES, architecture

    if pattern:
        found = timm.list_models(pattern)
        if not found:
            raise UsageError(f"no timm model matches {pattern!r}: {nearest(pattern, timm.list_models())}")
        yield from ((name,) for name in found)
        return
    yield "name", "parameters", "MACs", "size", "source", "what it is"
    for name in ours():
        yield name, *measured(name), first_line(timm.model_entrypoint(name))
    for name in sorted(set(ALIASES) - set(ours())):
        means = dict.fromkeys(architecture(name, size).timm_name for size in (32, 224))
        yield name, "", "", "any", "short name", f"{' or '.join(means)}, as suits the image size"
    others = f"every timm model: {len(timm.list_models()):,} names, `smallvit list models 'convnext*'`"
    yield "...", "", "", "", "", others


def measured(name: str) -> tuple[str, str, str, str]:
    """Parameters and multiply-adds (attention included) of one image at the native size, with 10 classes."""
    try:
        count, operations, config = _counted(name, "meta")  # nothing is drawn and nothing computed
    except (RuntimeError, NotImplementedError):  # T2T asks what its device can do, and this one can do nothing
        count, operations, config = _counted(name, "cpu")
    side, paper = config["input_size"][-1], config.get("paper_name") or "smallvit"
    return f"{count:,}", f"{operations / 2e6:,.0f} M", f"{side} px", paper


def _counted(name: str, device: str) -> tuple[int, int, Any]:
    import timm
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device(device), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = timm.create_model(name, num_classes=10).eval()
        model(torch.zeros(1, *model.default_cfg["input_size"]))
    count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return count, counter.get_total_flops(), model.default_cfg


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
    yield "FILE.csv", "path,label[,split], with paths relative to the file"
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
    """About the recipe, then every key with its value; what the preset itself sets is marked. It is a recipe file."""
    about = read_preset(name).get("about", {})
    recipe = build_recipe(name)
    own = flat(recipe.model_dump(exclude_unset=True))
    notes = dict.fromkeys(own, "set by this recipe")
    return "\n".join([*(f"# {key}: {value}" for key, value in about.items()), toml_page(recipe, notes)])


def toml_page(recipe: Recipe, notes: Mapping[str, str]) -> str:
    """A recipe as TOML with dotted keys, as `--set` and `--recipe` take them, with a note beside some."""
    rows = flat(recipe.model_dump()).items()
    return "\n".join(toml_line(key, value) + (f"  # {notes[key]}" if key in notes else "") for key, value in rows)


def toml_line(key: str, value: Any) -> str:
    if value is None:
        return f"# {key} is not set"
    # JSON is TOML here: no null, and no \\u escapes, of which TOML takes other ones.
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"
