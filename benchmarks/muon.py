"""What a step of Muon costs: by Gram matrices, as training/muon.py does it, in 32 and in 16 bits, beside the iteration as it was published.

    python benchmarks/muon.py [--rounds 15] [--json docs/results/muon-step.json]

The matrices of each model of our family, on one thread. The sides take turns; processor time; a ratio is formed within a
round, its mean is that of its logarithm, with a t-interval over the rounds. Beside it the forward and backward pass of a batch of 64.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.evaluation.statistics import mean_interval
from smallvit.models.features import create_backbone
from smallvit.runs.atomic import write_text
from smallvit.runs.environment import environment
from smallvit.training.muon import COEFFICIENTS, ITERATIONS, orthogonal
from smallvit.training.optimizer import hidden_matrices

MODELS = ("conv_nano", "conv_micro", "conv_tiny", "hybrid_tiny")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {name: measured(name, given.rounds) for name in MODELS}
    for name, one in found.items():
        print(f"{name}: {one['published_ms']:.1f} ms; forward and backward {one['model_ms']:.0f} ms")
        for side in ("fp32", "bf16"):
            ours = one[side]
            low, high = ours["interval"]
            print(
                f"  by Gram matrices, {side}: {ours['ms']:.1f} ms, {ours['ratio']:.2f} times as fast ({low:.2f} to {high:.2f})"
            )
    if given.json:
        about = {"date": str(datetime.date.today()), "rounds": given.rounds, "machine": environment("cpu", 1)}
        write_text(given.json, json.dumps(about | {"models": found}, indent=1) + "\n")


def measured(name: str, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    backbone = create_backbone(name, {}, num_classes=10, in_chans=3, img_size=32)
    model = backbone.model.to(memory_format=torch.channels_last)
    groups: dict[tuple[int, ...], list[Tensor]] = {}
    for matrix in hidden_matrices(backbone):
        groups.setdefault(tuple(matrix.shape), []).append(torch.randn(len(matrix), matrix[0].numel()))
    alike = [torch.stack(matrices) for matrices in groups.values()]
    sides: dict[str, Callable[[], Any]] = {
        "published": lambda: [published(matrices_GRC) for matrices_GRC in alike],
        "fp32": lambda: [orthogonal(matrices_GRC) for matrices_GRC in alike],
        "bf16": lambda: in_bf16(lambda: [orthogonal(matrices_GRC) for matrices_GRC in alike]),
    }
    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):  # the first warms up
        for side in list(sides)[:: 1 if number % 2 else -1]:
            times[side].append(seconds(sides[side]))
    whole = [seconds(lambda: step(model)) for _ in range(5)]
    return {
        "published_ms": 1000 * median(times["published"][1:]), "model_ms": 1000 * median(whole[1:]),
        "fp32": beside(times["published"][1:], times["fp32"][1:]), "bf16": beside(times["published"][1:], times["bf16"][1:]),
    }  # fmt: skip


def beside(published_R: list[float], ours_R: list[float]) -> dict[str, Any]:
    logs = [math.log(before / after) for before, after in zip(published_R, ours_R, strict=True)]
    ratio, low, high = map(math.exp, mean_interval(logs))
    return {"ms": 1000 * median(ours_R), "ratio": ratio, "interval": [low, high]}


def published(matrices_GRC: Tensor) -> Tensor:
    tall = matrices_GRC.shape[1] > matrices_GRC.shape[2]
    x = matrices_GRC.mT if tall else matrices_GRC
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def in_bf16(work: Callable[[], Any]) -> Any:
    """As the loop does it where a run's precision is bf16."""
    with torch.autocast("cpu", torch.bfloat16):
        return work()


def step(model: Any) -> None:
    images = torch.randn(64, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    answers = in_bf16(lambda: model(images))
    F.cross_entropy(answers.float(), torch.zeros(64, dtype=torch.int64)).backward()


def seconds(work: Callable[[], Any]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


if __name__ == "__main__":
    main()
