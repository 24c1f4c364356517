"""What `auto` becomes, and why. Every choice is printed and stored with the run."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from smallvit.data.images import FULL_WHITE
from smallvit.data.imageset import ImageSet, channel_statistics
from smallvit.data.sources import Source
from smallvit.data.split import Split, auto_test, auto_val
from smallvit.errors import UsageError
from smallvit.models.aliases import architecture
from smallvit.models.features import check_model_name
from smallvit.objectives.base import TaskInfo, all_options, objectives, options_of
from smallvit.objectives.class_weights import inverse_frequency, read_weights
from smallvit.recipe import Recipe

SIZES = (32, 64, 96, 128, 160, 224)
MOST_CPU_SIZE = 128
SAMPLES_CPU = 200_000  # images seen in training when the epochs are ours to choose: minutes on a laptop
SAMPLES_GPU = 4_000_000
CACHE_MARGIN = 8 / 7  # 256 for 224: room for crops, and the centre crop of evaluation


class Choice(NamedTuple):
    key: str
    value: Any
    why: str


class Resolver:
    """A recipe under way from asked to resolved; `choose` replaces one `auto` and remembers the reason."""

    def __init__(self, recipe: Recipe) -> None:
        self.tree = recipe.model_dump()
        self.choices: list[Choice] = []

    @property
    def recipe(self) -> Recipe:
        return Recipe.model_validate(self.tree)

    def choose(self, key: str, value: Any, why: str) -> None:
        *path, last = key.split(".")
        section = self.tree
        for name in path:
            section = section[name]
        if section[last] == "auto":
            section[last] = value
            self.choices.append(Choice(key, value, why))

    def put(self, key: str, value: Any) -> None:
        """A value that is measured, not chosen."""
        section, last = key.split(".")
        self.tree[section][last] = value


def resolve_machine(r: Resolver) -> None:
    if r.tree["budget"] is not None and r.tree["epochs"] != "auto":
        raise UsageError(f"budget and epochs = {r.tree['epochs']} exclude each other: a budget sets the epochs")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    r.choose("device", device, "a GPU is there" if device == "cuda" else "no GPU was found")
    check_device(r.tree["device"])
    r.choose("threads", torch.get_num_threads(), "torch's default on this machine")
    fast = has_fast_bf16(r.tree["device"])
    r.choose("precision", "bf16" if fast else "fp32", "the device is fast at bf16" if fast else "no fast bf16 units")


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


def has_fast_bf16(device: str) -> bool:
    """A CPU without the units takes ten times as long in bf16 as in fp32."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and bool(torch.cpu._is_amx_tile_supported())


def resolve_size(r: Resolver, source: Source) -> None:
    side = source.side
    sizes = [size for size in SIZES if r.tree["device"] != "cpu" or size <= MOST_CPU_SIZE]
    fitting = next((size for size in sizes if side <= size * 1.25), sizes[-1])
    if side <= 64 and side % 4 == 0:
        fitting = side
    r.choose("data.img_size", fitting, f"the images are typically {side} px on their shorter side")
    kinds = {1: "all files are grey", 3: "the files have colour"}
    r.choose("data.in_chans", source.channels, kinds.get(source.channels, f"the files have {source.channels} channels"))
    if not source.wide and r.tree["data"]["white"] == "auto":
        r.put("data.white", FULL_WHITE)  # nothing to choose: all files have 8 bits
    elif r.tree["data"]["white"] == "auto":
        r.choose("data.white", source.white, "what the bits that the files with 16 use can hold")
    size = r.tree["data"]["img_size"]
    small = side <= size
    r.choose("augment.crop", "pad" if size <= 48 else "resized", f"{size} px images")
    roomy = small or r.tree["augment"]["crop"] != "resized"
    margin = size if roomy else 2 * round(size * CACHE_MARGIN / 2)
    why = "the files are no larger than that" if small else "the training size" if roomy else "room for random crops"
    r.choose("data.cache_size", margin, why)
    if (cached := r.tree["data"]["cache_size"]) < size:
        raise UsageError(
            f"data.cache_size = {cached} is smaller than data.img_size = {size}: leave it out, or raise it"
        )
    flip = 0.5 if source.mirrors else 0.0
    r.choose("augment.flip", flip, "mirroring keeps the class" if flip else "a mirrored digit is another sign")


def resolve_split(r: Resolver, images: ImageSet) -> None:
    """What is held out: the source's own parts where it has them; nothing where there are no labels to judge by."""
    if len(images.class_names) == 1:
        for part in ("test", "val"):
            r.choose(f"data.{part}", "none", "there are no classes to judge by")
    why = {float: "a share of every class", str: f"the source has {', '.join(images.parts) or 'no parts'}"}
    test = auto_test(images)
    r.choose("data.test", test, why[type(test)])
    val = auto_val(images, r.recipe.data)
    r.choose("data.val", val, why[type(val)])


def resolve_training(r: Resolver, images: ImageSet, split: Split) -> None:
    n, size = len(split.train), r.tree["data"]["img_size"]
    mean, std = channel_statistics(images.images_NCSS, split.train)
    r.choose("data.mean", mean, "measured on the training part")
    r.choose("data.std", std, "measured on the training part")
    channels = images.images_NCSS.shape[1]
    for key in ("mean", "std"):
        given = r.tree["data"][key]
        if len(given) not in (1, channels):
            raise UsageError(
                f"data.{key} = {list(given)}: give {channels} numbers, one for each channel, or one for all"
            )
        r.put(f"data.{key}", tuple(given) * (channels if len(given) == 1 else 1))
    r.put("data.fingerprint", images.fingerprint)
    resolve_class_weights(r, images, split)
    resolve_objective(r, images, split)
    plan = architecture(r.tree["model"]["name"], size)
    r.choose("model.timm_name", plan.timm_name, f"what {r.tree['model']['name']} means at {size} px")
    for key, value in plan.kwargs.items():
        if key not in r.tree["model"]["kwargs"]:
            r.tree["model"]["kwargs"][key] = value
            r.choices.append(Choice(f"model.kwargs.{key}", value, f"suits {size} px images"))
    # Where images are told from each other, a batch should hold many of them, though the steps are fewer.
    steps, least = (30, 3) if objectives()[r.tree["objective"]["name"]].classifies else (10, 5)
    sgd = r.tree["optimizer"]["name"] == "sgd"
    # AdamW multiplies its decay by the rate alone, SGD adds it to the gradient, where 0.05 would be far too much.
    r.choose("optimizer.weight_decay", 5e-4 if sgd else 0.05, "usual for SGD" if sgd else "usual for AdamW")
    batch = int(2 ** min(7, max(least, math.floor(math.log2(max(n, 16) / steps)))))
    batch = min(batch, max(2, n // 2))
    r.choose("batch_size", batch, f"{n:,} training images: {n // batch} steps an epoch")
    batch = r.tree["batch_size"]
    r.choose("optimizer.lr", _rounded(_base_lr(r) * math.sqrt(batch / 64)), f"scaled to batch {batch}")
    if r.tree["budget"] is None:
        seen = SAMPLES_CPU if r.tree["device"] == "cpu" else SAMPLES_GPU
        r.choose("epochs", min(300, max(20, round(seen / n))), f"about {seen:,} images seen, 20 to 300 epochs")
    if not objectives()[r.tree["objective"]["name"]].classifies:
        r.choose("select", "last", "what pretraining is for is not known yet")
    best = "best" if len(split.val) else "last"
    r.choose("select", best, "judged on the validation part" if len(split.val) else "there is no validation part")
    if r.tree["select"] == "best" and not len(split.val):
        raise UsageError("select = best needs a validation part: give --val 0.15, or select=last")
    if r.tree["epochs"] != "auto":
        resolve_epochs(r)


def resolve_objective(r: Resolver, images: ImageSet, split: Split) -> None:
    """What follows from the number of images among the objective's own options."""
    asked = r.recipe.objective
    options = options_of(objectives(), asked.name, asked.options, "objective")
    setting = TaskInfo(len(images.class_names), len(images), r.tree["data"]["img_size"], 1, split.train)
    for key, (value, why) in objectives()[asked.name].choices(options, setting).items():
        r.choose(f"objective.{key}", value, why)


def resolve_class_weights(r: Resolver, images: ImageSet, split: Split) -> None:
    """Numbers in the order of the classes, so that the same run again needs neither file nor counting."""
    asked = r.tree["objective"].get("class_weights", "none")
    if asked == "auto":
        counts_K = torch.bincount(images.labels_N[split.train], minlength=len(images.class_names)).tolist()
        r.choose(
            "objective.class_weights", inverse_frequency(counts_K), "inverse frequency in the training part, mean 1"
        )
    elif isinstance(asked, str) and asked != "none":
        weights = read_weights(asked, images.class_names)
        r.tree["objective"]["class_weights"] = weights
        r.choices.append(Choice("objective.class_weights", weights, f"read from {asked}"))


def resolve_epochs(r: Resolver) -> None:
    """What follows from the number of epochs, which a budget sets late."""
    epochs = r.tree["epochs"]
    r.choose("schedule.warmup_epochs", min(10.0, round(epochs * 0.1, 2)), "a tenth of the epochs, at most 10")
    r.choose("eval_every", max(1, math.ceil(epochs / 40)), "about 40 looks in all")


def _base_lr(r: Resolver) -> float:
    return 0.05 if r.tree["optimizer"]["name"] == "sgd" else 2.5e-3


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def resolve_names(r: Resolver) -> None:
    """The model must exist; objective and auxiliaries fill in their own defaults, and refuse what they do not know."""
    check_model_name(r.tree["model"]["name"])
    r.tree |= all_options(r.recipe)
