"""What do loop, log and augmentation cost beside the bare step?

    OMP_NUM_THREADS=1 python benchmarks/overhead.py [--model conv_nano] [--size 32] [--precision bf16] [--epochs 12] [--parts]

The model as `smallvit train` takes it by itself, at its batch, on 2,000 drawn images. The bare step is forward, backward
and the optimizer on a batch that lies ready. Beside it runs what `smallvit train` does for a step: batches that are drawn,
cut out and mirrored, the loop, the norm of the gradient, the log that is written. Both take turns step by step, in one
process and on one thread, so that a busy machine slows both. Processor time, ratio by epoch, median of the epochs; --parts
also says what the single parts cost. Half a minute to a few.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from smallvit import make_recipe
from smallvit.planning.plan import prepare
from smallvit.recipe import resolved
from smallvit.training.loop import Training, train
from smallvit.training.optimizer import make_optimizer
from smallvit.training.session import Recorder

IMAGES, CLASSES = 2_000, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="auto")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        t = training(Path(place) / "drawn.npz", given)
        whole, bare = take_turns(t, Path(place))
        steps = len(t.loader)
        print(
            f"{t.recipe.model.name}, {given.size} px, batch {t.loader.batch_size}, {given.precision}, {t.total} steps"
        )
        ratios = [sum(whole[i : i + steps]) / sum(bare[i : i + steps]) - 1 for i in range(steps, t.total, steps)]
        print(
            f"bare step {1000 * statistics.mean(bare[steps:]):.1f} ms, with loop, log and augmentation "
            f"{1000 * statistics.mean(whole[steps:]):.1f} ms: {statistics.median(ratios):.1%} more "
            f"({min(ratios):.1%} to {max(ratios):.1%} in single epochs)"
        )
        if given.json:
            told = {
                "command": "OMP_NUM_THREADS=1 python benchmarks/overhead.py " + " ".join(sys.argv[1:]),
                "machine": {"kind": platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
                "torch": torch.__version__,
                "model": t.recipe.model.name,
                "batch": t.loader.batch_size,
                "bare_ms": 1000 * statistics.mean(bare[steps:]),
                "whole_ms": 1000 * statistics.mean(whole[steps:]),
                "more_by_epoch": ratios,
            }
            given.json.write_text(json.dumps(told, indent=1) + "\n")
        if given.parts:
            for name, seconds in parts(t, Path(place)).items():
                print(f"  {name:28} {1000 * seconds:6.2f} ms  {seconds / statistics.mean(bare[steps:]):6.2%}")


def training(file: Path, given: argparse.Namespace) -> Training:
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (IMAGES, given.size, given.size, 3), dtype=np.uint8)
    labels = np.arange(IMAGES) % CLASSES
    np.savez(file, x_train=pixels, y_train=labels, x_test=pixels[:100], y_test=labels[:100])
    asked = make_recipe(
        data=file, model=given.model, epochs=given.epochs + 1, threads=1, precision=given.precision,
        settings={"data.test": "test", "data.val": "none"},
    )  # fmt: skip
    return prepare(asked, with_floors=False).training


def take_turns(t: Training, folder: Path) -> tuple[list[float], list[float]]:
    """Processor seconds of every step, as a run takes it and bare. The first epoch warms both up."""
    bare_step = bare(t)
    recorder = Recorder(folder, t, [])
    ticks = train(t)
    whole_seconds: list[float] = []
    bare_seconds: list[float] = []

    def as_a_run_does() -> None:
        recorder.add(next(ticks))

    for _ in range(t.total):
        whole_seconds.append(seconds_of(as_a_run_does))
        bare_seconds.append(seconds_of(bare_step))
    return whole_seconds, bare_seconds


def bare(t: Training) -> Callable[[], None]:
    """Forward, backward and the optimizer on a copy of the model and a batch that lies ready."""
    step = copy.deepcopy(t.step)
    step.train()
    backbone = step.backbone
    optimizer = make_optimizer(step, t.recipe.optimizer, t.device)
    batch = t.loader.batch(0, 0)
    images_BCHW = batch.views[0].clone(memory_format=torch.preserve_format)
    narrow = resolved(t.recipe.precision) == "bf16"

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            logits_BK = backbone.classify(backbone(images_BCHW).pooled_BD)
            loss = F.cross_entropy(logits_BK, batch.labels_B)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return run


def parts(t: Training, folder: Path) -> dict[str, float]:
    """Mean processor seconds a step."""
    parameters = list(t.step.parameters())
    recorder = Recorder(folder, t, [])
    numbers = iter(range(1, 10_000))
    t.done = 0
    tick = next(train(t))

    def log() -> None:
        recorder.add(tick._replace(step=next(numbers), ends_epoch=False))

    return {
        "batches": mean_seconds(lambda i: t.loader.batch(100 + i // len(t.loader), i % len(t.loader))),
        "norm of the gradient": mean_seconds(lambda i: torch.nn.utils.clip_grad_norm_(parameters, 1e9)),
        "modes (step.train)": mean_seconds(lambda i: t.step.train()),
        "log": mean_seconds(lambda i: log()),
    }


def mean_seconds(work: Callable[[int], Any], times: int = 93) -> float:
    work(0)
    return seconds_of(lambda: [work(i) for i in range(times)]) / times


def seconds_of(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
