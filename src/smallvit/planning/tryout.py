"""What only a try can tell: how many threads, and which precision, make a step fastest on this machine.

A few steps are taken on copies of the training, so nothing of it is used up. On small models two threads may take longer
than one; whether 16 bits pay depends on the processor and on the model. What was measured here once is what the length
of the run is reckoned from, too.
"""

from __future__ import annotations

import time

from smallvit.models.aliases import HYBRIDS
from smallvit.planning.choices import Choices
from smallvit.recipe import Recipe
from smallvit.training.bf16 import has_fast_bf16, why_not
from smallvit.training.budget import MEASURED_SECONDS, measure_step
from smallvit.training.loop import Training
from smallvit.training.session import computing

TRIED_SECONDS = 6.0  # for all tries together, where no budget says otherwise
TINY = 16  # px
WORTH_IT = 0.9  # of the time: what saves less stays as it was
NO_TIME = "there was no time to try others"


class Speeds:
    """Seconds of a step by threads and precision, each measured once, when it is first asked for."""

    def __init__(self, training: Training, seconds: float) -> None:
        self.training = training
        self.left = seconds  # for further tries
        self.known: dict[tuple[int, str], float] = {}

    def of(self, threads: int, precision: str) -> float:
        if (threads, precision) not in self.known:
            started = time.perf_counter()
            self.known[threads, precision] = step_seconds(self.training, threads, precision)
            self.left -= time.perf_counter() - started
        return self.known[threads, precision]

    def can_compare(self, one: tuple[int, str], other: tuple[int, str]) -> bool:
        """Both are known, or there is time to find out. The first try of a slow step may take all there is."""
        for tried in (one, other):
            if self.left <= 0 and tried not in self.known:
                return False
            self.of(*tried)
        return True


def step_seconds(training: Training, threads: int, precision: str) -> float:
    recipe = training.recipe
    training.recipe = recipe.model_copy(update={"precision": precision})
    try:
        with computing(threads):
            return measure_step(training, training.step.objective.views, MEASURED_SECONDS)
    finally:
        training.recipe = recipe


def resolve_speed(choices: Choices, asked: Recipe, training: Training, seconds: float = TRIED_SECONDS) -> float:
    """Threads and precision, where they were not given; the training goes on with them. How long a step takes then."""
    speeds = Speeds(training, seconds)
    if asked.precision == "auto":
        choose_precision(choices, speeds)
    if asked.threads == "auto" and choices["device"] == "cpu" and choices["threads"] > 1:
        choose_threads(choices, speeds)
    chosen = {key: choices[key] for key in ("precision", "threads")}
    training.recipe = training.recipe.model_copy(update=chosen)
    return speeds.of(chosen["threads"], chosen["precision"])


def choose_precision(choices: Choices, speeds: Speeds) -> None:
    """On a GPU by what it has. On a CPU 16 bits are tried where they may pay: with units for them, or with our own family."""
    device, threads = choices["device"], choices["threads"]
    fast, problem = has_fast_bf16(device), why_not(device)
    if device != "cpu":
        why = "the device is fast at bf16" if fast else "no fast bf16 units"
        choices.choose("precision", "bf16" if fast else "fp32", why)
    elif problem or not (fast or choices["model.name"] in HYBRIDS):
        choices.choose("precision", "fp32", problem or "no fast bf16 units, and not tried for this model without them")
    elif choices["data.img_size"] < TINY:
        choices.choose("precision", "fp32", "images this small gain nothing from 16 bits")
    elif not speeds.can_compare((threads, "fp32"), (threads, "bf16")):
        choices.choose("precision", "fp32", NO_TIME)
    else:
        wide, narrow = (1000 * speeds.of(threads, precision) for precision in ("fp32", "bf16"))
        better = "bf16" if narrow < WORTH_IT * wide else "fp32"
        name = choices["model.name"]  # that was tried: a wider one may take its place
        why = f"measured: a step{'' if name == 'auto' else f' of {name}'} takes {narrow:.0f} ms in bf16, {wide:.0f} ms in fp32"
        choices.choose("precision", better, why)


def choose_threads(choices: Choices, speeds: Speeds) -> None:
    most, precision = choices["threads"], choices["precision"]
    if not speeds.can_compare((most, precision), (1, precision)):
        return
    alone, together = (1000 * speeds.of(threads, precision) for threads in (1, most))
    fewer = together > WORTH_IT * alone
    why = f"measured: a step takes {alone:.0f} ms with one thread, {together:.0f} ms with {most}"
    choices.record("threads", 1 if fewer else most, why)
