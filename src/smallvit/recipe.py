"""The recipe: one frozen object that holds everything that decides a result.

A preset is a small TOML file under recipes/; flags and `--set a.b=value` lie on top of it. `auto` is a
value: `planning/resolve.py` replaces each one and says why. Unknown keys and impossible values are usage errors
that name the choices.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from smallvit.errors import RunError, UsageError
from smallvit.mistakes import NO_FLAGS, mistakes_in_words
from smallvit.recipes import read_preset
from smallvit.recipes.durations import parse_duration

Auto = Literal["auto"]
Precision = Literal["fp32", "bf16"]
MOST = 1 << 53  # of a whole number that a JSON file holds exactly
T = TypeVar("T")
Share = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(ge=0, le=1)]
ImageSize = Annotated[int, Field(ge=4, le=2048)]
CacheSize = Annotated[int, Field(ge=4, le=4096)]
Channels = Annotated[int, Field(ge=1, le=64)]
White = Annotated[int, Field(ge=255, le=65535)]  # this and brighter is white, in files with 16 bits
Fit = Literal["crop", "squash", "pad"]
Shift = Annotated[int, Field(ge=0, le=8)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class DataSpec(Section):
    """Which images, how they are split, and how they are fitted to one size."""

    source: str = "mnist5k"
    dir: str = ""  # where named sets lie; empty: $SMALLVIT_DATA, else ./data
    lists: str = ""  # train.txt,val.txt,test.txt: lines with a path below the folder `source`, and a label
    download: bool = False  # a named set that is missing is fetched; false once it is there
    incomplete: bool = False  # a named set is taken whatever is missing of it
    val: Share | str = "auto"  # auto | none | share of the training part | name of a part
    test: Share | str = "auto"
    train_on: Literal["train", "train+val"] = "train"
    per_class: Annotated[int, Field(ge=1, le=MOST)] | None = None
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    balanced: bool = False  # every epoch draws each class equally often; its length stays
    split_seed: Annotated[int, Field(ge=-MOST, le=MOST)] = 0
    subset_seed: Annotated[int, Field(ge=-MOST, le=MOST)] | None = None  # of the subset; None: as split_seed
    groups: str = ""  # a regular expression over paths of files; images for which it finds the same stay together
    folds: Annotated[int, Field(ge=2, le=1000)] | None = None  # so many runs, each leaves out other images
    fold: Annotated[int, Field(ge=0)] | None = None  # which of them this run is, from 0; None: a group of all
    sealed: bool = False  # the test part is held out and not looked at: validation images judge
    img_size: ImageSize | Auto = "auto"
    cache_size: CacheSize | Auto = "auto"
    in_chans: Channels | Auto = "auto"
    white: White | Auto = "auto"
    cache_limit_gb: Annotated[float, Field(ge=0)] = 8.0  # decoded; a larger set is read anew in every epoch
    fit: Fit = "crop"
    flips: bool | Auto = False  # the model answers for an image and its mirror image, and the mean counts
    shifts: Shift | Auto = 0  # pixels: and for images moved so far to either corner, in the mean, too; 0 is off
    few_looks: bool = False  # of both kinds: the image and its moved mirror images, three looks instead of six
    calibrate: bool = True  # probabilities at the temperature that suits the validation part, where there is one
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

    @field_validator("groups")
    @classmethod
    def _expression(cls, groups: str) -> str:
        try:
            brackets = re.compile(groups).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"is no regular expression: {error}") from None
        if brackets > 1:
            raise ValueError(f"has {brackets} pairs of brackets; one names the group, the others are written (?:...)")
        return groups

    @field_validator("fold")
    @classmethod
    def _one_of_the_folds(cls, fold: int | None, info: ValidationInfo) -> int | None:
        if fold is not None and fold >= (folds := info.data.get("folds") or 0):
            raise ValueError(f"there are {folds} folds (data.folds), and the first is 0")
        return fold

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
    weights: Literal["usual", "mimetic", "impulse"] = "usual"  # how those of attention are drawn
    init: str = ""  # a run folder or a checkpoint file to start from; empty: initial weights are drawn
    init_digest: str = ""  # of that file; filled in when the recipe is resolved
    kwargs: dict[str, Any] = {}


class ContinueSpec(Section):
    """A finished run that is trained longer (`--continue`), filled in from it; empty: training begins."""

    file: str = ""  # where its training stood, or, where that is gone, its model
    digest: str = ""
    steps: Annotated[int, Field(ge=0)] = 0  # that came before, in all runs up to this one


class PretrainSpec(Section):
    """What comes first in the same command: learning from the training images without their labels."""

    method: str = "none"  # none | auto | a method of `smallvit pretrain`
    share: Share = 0.5  # of a budget
    side: Annotated[float, Field(gt=0, le=1)] | Auto = "auto"  # of the images, as a share of that in training


class ObjectiveSpec(BaseModel):
    """A name plus options that the named part itself validates (objectives)."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str = "supervised"

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class AugmentSpec(Section):
    """Batched augmentation; every sample draws its own parameters. All but crop and flip are off unless asked for."""

    crop: Literal["pad", "resized", "none"] | Auto = "auto"
    padding: Annotated[float, Field(ge=0, le=0.5)] | Auto = 0.125  # share of the side, for crop = pad
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
    trivial: bool | Auto = False  # TrivialAugment: one operation, of any magnitude
    brightness: Rate | Auto = 0.0
    contrast: Rate | Auto = 0.0
    saturation: Rate | Auto = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    color_prob: Rate = 0.8
    gray: Rate = 0.0
    blur: Rate = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # pixels
    solarize: Rate = 0.0
    erase: Rate = 0.0
    erase_area: tuple[Rate, Rate] = (0.02, 0.33)
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1  # how often an epoch takes an image; it takes fewer images then

    @field_validator("scale", "ratio", "blur_sigma", "erase_area")
    @classmethod
    def _ordered(cls, pair: tuple[float, float]) -> tuple[float, float]:
        if not 0 < pair[0] <= pair[1]:
            raise ValueError("the two numbers must be positive and in rising order")
        return pair

    @field_validator("trivial")
    @classmethod
    def _one_policy(cls, trivial: bool | Auto, info: ValidationInfo) -> bool | Auto:
        if trivial is True and (operations := info.data.get("randaugment")):
            raise ValueError(f"excludes randaugment = {operations}: choose one of the two policies")
        return trivial


class OptimizerSpec(Section):
    name: Literal["adamw", "sgd", "muon"] | Auto = "adamw"
    lr: Annotated[float, Field(gt=0)] | Auto = "auto"
    matrix_lr: Annotated[float, Field(gt=0)] | Auto = "auto"  # muon only: of the hidden matrices; lr is for the rest
    rate_factor: Annotated[float, Field(gt=0, le=1000)] = 1.0  # times the rates that auto takes
    weight_decay: Annotated[float, Field(ge=0)] | Auto = "auto"
    momentum: Rate = 0.9  # sgd only
    betas: tuple[Rate, Rate] = (0.9, 0.999)  # adamw only
    clip: Annotated[float, Field(ge=0)] = 1.0  # largest gradient norm; 0 switches clipping off


class ScheduleSpec(Section):
    """Linear warm-up, then cosine, set anew at every step."""

    warmup_epochs: Annotated[float, Field(ge=0)] | Auto = "auto"
    warmup_from: Rate = 0.001  # share of the learning rate
    end_at: Rate = 0.001


class Replan(Section):
    """When a budget set the number of steps: count them anew once, after step `at`, when the speed is known.

    Where steps are so slow that `by` seconds of the budget are gone before, it is done then.
    """

    at: Annotated[int, Field(ge=1, le=MOST)]
    by: Annotated[float, Field(gt=0)]
    seconds: Annotated[float, Field(gt=0)]  # of the budget, for all that is done
    end: Annotated[float, Field(ge=0)]  # of these, for what follows the last step
    step: Annotated[float, Field(gt=0)]  # seconds of one, as planned
    dearer: Annotated[float, Field(gt=0)] = 1.0  # what a later step takes to one until then, where views change


class Recipe(Section):
    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec()
    pretrain: PretrainSpec = PretrainSpec()
    continued: ContinueSpec = ContinueSpec()
    objective: ObjectiveSpec = ObjectiveSpec()
    aux: dict[str, dict[str, Any]] = {}
    augment: AugmentSpec = AugmentSpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    epochs: Annotated[int, Field(ge=1, le=10_000_000)] | Auto = "auto"
    steps: Annotated[int, Field(ge=1, le=MOST)] | None = None  # where a budget counted them: the last epoch is cut
    replan: Replan | None = None
    batch_size: Annotated[int, Field(ge=2, le=10_000_000)] | Auto = "auto"
    grad_accum: Annotated[int, Field(ge=1, le=65536)] | Auto = "auto"  # pieces that the model takes a batch in
    grad_checkpointing: bool = False  # keep the inputs of blocks only, compute the rest again in the backward pass
    eval_every: Annotated[int, Field(ge=1, le=10_000_000)] | Auto = "auto"  # epochs between two looks at validation
    budget: Annotated[float, Field(gt=0)] | None = None  # seconds for the whole command
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0  # decay; 0 keeps no average
    select: Literal["best", "last"] | Auto = "auto"  # which weights become the model: training/selection.py
    seed: Annotated[int, Field(ge=0, le=MOST)] = 0
    threads: Annotated[int, Field(ge=1, le=1024)] | Auto = "auto"
    device: str = "auto"
    precision: Precision | Auto = "auto"
    compile: bool | Auto = False  # torch.compile; auto: where it pays (planning/compiling.py)
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0

    @field_validator("aux", mode="before")
    @classmethod
    def _without_none(cls, aux: Any) -> Any:
        """`--set aux.NAME=none` takes out what a preset has."""
        return {name: options for name, options in aux.items() if options != "none"} if isinstance(aux, dict) else aux

    @field_validator("budget", mode="before")
    @classmethod
    def _seconds(cls, budget: Any) -> Any:
        return parse_duration(budget) if isinstance(budget, str) else budget


def resolved(value: T | Auto) -> T:
    """The value of a resolved recipe's field."""
    if isinstance(value, str) and value == "auto":  # a folder whose recipe lacks it
        raise RunError("the recipe was not resolved: it has an auto where a number or a word should be")
    return value


# The flags of the command line, which are the everyday names in Python -> where they stand in the recipe.
FLAGS = {
    "data": "data.source", "data_dir": "data.dir", "lists": "data.lists", "download": "data.download", "groups": "data.groups",
    "model": "model.name", "img_size": "data.img_size", "in_chans": "data.in_chans", "fit": "data.fit", "val": "data.val",
    "test": "data.test", "train_on": "data.train_on", "per_class": "data.per_class", "fraction": "data.fraction",
    "epochs": "epochs", "batch_size": "batch_size", "lr": "optimizer.lr", "init": "model.init", "pretrain": "pretrain.method",
    "teacher": "aux.teacher.run", "drop_path": "model.drop_path", "mixup": "objective.mixup", "cutmix": "objective.cutmix",
    "budget": "budget", "seed": "seed", "threads": "threads", "device": "device", "precision": "precision", "compile": "compile",
    "grad_accum": "grad_accum", "grad_checkpointing": "grad_checkpointing", "folds": "data.folds", "class_weights": "objective.class_weights", "balanced": "data.balanced",
}  # fmt: skip


# ---- building a recipe -------------------------------------------------------------------------------


def build_recipe(
    preset: str | Path = "default", overrides: Mapping[str, Any] | None = None, flags: Mapping[str, str] = NO_FLAGS
) -> Recipe:
    """The preset with dotted `overrides` on top. `flags` says which keys a flag gave: {"optimizer.lr": "--lr"}."""
    tree = {key: value for key, value in read_preset(preset).items() if key != "about"}
    recipe = validate(tree, origin=f"recipe {preset}")  # alone: what is wrong below is none of its fault
    if not overrides:
        return recipe
    for path, value in overrides.items():
        _put(tree, path, value)
    return validate(tree, flags=flags)


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """What was asked for, with dotted settings on top."""
    tree = recipe.model_dump(exclude_unset=True)
    for path, value in settings.items():
        _put(tree, path, value)
    return validate(tree)


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for index, name in enumerate(parents):
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {path}: {'.'.join(parents[: index + 1])} is a value, not a section")
        tree = inner
    tree[last] = value


def validate(tree: Mapping[str, Any], origin: str = "", flags: Mapping[str, str] = NO_FLAGS) -> Recipe:
    """`origin` is the file to blame for a mistake; none where the user gave the values."""
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        mistakes = mistakes_in_words(error, Recipe, tree, flags=flags)
        raise UsageError(f"{origin}: {mistakes}" if origin else mistakes) from None


def parse_assignment(text: str) -> tuple[str, Any]:
    """`a.b=value` from the command line; the value is TOML, and a bare word is a string."""
    path, sign, raw = text.partition("=")
    if not sign or not path.strip():
        raise UsageError(f"--set {text!r}: write it as section.key=value, for example optimizer.lr=0.001")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--set {path.strip()}: {error}") from None
    return path.strip(), value


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys, as `--set` takes them."""
    dotted: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            dotted |= flat(value, f"{prefix}{key}.")
        else:
            dotted[f"{prefix}{key}"] = value
    return dotted
