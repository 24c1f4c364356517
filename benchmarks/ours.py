"""Commands of ours as benchmarks run them, and the stores that keep what they found.

A run is one command of the code in some folder, `smallvit train SET.npz --budget 240s`. Where it is to have so much processor time,
whatever else the machine does, it is shown the processor's clock in the place of that on the wall.

A store is a JSON file with one record a run, written as soon as the run ends; several benchmarks may write at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvit.runs.atomic import write_text
from smallvit.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "runs" / "contest"
# What waits for time (threads, processes) is imported before the clock is exchanged.
PROCESSOR_CLOCK = (
    "import concurrent.futures, multiprocessing, queue, runpy, subprocess, sys, threading, time; "
    "time.monotonic = time.perf_counter = time.process_time; "
    "sys.argv[0] = 'smallvit'; runpy.run_module('smallvit', run_name='__main__')"
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
TOO_LONG = 1.5  # times the seconds: the process is ended


# ---- the store -----------------------------------------------------------------------------------------


def read(store: Path) -> dict[str, Any]:
    empty = {"seconds": None, "sets": {}, "machines": [], "tries": {}, "runs": {}, "broken": {}}
    return json.loads(store.read_text()) if store.is_file() else empty


class Opened:
    """The record, to be changed: whoever else writes to the store waits."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def __enter__(self) -> dict[str, Any]:
        self.lock = os.open(self.store.parent, os.O_RDONLY)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.record = read(self.store)
        return self.record

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            write_text(self.store, json.dumps(self.record, indent=1) + "\n")
        os.close(self.lock)


def machine_number(record: dict[str, Any]) -> int:
    machine = environment("cpu", 1)
    if machine not in record["machines"]:
        record["machines"].append(machine)
    return record["machines"].index(machine)


# ---- a run ---------------------------------------------------------------------------------------------


class Spent(NamedTuple):
    status: int  # of the process, as `wait` has it
    seconds: float
    cpu_seconds: float


def command(words: list[str], processor_clock: bool) -> list[str]:
    return [sys.executable, *(["-c", PROCESSOR_CLOCK] if processor_clock else ["-m", "smallvit"]), *words]


def code_in(ours: Path) -> dict[str, str]:
    """The environment in which a command is the code of that folder."""
    return {**os.environ, "PYTHONPATH": str(ours.resolve() / "src")}


def end_after(seconds: float) -> None:
    """In a process that begins: it is ended when it has taken far more processor time than it was given."""
    most = int(TOO_LONG * seconds) + 30
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))


def run_alone(words: list[str], ours: Path, processor_seconds: float | None = None) -> Spent:
    """With `processor_seconds`: on one thread, by the processor's clock; else by the wall, on all cores."""
    timed = processor_seconds is not None
    began = time.monotonic()
    process = subprocess.Popen(
        command(words, timed), env=code_in(ours) | (ONE_THREAD if timed else {}),
        preexec_fn=(lambda: end_after(processor_seconds)) if processor_seconds is not None else None,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    return Spent(status, round(time.monotonic() - began, 1), round(usage.ru_utime + usage.ru_stime, 1))


def found_in(folder: Path, ours: Path, labels_N: NDArray[np.int64]) -> dict[str, Any]:
    """From a run folder, the predictions in the order of the test part."""
    from safetensors.numpy import load_file

    results = json.loads((folder / "results.json").read_text())
    recipe = json.loads((folder / "recipe.json").read_text())["resolved"]
    stored = load_file(folder / "predictions.safetensors")
    in_order = np.argsort(stored["rows"])
    if not np.array_equal(stored["labels"][in_order], labels_N):
        raise ValueError("the run was judged on other images than the test part")
    code = subprocess.run(["git", "-C", ours, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "epochs": recipe["epochs"], "parameters": results["model"]["parameters"], "code": code.stdout.strip(),
        "predictions": stored["probabilities"].argmax(1)[in_order],
        "floors": {floor["label"]: floor["accuracy"] for floor in results["floors"].values() if floor.get("accuracy")},
    }  # fmt: skip


def judged(found: dict[str, Any], labels_N: NDArray[np.int64]) -> dict[str, Any]:
    """With how many and which test images are right in the place of the predictions."""
    predictions, rest = np.asarray(found["predictions"]), {key: found[key] for key in found if key != "predictions"}
    right_N = predictions == labels_N
    counts = {"accuracy": right_N.mean().item(), "correct": int(right_N.sum()), "n": len(right_N)}
    return counts | rest | {"right": np.packbits(right_N).tobytes().hex()}
