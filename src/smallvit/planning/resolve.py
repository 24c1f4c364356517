"""What `auto` becomes, and why. Every choice is printed and stored with the run."""

from __future__ import annotations

import math
from typing import Any

import torch

from smallvit.console import several
from smallvit.data.images import FULL_WHITE
from smallvit.data.imageset import ImageSet, channel_statistics, mirrored_pair
from smallvit.data.sources import Source
from smallvit.data.split import VAL_SHARE, Split, auto_test, auto_val
from smallvit.errors import UsageError
from smallvit.models.aliases import HYBRID_KINDS, HYBRIDS, VITS, architecture
from smallvit.models.features import check_model_name
from smallvit.objectives.base import TaskInfo, all_options, auxiliaries, objectives, options_of
from smallvit.planning.choices import Choices
from smallvit.planning.flags import longest_warmup
from smallvit.recipe import Recipe
from smallvit.training.budget import MOST_EPOCHS

SIZES = (32, 64, 96, 128, 160, 224)
MOST_CPU_SIZE = 128
CACHE_MARGIN = 8 / 7  # 256 for 224: room for crops, and the centre crop of evaluation
MATRIX_LR = 0.12
COLOURS, COLOUR = ("brightness", "contrast", "saturation"), 0.4  # either way
MIRRORED = "assumed: a mirror image is of the same class; if it is not, --set augment.flip=0"
NUMBERED = (
    "assumed: a mirror image is of the same class, for the classes are numbers without names; if they stand for digits, "
    "letters or anything else that a mirror changes, --set augment.flip=0"
)
OTHER_SIDE = "a mirror makes {} of {}; if it does not, --set augment.flip=0.5"
SIGNS = "a mirrored digit or letter is another sign; if the classes are none, --set augment.flip=0.5"
VARIED_FROM = 100  # epochs: from there on none lost beyond chance (docs/decisions/008-varied-images.md)
SHIFT, SHIFT_SHARE = 2, 16  # pixels, and no more than that share of the side; 4 px at 64 px lost
SHIFT_BUDGET = 120.0  # seconds
COLOUR_FROM = 50  # epochs: it gained at 65 and 130, and nothing at 30


def resolve_machine(choices: Choices) -> None:
    if choices["budget"] is not None and choices["epochs"] != "auto":
        raise UsageError(f"budget and epochs = {choices['epochs']} exclude each other: a budget sets the epochs")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    choices.choose("device", device, "a GPU is there" if device == "cuda" else "no GPU was found")
    check_device(choices["device"])
    choices.choose("threads", torch.get_num_threads(), "as many as there are cores for it")


def check_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"device {name!r} cannot be used here: {reason} (choices: auto, cpu, cuda, cuda:1, mps)"
        ) from None
    return device


def resolve_size(choices: Choices, source: Source) -> None:
    side = source.side
    sizes = [size for size in SIZES if choices["device"] != "cpu" or size <= MOST_CPU_SIZE]
    fitting = next((size for size in sizes if side <= size * 1.25), sizes[-1])
    if side <= 64 and side % 4 == 0:
        fitting = side
    choices.choose("data.img_size", fitting, f"the images are typically {side} px on their shorter side")
    kinds = {1: "all files are grey", 3: "the files are stored in colour"}
    choices.choose(
        "data.in_chans",
        source.channels,
        kinds.get(source.channels, f"the files have {several(source.channels, 'channel')}"),
    )
    if not source.wide and choices["data.white"] == "auto":
        choices.put("data.white", FULL_WHITE)  # nothing to choose: all files have 8 bits
    elif choices["data.white"] == "auto":
        choices.choose("data.white", source.white, "what the bits that the files with 16 use can hold")
    size = choices["data.img_size"]
    small = side <= size
    if choices["model.name"] in ("auto", *HYBRID_KINDS, *HYBRIDS):
        choices.choose("augment.crop", "pad", "in short runs small shifts are worth more than large crops")
        choices.choose("augment.padding", 1 / 16, "in short runs small shifts are worth more than large ones")
    choices.choose("augment.padding", 0.125, "usual")
    choices.choose("augment.crop", "pad" if size <= 48 else "resized", f"{size} px images")
    roomy = small or choices["augment.crop"] != "resized"
    margin = size if roomy else 2 * round(size * CACHE_MARGIN / 2)
    why = "the files are no larger than that" if small else "the training size" if roomy else "room for random crops"
    choices.choose("data.cache_size", margin, why)
    if (cached := choices["data.cache_size"]) < size:
        raise UsageError(
            f"data.cache_size = {cached} is smaller than data.img_size = {size}: leave it out, or raise it"
        )
    flip = 0.5 if source.mirrors else 0.0
    assumed = NUMBERED if all(name.isdecimal() for name in source.class_names) else MIRRORED
    sides = mirrored_pair(source.class_names)
    choices.choose("augment.flip", flip, assumed if flip else OTHER_SIDE.format(*sides) if sides else SIGNS)
    mirrored = choices["augment.flip"] > 0 and _classifies(choices)
    why = "the mean of an image and its mirror image is right more often" if mirrored else "nothing was mirrored"
    choices.choose("data.flips", mirrored, why)
    choices.choose("data.shifts", *_moved(choices))
    if not (choices["data.flips"] and choices["data.shifts"]):
        choices.put("data.few_looks", False)  # there are no fewer


def resolve_split(choices: Choices, images: ImageSet) -> None:
    """What is held out: the source's own parts where it has them; nothing where there are no labels to judge by."""
    if len(images.class_names) == 1:
        for part in ("test", "val"):
            choices.choose(f"data.{part}", "none", "there are no classes to judge by")
    groups = len(set(images.groups))
    share = f"a share of the {groups:,} groups, each of them whole" if groups else "a share of every class"
    why = {float: share, str: f"the source has {', '.join(images.parts) or 'no parts'}"}
    spec = choices.recipe.data
    test = auto_test(images, spec)
    judged_anyway = spec.folds and test == "none"
    choices.choose(
        "data.test", test, "every image is judged by the fold that left it out" if judged_anyway else why[type(test)]
    )
    if spec.folds and spec.val == "auto" and auto_val(images, spec) == "val":
        choices.record(
            "data.train_on", "train+val", "the folds leave out every image once, those of the validation part, too"
        )
    # Supervised training selects nothing by it; pretraining sees by it whether its features are worth something.
    unused = _classifies(choices) and (not spec.sealed or bool(spec.folds))
    val = auto_val(images, choices.recipe.data, otherwise="none" if unused else VAL_SHARE)
    choices.choose("data.val", val, "nothing is selected by it" if val == "none" else why[type(val)])


def resolve_training(choices: Choices, images: ImageSet, split: Split) -> None:
    resolve_statistics(choices, images, split)
    resolve_objective(choices, images, split)
    resolve_model(choices)
    resolve_optimizer(choices, len(split.train))
    resolve_selection(choices, split)


def resolve_statistics(choices: Choices, images: ImageSet, split: Split) -> None:
    """What normalises the images: measured, or given for each channel or once for all."""
    mean, std = channel_statistics(images.images_NCSS, split.train)
    choices.choose("data.mean", mean, "measured on the training part")
    choices.choose("data.std", std, "measured on the training part")
    channels = images.images_NCSS.shape[1]
    for key in ("data.mean", "data.std"):
        given = choices[key]
        if len(given) not in (1, channels):
            raise UsageError(f"{key} = {list(given)}: give {channels} numbers, one for each channel, or one for all")
        choices.put(key, tuple(given) * (channels if len(given) == 1 else 1))
    choices.put("data.fingerprint", images.fingerprint)


def resolve_objective(choices: Choices, images: ImageSet, split: Split) -> None:
    """What follows from the images among the options of the objective and the auxiliary losses: their own matter."""
    recipe = choices.recipe
    task = TaskInfo.of(images, split, recipe.data)
    name, given = recipe.objective.name, recipe.objective.options
    options = options_of(objectives(), name, given, "objective")
    objectives()[name].resolve(options, task, choices.within("objective"))
    for name, given in recipe.aux.items():
        options = options_of(auxiliaries(), name, given, "aux")
        auxiliaries()[name].resolve(options, task, choices.within(f"aux.{name}"))


def resolve_model(choices: Choices) -> None:
    """Which model, what a short name means at this size, and the keywords that go with it."""
    choices.choose("model.name", "conv_nano", "the best we know for few images and little time")
    if (kind := choices["model.name"]) in HYBRID_KINDS:
        choices.record(
            "model.name", f"{kind}_nano", f"the smallest {kind}; a wider one is taken where a time is given, not epochs"
        )
    name, size = choices["model.name"], choices["data.img_size"]
    meant = architecture(name, size)
    choices.choose("model.timm_name", meant.timm_name, f"what {name} means at {size} px")
    for key, value in meant.kwargs.items():
        choices.choose(f"model.kwargs.{key}", value, f"suits {size} px images")
    if name in VITS and choices["objective"].get("grow"):
        choices.choose("model.kwargs.dynamic_img_size", True, "the images grow: positions are stretched to each size")


def resolve_optimizer(choices: Choices, n: int) -> None:
    """Weight decay, batch and learning rate for `n` training images."""
    factor = choices["optimizer.rate_factor"]
    times = "" if factor == 1 else f", times {factor:.3g}"
    if times and choices["optimizer.lr"] != "auto":
        raise UsageError(
            f"optimizer.rate_factor = {factor:g} multiplies the rates that auto takes, and optimizer.lr = "
            f"{choices['optimizer.lr']:g} is given: leave one of the two out"
        )
    choices.put("optimizer.rate_factor", 1.0)  # used: the rates below hold it
    if choices["model.name"] in HYBRIDS and choices["objective.name"] == "supervised":
        choices.choose("optimizer.name", "muon", "it learns most in the fewest steps of this family of models")
    choices.choose("optimizer.name", "adamw", "the usual one")
    if choices["optimizer.name"] == "muon":
        choices.choose("batch_size", min(64, max(2, n // 2)), "small batches, many steps")
        choices.choose("optimizer.lr", factor * 0.015, f"for biases and the classifier, beside Muon{times}")
        choices.choose("optimizer.matrix_lr", factor * MATRIX_LR, f"of the filters, whose size Muon keeps{times}")
    elif choices["optimizer.matrix_lr"] == "auto":
        choices.put("optimizer.matrix_lr", MATRIX_LR)  # not used, so not told
    sgd = choices["optimizer.name"] == "sgd"
    # AdamW multiplies its decay by the rate alone, SGD adds it to the gradient, where 0.05 would be far too much.
    usual = "usual for SGD" if sgd else "usual for AdamW"
    if choices["optimizer.name"] == "muon":
        usual += ", which moves the classifier and what else Muon does not; Muon's matrices have no decay"
    choices.choose("optimizer.weight_decay", 5e-4 if sgd else 0.05, usual)
    # Where images are told from each other, a batch should hold many of them, though the steps are fewer.
    steps, least = (30, 3) if _classifies(choices) else (10, 5)
    batch = int(2 ** min(7, max(least, math.floor(math.log2(max(n, 16) / steps)))))
    batch = min(batch, max(2, n // 2))
    choices.choose("batch_size", batch, f"{several(n, 'training image')}: {several(n // batch, 'step')} an epoch")
    batch = choices["batch_size"]
    rate = (0.05 if sgd else _adamw_rate(choices)) * math.sqrt(batch / 64)
    choices.choose("optimizer.lr", factor * float(f"{rate:.2g}"), f"scaled to batch {batch}{times}")


def _adamw_rate(choices: Choices) -> float:
    """Of a batch of 64. A plain ViT on digits learns nothing at the higher one (docs/decisions/007-rate-of-vits.md)."""
    return 1.4e-3 if choices["model.name"] in VITS and _classifies(choices) else 2.5e-3


def resolve_selection(choices: Choices, split: Split) -> None:
    """Which weights become the model. Few validation images would rather choose a lucky epoch than a good one."""
    if not _classifies(choices):
        choices.choose("select", "last", "what pretraining is for is not known yet")
    choices.choose("select", "last", "the schedule ends with the best weights; few images choose none better")
    if choices["select"] == "best" and not len(split.val):
        raise UsageError("select = best needs a validation part: give --val 0.15, or select=last")


def resolve_epochs(choices: Choices) -> None:
    """What follows from the number of epochs, which is known last."""
    epochs = choices["epochs"]
    choices.choose("schedule.warmup_epochs", min(10.0, round(epochs * 0.1, 2)), "a tenth of the epochs, at most 10")
    warmup = choices["schedule.warmup_epochs"]
    if warmup == longest_warmup(epochs):  # it may have been cut by planning/flags.py
        choices.record(
            "schedule.warmup_epochs",
            warmup,
            "a fifth of the epochs: where a recipe for another number of them had a longer one, it was cut to that",
        )
    choices.choose("eval_every", max(1, math.ceil(epochs / 40)), "about 40 looks in all")
    strength, why = _colour(choices)
    for key in COLOURS:
        choices.choose(f"augment.{key}", strength, why)
    choices.choose("augment.trivial", *_varied(choices))


def longest(recipe: Recipe) -> Recipe:
    """What is known after a step was measured, as it is in the longest run."""
    most: dict[str, Any] = {**dict.fromkeys(COLOURS, COLOUR), "trivial": not recipe.augment.randaugment}
    augment = {key: value for key, value in most.items() if getattr(recipe.augment, key) == "auto"}
    epochs = {"epochs": MOST_EPOCHS} if recipe.epochs == "auto" else {}
    return recipe.model_copy(update={"augment": recipe.augment.model_copy(update=augment), **epochs})


def _moved(choices: Choices) -> tuple[int, str]:
    """By how many pixels an image is moved to be looked at again, when a model answers."""
    far = min(SHIFT, choices["data.img_size"] // SHIFT_SHARE)
    if not choices["data.flips"] or choices["model.name"] not in ("auto", *HYBRID_KINDS, *HYBRIDS):
        return 0, "measured beside mirror images, and for our own family only"
    if not far:
        return 0, "the images are too small"
    if (choices.seconds or SHIFT_BUDGET) < SHIFT_BUDGET:
        return 0, "in so short a time more looks at the end would take too much of it"
    return far, "the mean of the image and moved ones is right more often"


def _colour(choices: Choices) -> tuple[float, str]:
    """How far light and colour change from one look at an image to the next."""
    epochs = choices["epochs"]
    if choices["data.in_chans"] != 3:
        return 0.0, "measured for colour images only"
    if choices["model.name"] not in HYBRIDS:
        return 0.0, f"not measured for {choices['model.name']}"
    if epochs < COLOUR_FROM:
        return 0.0, f"in {several(epochs, 'epoch')} the images themselves are news enough"
    return COLOUR, f"an image that is seen {epochs} times should not look the same each time"


def _varied(choices: Choices) -> tuple[bool, str]:
    """Whether each look at an image also turns, shifts, shears or recolours it strongly (TrivialAugment)."""
    epochs = choices["epochs"]
    if choices["augment.randaugment"]:
        return False, "RandAugment takes its place"
    if choices["data.in_chans"] != 3:
        return False, "measured for colour images only"
    if epochs < VARIED_FROM:
        return False, f"in {several(epochs, 'epoch')} the images themselves are news enough"
    return True, f"of an image that is seen {epochs} times a model learns more where it looks different each time"


def _classifies(choices: Choices) -> bool:
    return objectives()[choices["objective.name"]].classifies


def resolve_names(choices: Choices) -> None:
    """The model must exist; objective and auxiliaries fill in their own defaults, and refuse what they do not know."""
    if choices["model.name"] != "auto":
        check_model_name(choices["model.name"])
    for section, options in all_options(choices.recipe).items():
        choices.put(section, options)
