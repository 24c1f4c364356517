"""What a step of Muon costs: by Gram matrices, as training/muon.py does it, beside the iteration as it was published.

    python benchmarks/muon.py [--rounds 15] [--json docs/results/muon-step.json]

The matrices of each model of our family, on one thread, fp32. Both sides take turns; processor time; the ratio is formed within a
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
        low, high = one["interval"]
        print(
            f"{name}: {one['published_ms']:.1f} ms, {one['ours_ms']:.1f} ms, {one['ratio']:.2f} times as fast ({low:.2f} to {high:.2f}); "
            f"forward and backward {one['model_ms']:.0f} ms"
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
    sides: list[Callable[[], Any]] = [
        lambda: [published(matrices_GRC) for matrices_GRC in alike],
        lambda: [orthogonal(matrices_GRC) for matrices_GRC in alike],
    ]
    times: list[list[float]] = []
    for number in range(rounds + 1):  # the first warms up
        order = (0, 1) if number % 2 else (1, 0)
        taken = {side: seconds(sides[side]) for side in order}
        times.append([taken[0], taken[1]])
    middle, low, high = mean_interval([math.log(before / after) for before, after in times[1:]])
    whole = [seconds(lambda: step(model)) for _ in range(5)]
    return {
        "published_ms": 1000 * median(before for before, _ in times[1:]),
        "ours_ms": 1000 * median(after for _, after in times[1:]),
        "ratio": math.exp(middle), "interval": [math.exp(low), math.exp(high)], "model_ms": 1000 * median(whole[1:]),
    }  # fmt: skip


def published(matrices_GRC: Tensor) -> Tensor:
    tall = matrices_GRC.shape[1] > matrices_GRC.shape[2]
    x = matrices_GRC.mT if tall else matrices_GRC
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def step(model: Any) -> None:
    images = torch.randn(64, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        answers = model(images)
    F.cross_entropy(answers.float(), torch.zeros(64, dtype=torch.int64)).backward()


def seconds(work: Callable[[], Any]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


if __name__ == "__main__":
    main()
