"""What only a try can tell: how many threads, and which precision, make a step fastest on this machine.

A few steps are taken on copies of the training, so nothing of it is used up. On small models two threads may take longer
than one; whether 16 bits pay depends on the processor and on the model.
"""

from __future__ import annotations

from smallvit.models.aliases import HYBRIDS
from smallvit.planning.choices import Choices
from smallvit.planning.resolve import has_fast_bf16
from smallvit.recipe import Recipe
from smallvit.training.budget import measure_step
from smallvit.training.loop import Training
from smallvit.training.session import fixed_threads

TRIED_SECONDS = 0.7
TINY = 16  # px
WORTH_IT = 0.9  # of the time: what saves less stays as it was


def resolve_speed(choices: Choices, asked: Recipe, training: Training) -> None:
    """Threads and precision, where they were not given; the training goes on with them."""
    if asked.precision == "auto":
        choose_precision(choices, training)
    if asked.threads == "auto" and choices["device"] == "cpu" and choices["threads"] > 1:
        choose_threads(choices, training)
    chosen = {key: choices[key] for key in ("precision", "threads")}
    training.recipe = training.recipe.model_copy(update=chosen)


def choose_precision(choices: Choices, training: Training) -> None:
    device = choices["device"]
    if device != "cpu" or choices["model.name"] not in HYBRIDS:
        fast = has_fast_bf16(device)
        why = "the device is fast at bf16" if fast else "no fast bf16 units"
        choices.choose("precision", "bf16" if fast else "fp32", why)
        return
    if choices["data.img_size"] < TINY:
        choices.choose("precision", "fp32", "images this small gain nothing from 16 bits")
        return
    wide, narrow = (_step_ms(training, choices["threads"], precision) for precision in ("fp32", "bf16"))
    better = "bf16" if narrow < WORTH_IT * wide else "fp32"
    choices.choose("precision", better, f"measured: a step takes {narrow:.0f} ms in bf16, {wide:.0f} ms in fp32")


def choose_threads(choices: Choices, training: Training) -> None:
    most, precision = choices["threads"], choices["precision"]
    alone, together = (_step_ms(training, threads, precision) for threads in (1, most))
    fewer = together > WORTH_IT * alone
    why = f"measured: a step takes {alone:.0f} ms with one thread, {together:.0f} ms with {most}"
    choices.record("threads", 1 if fewer else most, why)


def _step_ms(training: Training, threads: int, precision: str) -> float:
    recipe = training.recipe
    training.recipe = recipe.model_copy(update={"precision": precision})
    try:
        with fixed_threads(threads):
            return 1000 * measure_step(training, training.step.objective.views, TRIED_SECONDS)
    finally:
        training.recipe = recipe
