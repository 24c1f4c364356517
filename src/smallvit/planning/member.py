"""Which member of our family a run takes where the model is left to us: the widest that sees its images often enough.

A wider member learns more from an image that it has seen, and sees fewer of them in the same time. Measured on 500 and
2,000 images in two and four minutes (docs/decisions/006-default.md): where every image is seen about 25 times or more,
the wider one is as good or better. Attention costs up to a point there, so none is taken.
"""

from __future__ import annotations

from smallvit.planning.choices import Choices
from smallvit.recipe import Recipe
from smallvit.training.budget import StepCost
from smallvit.training.loop import Training

SAMPLES_CPU = 200_000  # images that the smallest sees when the length is ours to choose: minutes on a laptop
SAMPLES_GPU = 4_000_000
ENOUGH = 25  # times that every image is seen
SMALLEST = "conv_nano"
WIDER = {"conv_micro": 1.9, "conv_tiny": 2.9}  # what their steps take, to one of the smallest
LEAST_SIZE = 16  # px: below, two stages are enough, and no other width was measured


def is_open(asked: Recipe, choices: Choices) -> bool:
    """Whether time decides on the model: it was not given, and neither were the epochs."""
    left_to_us = asked.model.name == "auto" and choices["model.name"] == SMALLEST and choices["epochs"] == "auto"
    return left_to_us and choices["objective.name"] == "supervised" and choices["data.img_size"] >= LEAST_SIZE


def choose_member(choices: Choices, training: Training, cost: StepCost, seconds: float | None) -> bool:
    """Take a wider member where there is time for it: so many seconds, or the usual number of images.

    `training` and its cost are of the smallest.
    """
    an_epoch = len(training.loader) * cost.seconds[1]
    seen = usual_samples(choices) / len(training.loader.rows) if seconds is None else seconds / an_epoch
    fitting = [name for name, dearer in WIDER.items() if seen / dearer >= ENOUGH]
    if not fitting:
        return False
    widest = fitting[-1]
    why = f"the widest that sees every image {ENOUGH} times or more in the time: about {seen / WIDER[widest]:.0f} times"
    choices.record("model.name", widest, why)
    choices.record("model.timm_name", widest, f"what {widest} means at {choices['data.img_size']} px")
    return True


def usual_samples(choices: Choices) -> int:
    """Images seen in training when the length is ours to choose; fewer where each takes longer."""
    samples = SAMPLES_CPU if choices["device"] == "cpu" else SAMPLES_GPU
    return round(samples / WIDER.get(choices["model.name"], 1.0))
