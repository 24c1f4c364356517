"""Does `smallvit train DATA --budget TIME` end when it should, and how much of the time is training?

    python benchmarks/budgets.py --data FOLDER_OR_FILE [MORE ...] [--seconds 60 240 900] [--beside 0 1] [--json FILE]

The whole command, from the start of Python to its end, by the clock of the wall: reading, floors, planning, training, judgement, report.
`--beside 1`: while another process computes without a pause, so that on two cores each has one, and a run that wants both shares them.
`--running`: it was started by hand. A store that is there is gone on with. What a run says of its training time is taken from its
results; all else is `beside_training`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import torch

BUSY = "while True: sum(range(10_000))"
HEAD = "| set | beside | asked, s | taken, s | of what was asked | beside training, s | accuracy |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--seconds", type=int, nargs="+", default=[60, 240, 900])
    parser.add_argument("--beside", type=int, nargs="+", default=[0, 1], help="processes that compute meanwhile")
    parser.add_argument("--running", action="store_true", help="they run already: nothing is started beside")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: list[dict[str, Any]] = json.loads(args.json.read_text())["runs"] if args.json and args.json.exists() else []
    for others, seconds, data in product(args.beside, args.seconds, args.data):
        asked = {"set": data.stem, "beside": others, "asked": seconds}
        if any(asked.items() <= one.items() for one in found):
            continue
        with busy(0 if args.running else others):
            found.append({**asked, **run(data, seconds)})
        print(row(found[-1]), file=sys.stderr, flush=True)
        if args.json:
            args.json.write_text(json.dumps({**conditions(), "runs": found}, indent=1) + "\n")
    print("\n".join([HEAD, "|---|---:|---:|---:|---:|---:|---:|", *map(row, found)]))


def run(data: Path, seconds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "smallvit", "train", str(data), "--budget", f"{seconds}s", "--out", str(out)]
        load, began = round(os.getloadavg()[0], 1), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        taken = time.perf_counter() - began
        results = json.loads((out / "results.json").read_text())
        recipe = json.loads((out / "recipe.json").read_text())["resolved"]
    return {
        "command": f"smallvit train {data.name} --budget {seconds}s",
        "taken": round(taken, 2),
        "beside_training": round(taken - results["timing"]["train_seconds"], 2),
        "accuracy": results["parts"][results["evaluated_part"]]["accuracy"],
        "threads": recipe["threads"],
        "model": recipe["model"]["name"],
        "load_before": load,
    }


@contextmanager
def busy(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def row(one: dict[str, Any]) -> str:
    share = one["taken"] / one["asked"]
    told = (f"{one['taken']:.1f}", f"{share:.1%}", f"{one['beside_training']:.1f}", f"{one['accuracy']:.1%}")
    return f"| {one['set']} | {one['beside']} | {one['asked']} | {' | '.join(told)} |"


def conditions() -> dict[str, Any]:
    return {
        "machine": {"kind": platform.machine(), "cores": os.cpu_count()},
        "torch": torch.__version__,
        "of": "the whole command by the clock of the wall",
    }


if __name__ == "__main__":
    main()
