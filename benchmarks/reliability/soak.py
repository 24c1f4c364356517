"""Soak: many small trainings one after the other, in one process, or as a group; memory, threads, files and processes stay flat.

    python benchmarks/reliability/soak.py [--trainings 200] [--group 200]

The slope is that of a straight line through all trainings but the first ten, which fill caches, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import linregress, t
from storing import SMALL, command, store, stored, table

import smallvit

WARM = 10
TINY = {"per_class": 2, "batch_size": 8, "epochs": 1, "threads": 1, "model": "vit_pico"}


def taken() -> dict[str, float]:
    """What this process holds now."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    children = sum(1 for entry in Path("/proc").iterdir() if entry.name.isdigit() and parent(entry) == os.getpid())
    return {
        "memory MB": resident / 1024, "threads": threading.active_count(), "files": len(list(Path("/proc/self/fd").iterdir())),
        "processes": children,
    }  # fmt: skip


def parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return -1


def in_one_process(trainings: int) -> list[dict[str, float]]:
    seen: list[dict[str, float]] = []
    for number in range(trainings):
        folder = Path(tempfile.mkdtemp())
        smallvit.train("digits", seed=number, out=folder / "run", show_progress=False, **TINY)
        shutil.rmtree(folder)
        seen.append(taken())
    return seen


def slopes(seen: list[dict[str, float]]) -> dict[str, Any]:
    """A training adds so much, with its interval."""
    rest = seen[min(WARM, len(seen) // 3) :]
    found: dict[str, Any] = {}
    for name in rest[0]:
        values = np.array([one[name] for one in rest])
        fit = linregress(np.arange(len(values)), values)
        half = float(t.ppf(0.975, len(values) - 2) * fit.stderr)
        found[name] = {
            "first": round(float(values[0]), 2), "last": round(float(values[-1]), 2), "each": round(float(fit.slope), 5),
            "interval": [round(float(fit.slope) - half, 5), round(float(fit.slope) + half, 5)],
        }  # fmt: skip
    return found


def as_group(trainings: int) -> dict[str, Any]:
    """All seeds of one group end, and nothing is left of them but their folders."""
    with tempfile.TemporaryDirectory() as place:
        done = command(
            "train",
            "digits",
            *SMALL,
            "--epochs",
            "1",
            "--seeds",
            str(trainings),
            "--out",
            Path(place) / "group",
            timeout=7200,
        )
        finished = len(list(Path(place).glob("group/seed-*/results.json")))
        left = [path.name for path in Path(place).rglob(".*")]
    return {
        "trainings": trainings,
        "status": done.status,
        "finished": finished,
        "left": left,
        "seconds": round(done.seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=200)
    parser.add_argument("--group", type=int, default=200)
    asked = parser.parse_args()
    figures = {key: value for key, value in stored("soak").items() if key not in ("command", "machine")}
    if asked.trainings:
        figures["one process"] = {"trainings": asked.trainings, "slopes": slopes(in_one_process(asked.trainings))}
    if asked.group:
        figures["group"] = as_group(asked.group)
    store("soak", figures, "python benchmarks/reliability/soak.py")
    if asked.trainings:
        rows = [
            [name, f["first"], f["last"], f["each"], f["interval"]]
            for name, f in figures["one process"]["slopes"].items()
        ]
        print(table(["held", "first", "last", "each training adds", "95 % interval"], rows))
    if asked.group:
        print(figures["group"])


if __name__ == "__main__":
    main()
