"""The recipe: one frozen object that holds everything that decides a result.

A preset is a small TOML file under recipes/; flags and `--set a.b=value` lie on top of it. `auto` is a
value: `resolve.py` replaces each one and says why. Unknown keys and impossible values are usage errors
that name the choices.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from smallvit.errors import UsageError, nearest

Auto = Literal["auto"]
T = TypeVar("T")
Share = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class DataSpec(Section):
    """Which images, how they are split, and how they are fitted to one size."""

    source: str = "mnist5k"
    val: Share | str = "auto"  # auto | none | share of the training part | name of a part
    test: Share | str = "auto"
    train_on: Literal["train", "train+val"] = "train"
    per_class: Annotated[int, Field(ge=1)] | None = None
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    balanced: bool = False  # every epoch draws each class equally often; its length stays
    split_seed: int = 0
    img_size: Annotated[int, Field(ge=4, le=2048)] | Auto = "auto"
    cache_size: Annotated[int, Field(ge=4, le=4096)] | Auto = "auto"
    in_chans: Annotated[int, Field(ge=1, le=64)] | Auto = "auto"
    white: Annotated[int, Field(ge=255, le=65535)] | Auto = "auto"  # this and brighter is white, in files with 16 bits
    cache_limit_gb: Annotated[float, Field(ge=0)] = 8.0  # decoded; a larger set is read anew in every epoch
    fit: Literal["crop", "squash", "pad"] = "crop"
    mean: tuple[float, ...] | Auto = "auto"
    std: tuple[float, ...] | Auto = "auto"
    fingerprint: str = ""  # content of the decoded images; filled in when the recipe is resolved

    @field_validator("val", "test", mode="wrap")
    @classmethod
    def _share_or_part(cls, value: Any, handler: Callable[[Any], Any]) -> float | str:
        try:
            return handler(float(value) if isinstance(value, str) and re.match(r"[-+.\d]", value) else value)
        except ValueError:  # ValidationError is one
            raise ValueError("should be none, a share between 0 and 1, or the name of a part") from None

    @field_validator("std")
    @classmethod
    def _positive(cls, std: tuple[float, ...] | Auto) -> tuple[float, ...] | Auto:
        if not isinstance(std, str) and min(std, default=0) <= 0:
            raise ValueError("every number must be positive")
        return std


class ModelSpec(Section):
    """A timm name or one of our short names; `kwargs` go to the model's constructor."""

    name: str = "vit_nano"
    timm_name: str = "auto"  # what the name means for images of this size
    drop_path: Rate = 0.0
    init: str = ""  # a run folder or a checkpoint file to start from; empty: initial weights are drawn
    init_digest: str = ""  # of that file; filled in when the recipe is resolved
    kwargs: dict[str, Any] = {}


class Named(BaseModel):
    """A name plus options that the named part itself validates (objectives)."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str = "supervised"

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class AugmentSpec(Section):
    """Batched augmentation; every sample draws its own parameters. All but crop and flip are off unless asked for."""

    crop: Literal["pad", "resized", "none"] | Auto = "auto"
    padding: Annotated[float, Field(ge=0, le=0.5)] = 0.125  # share of the side, for crop = pad
    scale: tuple[Rate, Rate] = (0.35, 1.0)  # share of the area, for crop = resized
    ratio: tuple[float, float] = (0.75, 4 / 3)
    flip: Rate | Auto = "auto"
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0  # degrees either way
    shear: Annotated[float, Field(ge=0, le=60)] = 0.0  # degrees either way, along both axes
    translate: Rate = 0.0  # share of the side, along both axes
    randaugment: Annotated[int, Field(ge=0, le=4)] = 0  # operations one after the other; timm has 2
    randaugment_magnitude: Annotated[float, Field(ge=0, le=10)] = 9.0
    randaugment_std: Annotated[float, Field(ge=0)] = 0.5  # of the magnitude
    randaugment_prob: Rate = 0.5  # of each operation
    trivial: bool = False  # TrivialAugment: one operation, of any magnitude
    brightness: Rate = 0.0
    contrast: Rate = 0.0
    saturation: Rate = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    color_prob: Rate = 0.8
    gray: Rate = 0.0
    blur: Rate = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # pixels
    solarize: Rate = 0.0
    erase: Rate = 0.0
    erase_area: tuple[Rate, Rate] = (0.02, 0.33)
    repeats: Annotated[int, Field(ge=1)] = 1  # how often an epoch takes an image; it takes fewer images then

    @field_validator("scale", "ratio", "blur_sigma", "erase_area")
    @classmethod
    def _ordered(cls, pair: tuple[float, float]) -> tuple[float, float]:
        if not 0 < pair[0] <= pair[1]:
            raise ValueError("the two numbers must be positive and in rising order")
        return pair

    @field_validator("trivial")
    @classmethod
    def _one_policy(cls, trivial: bool, info: ValidationInfo) -> bool:
        if trivial and (operations := info.data.get("randaugment")):
            raise ValueError(f"excludes randaugment = {operations}: choose one of the two policies")
        return trivial


class OptimizerSpec(Section):
    name: Literal["adamw", "sgd"] = "adamw"
    lr: Annotated[float, Field(gt=0)] | Auto = "auto"
    weight_decay: Annotated[float, Field(ge=0)] | Auto = "auto"
    momentum: Rate = 0.9  # sgd only
    betas: tuple[Rate, Rate] = (0.9, 0.999)  # adamw only
    clip: Annotated[float, Field(ge=0)] = 1.0  # largest gradient norm; 0 switches clipping off


class ScheduleSpec(Section):
    """Linear warm-up, then cosine, set anew at every step."""

    warmup_epochs: Annotated[float, Field(ge=0)] | Auto = "auto"
    warmup_from: Rate = 0.001  # share of the learning rate
    end_at: Rate = 0.001


class Recipe(Section):
    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec()
    objective: Named = Named()
    aux: dict[str, dict[str, Any]] = {}
    augment: AugmentSpec = AugmentSpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    epochs: Annotated[int, Field(ge=1)] | Auto = "auto"
    batch_size: Annotated[int, Field(ge=2)] | Auto = "auto"
    eval_every: Annotated[int, Field(ge=1)] | Auto = "auto"  # epochs between two looks at the validation part
    budget: Annotated[float, Field(gt=0)] | None = None  # seconds for the whole command
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0  # decay; 0 keeps no average
    select: Literal["best", "last"] | Auto = "auto"  # which weights become the model
    seed: Annotated[int, Field(ge=0)] = 0
    threads: Annotated[int, Field(ge=1, le=1024)] | Auto = "auto"
    device: str = "auto"
    precision: Literal["fp32", "bf16"] | Auto = "auto"
    compile: bool = False
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0

    @field_validator("budget", mode="before")
    @classmethod
    def _seconds(cls, budget: Any) -> Any:
        return parse_duration(budget) if isinstance(budget, str) else budget


def known(value: T | Auto) -> T:
    """The value of a resolved recipe's field; an `auto` left in it is our own mistake."""
    assert not (isinstance(value, str) and value == "auto"), "the recipe was not resolved"
    return value


# ---- building a recipe -------------------------------------------------------------------------------


def build_recipe(preset: str | Path = "default", overrides: Mapping[str, Any] | None = None) -> Recipe:
    """The preset with dotted `overrides` on top, for example {"optimizer.lr": 1e-3}."""
    tree = {key: value for key, value in read_preset(preset).items() if key != "about"}
    for path, value in (overrides or {}).items():
        _put(tree, path, value)
    return validate(tree, origin=f"recipe {preset}")


def validate(tree: Mapping[str, Any], origin: str = "recipe") -> Recipe:
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise UsageError(f"{origin}: {explain(error, Recipe, tree)}") from None


def parse_assignment(text: str) -> tuple[str, Any]:
    """`a.b=value` from the command line; the value is TOML, and a bare word is a string."""
    path, found, raw = text.partition("=")
    if not found or not path.strip():
        raise UsageError(f"--set {text!r}: write it as section.key=value, for example optimizer.lr=0.001")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    return path.strip(), value


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `3m`, `1.5h`; a bare number is seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not match or float(match[1]) == 0:
        raise UsageError(f"{text!r} is no duration: write 90s, 3m or 1.5h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys, as `--set` takes them."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


# ---- presets -----------------------------------------------------------------------------------------


def preset_names() -> list[str]:
    folder = resources.files("smallvit") / "recipes"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def preset_text(name: str | Path) -> str:
    """The TOML of a preset by name, or of a file."""
    if str(name).endswith(".toml"):
        try:
            return Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read recipe file {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"recipe file {name} is not valid TOML: it is not UTF-8 text") from None
    if str(name) not in preset_names():
        raise UsageError(f"unknown recipe {str(name)!r}: {nearest(str(name), preset_names())} (or a .toml file)")
    return (resources.files("smallvit") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")


def read_preset(name: str | Path) -> dict[str, Any]:
    """The preset's tree, its `about` table (description, source, reproduced) included."""
    try:
        tree = tomllib.loads(preset_text(name))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"recipe file {name} is not valid TOML: {error}") from None
    if not isinstance(tree.get("about", {}), dict):
        raise UsageError(f"recipe {name}: about = {tree['about']!r}: should be a section, [about]")
    return tree


# ---- errors that name the choices --------------------------------------------------------------------


def explain(error: ValidationError, model: type[BaseModel], given: Mapping[str, Any] | None = None) -> str:
    """One line per mistake: the dotted key, the value as it was `given`, and what would be accepted."""
    lines: dict[str, list[str]] = {}
    for item in error.errors():
        names, section = _walk(model, [str(part) for part in item["loc"]])
        key = ".".join(names)
        if item["type"] == "extra_forbidden":
            lines[key] = [f"unknown key {key!r}: {_nearest_key(names, section, model)}"]
            continue
        entry = lines.setdefault(key, [f"{key} = {_value_at(given, names, item['input'])!r}"])
        if (text := _accepted(item, key, section)) not in entry:
            entry.append(text)
    return "; ".join(": ".join([mistake, *_joined(accepted)]) for mistake, *accepted in lines.values())


def _joined(accepted: list[str]) -> list[str]:
    """["should be at least 1", "should be 'auto'"] as one phrase; nothing for an unknown key."""
    return [" or ".join([accepted[0], *(text.removeprefix("should be ") for text in accepted[1:])])] if accepted else []


_PLAINER = {
    "Value error, ": "",
    "Input should be ": "should be ",
    "Field required": "should hold more numbers",
    r"Tuple should have at most (\d+) items.*": r"should hold \1 numbers",
    ", (unable to|got a) .*": "",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
    "a valid string": "a word",
    "a valid tuple": "a list of numbers",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
}


def _accepted(item: ErrorDetails, key: str, section: type[BaseModel]) -> str:
    """pydantic's message in everyday words."""
    if item["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        example = "name" if item["type"] == "dict_type" else next(iter(section.model_fields))
        return f"it is a section; set its keys, for example {key}.{example}=..."
    text = item["msg"]
    for pattern, plain in _PLAINER.items():
        text = re.sub(pattern, plain, text)
    return text


def _nearest_key(names: list[str], section: type[BaseModel], model: type[BaseModel]) -> str:
    """Close names in the same section, or the same name in another one: lr is optimizer.lr."""
    elsewhere = [names[-1]] if len(names) > 1 and names[-1] in model.model_fields else []
    elsewhere += [
        f"{outer}.{names[-1]}"
        for outer, field in model.model_fields.items()
        if (inner := _section_of(field.annotation)) and names[-1] in inner.model_fields
    ]
    prefix = "".join(f"{name}." for name in names[:-1])
    here = difflib.get_close_matches(names[-1], section.model_fields, n=3, cutoff=0.6)
    close = [*elsewhere, *(prefix + name for name in here)]
    return f"did you mean {', '.join(close)}?" if close else f"choices: {', '.join(section.model_fields)}"


def _walk(model: type[BaseModel], loc: list[str]) -> tuple[list[str], type[BaseModel]]:
    """The part of an error's location that are keys (unions add their own names), and the innermost section."""
    names: list[str] = []
    for part in loc:
        names.append(part)
        field = model.model_fields.get(part)
        inner = _section_of(field.annotation) if field else None
        if inner is None:
            break
        model = inner
    return names, model


def _section_of(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _value_at(given: Mapping[str, Any] | None, names: list[str], otherwise: Any) -> Any:
    """The whole value that was given for a key, where pydantic names only the element it stumbled over."""
    found: Any = given
    for name in names:
        if not isinstance(found, Mapping) or name not in found:
            return otherwise
        found = found[name]
    return found


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for index, name in enumerate(parents):
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {path}: {'.'.join(parents[: index + 1])} is a value, not a section")
        tree = inner
    tree[last] = value
