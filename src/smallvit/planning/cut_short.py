"""Trainings cut short from outside: variables of the environment bound every recipe, whatever was asked.

So the lines of the README are trained in the tests as they stand. What was cut is a choice as any other: it is printed,
and stored with the run.
"""

from __future__ import annotations

import os

from smallvit.errors import UsageError
from smallvit.planning.choices import Choices

MOST_EPOCHS = "SMALLVIT_MOST_EPOCHS"
MOST_IMAGES = "SMALLVIT_MOST_IMAGES"  # of a class, for training
MOST_TRIALS = "SMALLVIT_MOST_TRIALS"  # of a search, and folds of a trial


def cut_short(choices: Choices) -> None:
    """At most so many epochs, also in place of a budget, and so many images of a class as the environment allows."""
    epochs, asked_epochs = _bound(MOST_EPOCHS), choices["epochs"]
    if epochs and (asked_epochs == "auto" or asked_epochs > epochs):
        choices.put("budget", None)
        choices.put("steps", None)
        choices.record("epochs", epochs, f"{MOST_EPOCHS} is set")
    images, asked_images = _bound(MOST_IMAGES), choices["data.per_class"]
    if images and (asked_images is None or asked_images > images):
        choices.put("data.fraction", None)  # the two exclude each other
        choices.record("data.per_class", images, f"{MOST_IMAGES} is set")


def cut_batch(choices: Choices, n: int) -> None:
    """Of `n` training images, where their number was bounded, a batch takes no more than half: an epoch has two steps."""
    asked, most = choices["batch_size"], max(2, n // 2)
    if _bound(MOST_IMAGES) and asked != "auto" and asked > most:
        choices.record("batch_size", most, f"{MOST_IMAGES} is set")


def most_trials(asked: int | None) -> int | None:
    """As many trials as were asked for, and no more than the environment allows."""
    most = _bound(MOST_TRIALS)
    return min(asked, most) if asked and most else asked or most


def _bound(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    if text and not (text.isdecimal() and int(text)):
        raise UsageError(f"{variable}={text}: should be a whole number, at least 1")
    return int(text) if text else None
