"""What is it worth that memory which torch frees stays with the process (smallvit/training/heap.py)?

    taskset -c 0 python benchmarks/freed_memory.py [--batch 64] [--rounds 6] [--steps 12] [--json FILE]

One training step (forward, backward, AdamW) on one thread, with malloc as it is and inside
`freed_memory_kept()`. malloc learns as it goes and does not forget, so every measurement has a process
of its own; both sides take turns in each round, the other one first each time. Median of the steps after four to warm up, processor time
and page faults; the ratio is formed within a round, its mean is that of its logarithm, with a t-interval over the rounds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F

import smallvit.models  # noqa: F401  (registers ours with timm)
from smallvit.evaluation.statistics import mean_interval
from smallvit.training.heap import freed_memory_kept

CASES = [("conv_nano", 32, "fp32"), ("conv_tiny", 64, "fp32"), ("conv_tiny", 64, "bf16")]
WARM_UP = 4
CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)  # what a process of its own measures
    args = parser.parse_args()
    if args.one:
        model, size, precision, side = args.one
        print(json.dumps(measured(model, int(size), precision, side == "kept", args.batch, args.steps)))
        return
    cases = []
    print("| model | px | precision | ms, as it is | ms, kept | page faults, as it is | page faults, kept | speed |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for model, size, precision in CASES:
        rounds = []
        for number in range(args.rounds):
            sides = ("usual", "kept") if number % 2 else ("kept", "usual")
            rounds.append({side: in_own_process(model, size, precision, side, args) for side in sides})
        cases.append({"model": model, "size": size, "precision": precision, "rounds": rounds})
        print(row(cases[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps({**conditions(args), "cases": cases}, indent=1) + "\n")


def in_own_process(model: str, size: int, precision: str, side: str, args: argparse.Namespace) -> dict[str, float]:
    told = [f"--batch={args.batch}", f"--steps={args.steps}", "--one", model, str(size), precision, side]
    done = subprocess.run([sys.executable, __file__, *told], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def measured(name: str, size: int, precision: str, kept: bool, batch: int, steps: int) -> dict[str, float]:
    torch.set_num_threads(1)
    model = timm.create_model(name, num_classes=CLASSES, img_size=size).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images_BCHW = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
    labels_B = torch.randint(0, CLASSES, (batch,))
    seconds, faults = [], []
    with freed_memory_kept() if kept else nullcontext():
        for _ in range(WARM_UP + steps):
            began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = F.cross_entropy(model(images_BCHW), labels_B)
            loss.backward()
            optimizer.step()
            seconds.append(time.process_time() - began)
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return {
        "ms": 1000 * statistics.median(seconds[WARM_UP:]),
        "faults": statistics.median(faults[WARM_UP:]),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def row(case: dict[str, Any]) -> str:
    rounds = case["rounds"]
    logs = [math.log(one["usual"]["ms"] / one["kept"]["ms"]) for one in rounds]
    mean, low, high = (math.exp(number) for number in mean_interval(logs))
    cells = [f"`{case['model']}`", str(case["size"]), case["precision"]]
    for key in ("ms", "faults"):
        cells += [f"{statistics.median(one[side][key] for one in rounds):,.0f}" for side in ("usual", "kept")]
    return f"| {' | '.join(cells)} | {mean:.2f} ({low:.2f} to {high:.2f}) |"


def conditions(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "date": str(datetime.date.today()),
        "command": f"python benchmarks/freed_memory.py --batch {args.batch} --rounds {args.rounds} --steps {args.steps}",
        "machine": {"kind": platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
        "libc": " ".join(platform.libc_ver()),
        "torch": torch.__version__,
        "of": "a training step on one thread, malloc as it is and with freed memory kept",
    }


if __name__ == "__main__":
    main()
