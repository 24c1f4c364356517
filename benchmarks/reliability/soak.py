"""Soak: many small trainings one after the other, in one process, or as a group; memory, threads, files and processes stay flat.

    python benchmarks/reliability/soak.py [--trainings 200] [--group 200]

The slope is that of a straight line through all trainings but the first ten, which fill caches, with its 95 % interval. Figures of
matplotlib hold each other in circles, which Python collects now and then, so memory goes up and down like a saw. What is really held is
looked at after a collection, every twentieth training: bytes that malloc has given out, objects of Python, tensors, and the memory of
the process when malloc has given back what it kept for later. That settles while caches fill, so the second half has a slope of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from forks import start
from scipy.stats import linregress, t
from storing import SMALL, store, stored, table

import smallvit

WARM, EVERY = 10, 20
TINY = {"per_class": 2, "batch_size": 8, "epochs": 1, "threads": 1, "model": "vit_pico"}


def taken(pid: int) -> dict[str, float]:
    """What a process holds now, as the system sees it."""
    about = Path("/proc", str(pid))
    status = dict(line.split(":", 1) for line in (about / "status").read_text(encoding="utf-8").splitlines())
    children = sum(1 for entry in Path("/proc").iterdir() if entry.name.isdigit() and parent(entry) == pid)
    return {
        "memory MB": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]),
        "files": len(list((about / "fd").iterdir())), "processes": children,
    }  # fmt: skip


def parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return -1


class MallInfo(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def alive() -> dict[str, float]:
    """What this process still holds when all circles are collected and free memory is the system's again."""
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    libc.mallinfo2.restype = MallInfo
    given: MallInfo = libc.mallinfo2()
    objects = gc.get_objects()
    return {
        "memory MB": taken(os.getpid())["memory MB"], "malloc in use, MB": (given.uordblks + given.hblkhd) / 2**20, "blocks of Python": sys.getallocatedblocks(),
        "objects of Python": len(objects), "tensors": sum(issubclass(type(one), torch.Tensor) for one in objects),
    }  # fmt: skip


Seen = list[dict[str, float]]


def in_one_process(trainings: int) -> Iterator[tuple[Seen, Seen]]:
    """All so far, after every training: what was held then, and, now and then, what was after a collection."""
    seen: Seen = []
    held: Seen = []
    for number in range(trainings):
        folder = Path(tempfile.mkdtemp())
        smallvit.train("digits", seed=number, out=folder / "run", show_progress=False, **TINY)
        shutil.rmtree(folder)
        if number >= WARM:
            seen.append(taken(os.getpid()))
        if number >= WARM and number % EVERY == WARM:
            held.append(alive())
        yield seen, held


def slopes(seen: list[dict[str, float]], apart: int = 1) -> dict[str, Any]:
    """A training adds so much, with its interval."""
    found: dict[str, Any] = {}
    for name in seen[0]:
        values = np.array([one[name] for one in seen])
        fit = linregress(apart * np.arange(len(values)), values)
        half = float(t.ppf(0.975, len(values) - 2) * fit.stderr) if np.ptp(values) else 0.0
        found[name] = {
            "first": round(float(values[0]), 2), "last": round(float(values[-1]), 2), "most": round(float(values.max()), 2),
            "each": round(float(fit.slope), 5), "interval": [round(float(fit.slope) - half, 5), round(float(fit.slope) + half, 5)],
        }  # fmt: skip
    return found


def later(seen: Seen, held: Seen) -> dict[str, Any]:
    """The slopes of the second half alone, once there are looks enough."""
    if len(held) < 6:
        return {}
    return {"slopes": slopes(seen[len(seen) // 2 :]), "held": slopes(held[len(held) // 2 :], EVERY)}


def as_group(trainings: int, keep: Callable[[dict[str, Any]], object] = lambda so_far: None) -> dict[str, Any]:
    """The process of a group is looked at when a seed has ended; nothing is left of them but their folders."""
    few = (*SMALL, "--epochs", "1", "--per-class", "2", "--seeds", trainings, "--jobs", "1")
    with tempfile.TemporaryDirectory() as place:
        group = Path(place) / "group"
        child = start("train", "digits", *few, "--out", group)
        seen: Seen = []
        ended = 0
        while not child.ended_within(0.2):
            now = len(list(group.glob("seed-*/results.json")))
            if ended < now < trainings:
                seen.append(taken(child.process.pid or 0))
                ended = now
                if now > 2 * WARM and now % EVERY == 0:
                    keep({"trainings": trainings, "finished": now, "slopes": slopes(seen[WARM:])})
        done = child.done()
        finished = len(list(group.glob("seed-*/results.json")))
        left = [path.name for path in Path(place).rglob(".*")]
    return {
        "trainings": trainings, "status": done.status, "finished": finished, "left": left, "seconds": round(done.seconds),
        "slopes": slopes(seen[min(WARM, len(seen) // 3) :]), **({"said": done.err[-300:]} if done.status else {}),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=200)
    parser.add_argument("--group", type=int, default=200)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    figures = {key: value for key, value in stored("soak").items() if key not in ("command", "machine")}
    for number, (seen, held) in enumerate(in_one_process(asked.trainings), 1):
        if len(held) > 2 and (number % EVERY == 0 or number == asked.trainings):
            figures["one process"] = {
                "trainings": number, "slopes": slopes(seen), "held": slopes(held, EVERY), "second half": later(seen, held),
            }  # fmt: skip
            store("soak", figures, "python benchmarks/reliability/soak.py")
            print(number, figures["one process"], flush=True)

    def keep(group: dict[str, Any]) -> None:
        store("soak", figures | {"group": group}, "python benchmarks/reliability/soak.py")

    if asked.group:
        figures["group"] = as_group(asked.group, keep)
        keep(figures["group"])
    for name in ("one process", "group"):
        each = {**figures[name]["slopes"], **figures[name].get("held", {})} if name in figures else {}
        rows = [[what, f["first"], f["last"], f["most"], f["each"], f["interval"]] for what, f in each.items()]
        print(name, table(["held", "first", "last", "most", "each training adds", "95 % interval"], rows), sep="\n")


if __name__ == "__main__":
    main()
