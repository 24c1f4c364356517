"""Whether torch.compile is paid back within a run.

`compile = auto` asks for it. The first time it takes about a minute of processor time, and what it makes is kept: from
then on seconds, for the same model, size, batch and precision. So it is tried where that is a small part of the run, and
kept where a measured step shows that it pays (benchmarks/compiled_step.py).
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

import torch

from smallvit.console import say
from smallvit.data.cache_folder import compiled_folder
from smallvit.errors import UsageError
from smallvit.planning.choices import Choices
from smallvit.planning.tryout import WORTH_IT
from smallvit.training.budget import StepCost, measure_step
from smallvit.training.compiled import has_compiler
from smallvit.training.loop import Training
from smallvit.training.step import wrap

FIRST, AGAIN = 60.0, 6.0  # seconds that it takes, before and after it was kept
MOST_SHARE = 0.05  # of the time for steps, that a try may take
MEASURED = 3.0  # seconds for steps once they are compiled


def resolve_compile(choices: Choices, training: Training, cost: StepCost, seconds: float) -> StepCost:
    """Compile the model of a training that has about so many seconds, if that pays. What a step takes then."""
    if choices["compile"] != "auto":
        return cost
    if why_not := _why_not(choices, training):
        choices.choose("compile", False, why_not)
        return cost
    kept = _kept_file(choices)
    price = AGAIN if kept.exists() else FIRST
    if price > MOST_SHARE * seconds:
        choices.choose("compile", False, f"it takes {price:.0f} s, too much of about {seconds:.0f} s for steps")
        return cost
    say("compiling the model")
    before, plain = training.recipe, cost.seconds[1]
    training.recipe = before.model_copy(update={"compile": True})
    try:
        compiled = measure_step(training, training.step.objective.views, price + MEASURED)
    except (RuntimeError, OSError, UsageError) as error:
        training.recipe = before
        choices.choose("compile", False, f"it does not work here: {str(error).splitlines()[0][:200]}")
        return cost
    with suppress(OSError):  # the mark alone: without it the next run takes it for the first time
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
    pays = compiled < WORTH_IT * plain
    times = f"measured: a step takes {1000 * compiled:.0f} ms compiled, {1000 * plain:.0f} ms as it is"
    choices.choose("compile", pays, times)
    training.recipe = before.model_copy(update={"compile": pays})
    training.wrapped = wrap(training.step, training.recipe)
    return cost._replace(seconds=(compiled, compiled)) if pays else cost


def _why_not(choices: Choices, training: Training) -> str:
    """Where it was never seen to pay, or cannot work."""
    if choices["device"] != "cpu":
        return "not measured on a GPU: --compile tries it"
    if not has_compiler():
        return "torch.compile needs a C++ compiler, and none was found"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return "not measured with several processes"
    one_view = len(training.step.objective.views) == 1 and not choices["objective"].get("grow")
    if choices["objective.name"] != "supervised" or not one_view:
        return "not measured where steps see several sizes of images"
    if choices["grad_accum"] not in ("auto", 1) or choices["grad_checkpointing"]:
        return "not measured where a model computes in pieces, or twice"
    return ""


def _kept_file(choices: Choices) -> Path:
    """A mark beside the compiled code, once it was made for just this kind of step."""
    keys = ("model.timm_name", "model.kwargs", "data.img_size", "data.in_chans", "batch_size", "precision", "threads")
    told = json.dumps([torch.__version__, torch.backends.cpu.get_cpu_capability(), *(choices[key] for key in keys)])
    return compiled_folder() / f"kept-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
