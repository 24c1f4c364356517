"""What torch.compile makes of a training step, and what it costs: the first time, and once its code is kept.

    python benchmarks/compiled_step.py [--models conv_tiny dhvt_nano] [--store docs/results/compiled-step.json]

Each model and precision in processes of their own, one thread, 64 images of 32 px, forward and backward; processor time of the process
and of the compilers that it starts. The first process finds no kept code, the second what the first has left. Plain and compiled steps
take turns, medians; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from smallvit.runs.atomic import write_text
from smallvit.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["conv_tiny", "dhvt_nano", "vit_nano"])
    parser.add_argument("--precisions", nargs="+", default=["bf16", "fp32"])
    parser.add_argument("--store", type=Path, default=ROOT / "docs" / "results" / "compiled-step.json")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "PRECISION"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(*given.one)))
        return
    found: list[dict[str, Any]] = []
    for model in given.models:
        for precision in given.precisions:
            with tempfile.TemporaryDirectory() as kept:
                first, again = (in_process(model, precision, kept) for _ in range(2))
            row = {"model": model, "precision": precision, **first, "again_seconds": again["compile_seconds"]}
            found.append(row)
            print(row, flush=True)
    write_text(given.store, json.dumps({"machine": environment("cpu", 1), "steps": found}, indent=1) + "\n")


def in_process(model: str, precision: str, kept: str) -> dict[str, float]:
    environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": kept, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--one", model, precision]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def measured(name: str, precision: str) -> dict[str, float]:
    import timm
    import torch

    from smallvit.models.aliases import architecture
    from smallvit.training.compiled import compile_model

    torch.set_num_threads(1)
    meant = architecture(name, 32)
    plain = timm.create_model(meant.timm_name, num_classes=10, img_size=32, **meant.kwargs).train()
    compiled = timm.create_model(meant.timm_name, num_classes=10, img_size=32, **meant.kwargs).train()
    compile_model(compiled)
    images = torch.randn(64, 3, 32, 32)

    def step(model: torch.nn.Module) -> float:
        started = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(images).float().logsumexp(1).mean()
        loss.backward()
        return time.process_time() - started

    before = spent()
    step(compiled)
    compile_seconds = spent() - before
    for model in (plain, compiled):
        step(model)
    times = [(step(plain), step(compiled)) for _ in range(ROUNDS)]
    as_it_is, faster = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "plain_ms": round(1000 * as_it_is, 1), "compiled_ms": round(1000 * faster, 1),
        "ratio": round(statistics.median(two / one for one, two in times), 3), "compile_seconds": round(compile_seconds, 1),
    }  # fmt: skip


def spent() -> float:
    """Processor seconds of this process and of those that have ended below it."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
