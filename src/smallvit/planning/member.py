"""Which member of our family a run takes where that is left to us: the widest that sees its images often enough.

It is left to us where no model is named (`auto`), or a kind of the family alone: `conv`, or `hybrid` with its attention.

A wider member learns more from an image that it has seen, and sees fewer of them in the same time. Measured on 500 and
2,000 images in two and four minutes (docs/decisions/006-default.md): where every image is seen about 25 times or more,
the wider one is as good or better. Attention gained nothing wherever it was measured, so none is taken; what it brought
nearest to these images and this time is told.
"""

from __future__ import annotations

from smallvit.models.aliases import HYBRID_KINDS, HYBRIDS
from smallvit.planning.choices import Choices
from smallvit.planning.evidence import nearest
from smallvit.recipe import Recipe
from smallvit.training.budget import StepCost
from smallvit.training.loop import Training

SAMPLES_CPU = 200_000  # images that the smallest sees when the length is ours to choose: minutes on a laptop
SAMPLES_GPU = 4_000_000
ENOUGH = 25  # times that every image is seen
SMALLEST = "nano"
WIDER = {"micro": 1.9, "tiny": 2.9}  # what their steps take, to one of the smallest
WITH_ATTENTION = tuple(name for name in HYBRIDS if name.startswith("hybrid"))
LEAST_SIZE = 16  # px: below, two stages are enough, and no other width was measured


def is_open(asked: Recipe, choices: Choices) -> bool:
    """Whether time decides on the model: it was not given, nor one to start from, and neither were the epochs."""
    left_to_us = asked.model.name in ("auto", *HYBRID_KINDS) and _size_of(choices) == SMALLEST
    left_to_us = left_to_us and not asked.model.init and choices["epochs"] == "auto"
    return left_to_us and choices["objective.name"] == "supervised" and choices["data.img_size"] >= LEAST_SIZE


def choose_member(choices: Choices, training: Training, cost: StepCost, seconds: float) -> bool:
    """Take a wider member where there is time for it: the steps have so many seconds.

    `training` and its cost are of the smallest.
    """
    if seconds <= 0:
        return False  # there is no time for any: refused where steps are counted
    seen = seconds / (len(training.loader) * cost.seconds[1])
    fitting = [size for size, dearer in WIDER.items() if seen / dearer >= ENOUGH]
    smallest = choices["model.timm_name"]
    about = "" if smallest in WITH_ATTENTION else about_attention(len(training.loader.rows), seconds)
    if not fitting:
        why = f"the smallest of the family, as a wider one would see every image less than {ENOUGH} times in the time"
        choices.record("model.name", choices["model.name"], why + about)
        return False
    widest = smallest.replace(SMALLEST, fitting[-1])
    why = f"the widest that could see every image {ENOUGH} times or more in the time, by the steps of the smallest"
    choices.record("model.name", widest, why + about)
    choices.record("model.timm_name", widest, f"what {widest} means at {choices['data.img_size']} px")
    return True


def about_attention(images: int, seconds: float) -> str:
    """What it brought where that was measured nearest to these images and this time: why none is taken."""
    measured = nearest("model.name", WITH_ATTENTION[0], images, seconds)
    return f"; without attention, which nearest to this brought {measured}" if measured else ""


def usual_samples(choices: Choices) -> int:
    """Images seen in training when the length is ours to choose; fewer where each takes longer."""
    samples = SAMPLES_CPU if choices["device"] == "cpu" else SAMPLES_GPU
    return round(samples / WIDER.get(_size_of(choices) or SMALLEST, 1.0))


def _size_of(choices: Choices) -> str | None:
    """nano, micro or tiny, of a member of the family."""
    return choices["model.timm_name"].split("_")[1] if choices["model.name"] in HYBRIDS else None
