"""Where a run runs: a device and threads that were not given are those of the place that starts it. All else is as planned.

A plan may be made on one machine and trained on another, or beside others that share the cores. The recipe keeps what planning
found; env.json says what the run had. One that has begun goes on as it began, where that can be, for another number of threads
gives other last bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from smallvit.console import say, several, warn
from smallvit.planning.tryout import TRIED_SECONDS, WORTH_IT, Speeds
from smallvit.recipe import Recipe, resolved
from smallvit.runs.environment import environment
from smallvit.runs.folder import RunFolder
from smallvit.training.bf16 import check_bf16, has_fast_bf16
from smallvit.training.loop import Training
from smallvit.training.session import state_file

MAY_DIFFER = ("device", "threads")
TOLD = (*MAY_DIFFER, "cpu", "torch", "smallvit")  # of a machine, where a run goes on with another


class Given(NamedTuple):
    """What a place has for one run."""

    cores: int
    gpu: bool

    @classmethod
    def here(cls) -> Given:
        """By what torch says of this process: its cores, OMP_NUM_THREADS, the GPUs that it sees."""
        return cls(torch.get_num_threads(), torch.cuda.is_available())


class Whereabouts(NamedTuple):
    device: str
    threads: int
    most: int  # threads that a try may find faster: where planning had fewer cores and used them all


def whereabouts(run: RunFolder, given: Given) -> Whereabouts:
    """Of a run that is started where so much is given."""
    record, recipe = run.read("recipe.json", "resolved"), run.recipe
    asked = {key: record["asked"].get(key, "auto") if "asked" in record else "" for key in MAY_DIFFER}
    begun = run.read("env.json") if state_file(run.path).is_file() else {}
    device, threads = recipe.device, resolved(recipe.threads)
    if asked["device"] == "auto":
        before = begun.get("device", "cuda" if given.gpu else "cpu")
        device = before if before == "cpu" or given.gpu else "cpu"
    if asked["threads"] != "auto":
        return Whereabouts(device, threads, threads)
    if begun:
        threads = min(begun.get("threads", threads), given.cores)
        return Whereabouts(device, threads, threads)
    used_all = threads == record.get("cores")  # that planning had; fewer than all were faster where it had more
    most = given.cores if used_all and device == "cpu" else threads
    return Whereabouts(device, min(threads, given.cores), max(most, min(threads, given.cores)))


def as_here(recipe: Recipe, here: Whereabouts) -> Recipe:
    if recipe.precision == "bf16":
        check_bf16(here.device)
        if here.device != recipe.device and not has_fast_bf16(here.device):
            warn(f"bf16 on {here.device} without units for it may be several times slower than fp32")
    return recipe.model_copy(update={"device": here.device, "threads": here.threads})


def take_more(training: Training, here: Whereabouts) -> None:
    """More threads than planning could try, where a step is faster with them."""
    recipe, precision = training.recipe, training.recipe.precision
    if here.most <= here.threads:
        return
    speeds = Speeds(training, TRIED_SECONDS)
    if not speeds.can_compare((here.threads, precision), (here.most, precision)):
        return
    planned, more = (speeds.of(threads, precision) for threads in (here.threads, here.most))
    if more < WORTH_IT * planned:
        training.recipe = recipe.model_copy(update={"threads": here.most})


def write_environment(run: RunFolder, recipe: Recipe) -> None:
    """The machine that a run has now; where it was another before, that is kept in a line."""
    found: dict[str, Any] = dict(environment(recipe.device, resolved(recipe.threads)))
    before = run.read("env.json")
    if state_file(run.path).is_file():
        earlier = [before["earlier"]] if "earlier" in before else []
        if any(before.get(key) != found[key] for key in TOLD):
            say(f"this run had {_in_words(before)}; it goes on with {_in_words(found)}")
            earlier.append(_in_words(before))
        if earlier:
            found["earlier"] = "; ".join(map(str, earlier))
    if found != before:
        run.write("env.json", found)


def _in_words(env: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {env[name]}" for name in ("torch", "smallvit") if name in env)
    on = f"{env.get('device', 'cpu')} ({env.get('gpu') or env.get('cpu', 'unknown')})"
    return f"{several(env.get('threads', 1), 'thread')} on {on}, {versions or 'versions unknown'}"
