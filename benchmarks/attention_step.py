"""What attention by plain products (training/attention.py) gains in bf16 on a CPU: a step of whole models, beside torch's fused kernel.

    python benchmarks/attention_step.py [--models vit_nano deit_tiny] [--rounds 10] [--json docs/results/attention-step.json]

Forward and backward pass of 64 images of 32 px (`--size`), on one thread: in 32 bits, in bf16 with torch's kernel, in bf16 by plain products.
The sides take turns; processor time; a ratio is formed within a round, its mean is that of its logarithm, with a t-interval over the rounds.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch

from muon import beside, in_bf16, seconds
from smallvit.models.aliases import architecture
from smallvit.models.features import create_backbone
from smallvit.runs.atomic import write_text
from smallvit.runs.environment import environment
from smallvit.training.attention import quick_attention

MODELS = ("vit_nano", "dhvt_nano", "t2t_nano", "cvt_nano", "pvt_v2_b0", "deit_tiny", "dhvt_tiny")
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--size", type=int, default=32, help="px")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in given.models:
        one = found[name] = measured(name, given.size, given.rounds)
        for other in ("fp32", "kernel"):
            low, high = one[other]["interval"]
            print(
                f"{name}: {one['plain_ms']:.0f} ms, {one[other]['ratio']:.2f} times as fast as {other} ({low:.2f} to {high:.2f}; {one[other]['ms']:.0f} ms)",
                flush=True,
            )
    if given.json:
        about = {
            "date": str(datetime.date.today()),
            "rounds": given.rounds,
            "size": given.size,
            "machine": environment("cpu", 1),
        }
        write_text(given.json, json.dumps(about | {"models": found}, indent=1) + "\n")


def measured(name: str, size: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    meant = architecture(name, size)
    model = create_backbone(meant.timm_name, meant.kwargs, num_classes=10, in_chans=3, img_size=size).model.train()
    images = torch.randn(BATCH, 3, size, size)
    sides: dict[str, Callable[[], None]] = {
        "fp32": lambda: model(images).logsumexp(1).mean().backward(),
        "kernel": lambda: step_in_bf16(model, images, plain=False),
        "plain": lambda: step_in_bf16(model, images, plain=True),
    }
    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):  # the first warms up
        for side in list(sides)[:: 1 if number % 2 else -1]:
            times[side].append(seconds(sides[side]))
    plain = times.pop("plain")[1:]
    return {"plain_ms": 1000 * median(plain)} | {side: against(others[1:], plain) for side, others in times.items()}


def against(other_R: list[float], plain_R: list[float]) -> dict[str, Any]:
    return {
        "ms": 1000 * median(other_R),
        **{key: value for key, value in beside(other_R, plain_R).items() if key != "ms"},
    }


def step_in_bf16(model: torch.nn.Module, images: torch.Tensor, plain: bool) -> None:
    with quick_attention() if plain else nullcontext():
        in_bf16(lambda: model(images)).float().logsumexp(1).mean().backward()


if __name__ == "__main__":
    main()
