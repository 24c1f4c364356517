"""What does dense relative localization add to a training step?

    OMP_NUM_THREADS=1 python benchmarks/aux_cost.py [--rounds 21] [--out FILE]

A step (forward, backward, AdamW) with and without the loss, for Swin-T at 224 px with the published head and for the
laptop recipes. The two take turns within each round, first the one and then the other; what is counted is processor
time of one thread: the median over rounds of their ratio, with a 95 % interval (bootstrap over rounds). Multiply-adds
are those of the forward pass of one image. Five minutes.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from smallvit.models.aliases import architecture
from smallvit.models.features import Backbone, create_backbone
from smallvit.objectives import Auxiliary, TaskInfo, auxiliaries, objectives
from smallvit.objectives.base import options_of
from smallvit.recipe import OptimizerSpec, build_recipe
from smallvit.training.optimizer import make_optimizer
from smallvit.training.step import Step
from smallvit.types import Batch, Context, Seen

# Recipe, image size, images in a batch.
CASES = [
    ("liu2021-swin", 224, 8),
    ("liu2021-swin-laptop", 32, 64),
    ("liu2021-t2t-laptop", 32, 64),
    ("liu2021-cvt-laptop", 32, 64),
    ("liu2021-resnet50-laptop", 32, 64),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| recipe | ms a step without | with | more time (95 %) | more multiply-adds |",
        "|---|---|---|---|---|",
    ]
    for case in CASES:
        lines.append(row(*case, given.rounds))
        print(lines[-1], flush=True)
    date = datetime.datetime.now(datetime.UTC).date()
    about = (
        f"# Cost of dense relative localization, {date}\n\n{platform.machine()}, one thread, torch {torch.__version__}; "
        f"{given.rounds} rounds of processor time; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n\n"
    )
    if given.out:
        given.out.write_text(about + "\n".join(lines) + "\n")


def row(preset: str, size: int, count: int, rounds: int) -> str:
    recipe = build_recipe(preset)
    steps = [build(recipe, size, with_loss) for with_loss in (False, True)]
    functions = [step_function(step, size, count) for step in steps]
    times: list[list[float]] = [[], []]
    for turn in range(rounds + 1):
        for which in (0, 1) if turn % 2 else (1, 0):
            before = time.process_time()
            functions[which]()
            if turn:
                times[which].append(time.process_time() - before)
    median, low, high = median_interval([b / a - 1 for a, b in zip(*times, strict=True)])
    without, with_loss = (statistics.median(values) for values in times)
    more = head_macs(steps[1], size) / forward_macs(steps[0].backbone, size)
    return (
        f"| {preset} ({recipe.model.name}, {size} px, batch {count}) | {without * 1000:.0f} | {with_loss * 1000:.0f} "
        f"| {median:+.1%} ({low:+.1%} to {high:+.1%}) | {more:+.1%} |"
    )


def median_interval(values: list[float]) -> tuple[float, float, float]:
    drawn = np.random.default_rng(0).choice(values, (5_000, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return statistics.median(values), float(low), float(high)


def build(recipe: Any, size: int, with_loss: bool) -> Step:
    torch.manual_seed(0)
    plan = architecture(recipe.model.name, size)
    backbone = create_backbone(plan.timm_name, plan.kwargs, num_classes=10, in_chans=3, img_size=size)
    setting = TaskInfo(num_classes=10, num_images=1_000, img_size=size)
    objective = objectives()["supervised"](backbone, options_of(objectives(), "supervised", {}, "objective"), setting)
    found: dict[str, Auxiliary] = {}
    if with_loss:
        options = options_of(auxiliaries(), "drloc", recipe.aux["drloc"], "aux")
        found["drloc"] = auxiliaries()["drloc"](backbone, options, setting)
    step = Step(backbone, objective, found)
    return step.to(memory_format=backbone.memory_format).train()


def step_function(step: Step, size: int, count: int) -> Callable[[], None]:
    optimizer = make_optimizer(step, OptimizerSpec(lr=1e-4, weight_decay=0.05), torch.device("cpu"))
    batch = batch_of(size, count)

    def take() -> None:
        loss = step(batch, Context(20, 1_000, 0.3, torch.Generator().manual_seed(0), epochs=100))
        optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        optimizer.step()

    return take


def batch_of(size: int, count: int) -> Batch:
    images: Tensor = torch.randn(count, 3, size, size).contiguous(memory_format=torch.channels_last)
    return Batch((images,), torch.arange(count) % 10, torch.arange(count))


def forward_macs(backbone: Backbone, size: int) -> float:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        backbone.eval()(torch.zeros(1, 3, size, size))
    return counter.get_total_flops() / 2


def head_macs(step: Step, size: int) -> float:
    batch = batch_of(size, 1)
    seen = Seen.of(batch, batch.views[0], step.backbone.eval()(batch.views[0]))
    context = Context(20, 1_000, 0.3, torch.Generator().manual_seed(0), epochs=100)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        step.auxiliaries["drloc"](step.backbone, seen, context)
    return counter.get_total_flops() / 2


if __name__ == "__main__":
    main()
