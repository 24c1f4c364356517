"""The contest: what test accuracy do methods reach on small image sets in equal processor time, all in, on one thread?

    python benchmarks/contest.py tune [--sets cifar200 flowers] [--entrants cnn airbench] [--jobs 1] [--minutes 60]
    python benchmarks/contest.py run  [--sets ...] [--entrants ...] [--seeds 3] [--jobs 2] [--minutes 60]
    python benchmarks/contest_page.py --write docs/results.md

The time of a run is that of the whole command: user and system time of the process and its children, from the start of
Python to its end. The rivals are the scripts of benchmarks/rivals; each reads the clock and ends in time. `tune` tries
six settings of each rival (rivals/tries.py) for half the time on images that are not the test images. `run` takes the
best of them, trains with several seeds, and judges each once on the test part. Where nothing was tried on a set, the
settings are those of a set of the same image size.

Ours are commands: `smallvit train SET.npz --threads 1 --budget 240s`, of the code in --ours. Their budget is in seconds
of the wall, so they are shown the processor's clock instead: on a machine that does other work too they train as long
as on one of their own. They are not tuned here, and what they spend too much or too little is in the table.

An ablation is a contest of the default with itself: `run --entrants default without-optimizer.name ...` trains it with one of
its levers switched off (`without-SETTING`), and `contest_page.py --against default` gives the differences. Give it a --store of
its own.

Longer runs have a --store of their own, too, and take what was tried for the shorter ones:
`run --seconds 900 --store docs/results/contest-900.json --tries docs/results/contest.json`. Where attention pays is the default beside
`hybrid` in such stores, with 10,000 images too (`run --sets cifar1000 --entrants default hybrid`): attention_page.py has the table.

All that was found is in docs/results/contest.json, one record per run, as soon as it ends; a contest goes on where it
was stopped, and several may write at once. A run that broke is listed and stops nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rivals.sets import CONTEST, SETS, prepared
from rivals.tries import TRIES, Settings
from smallvit.planning.evidence import levers
from smallvit.runs.atomic import write_text
from smallvit.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "runs" / "contest"
OURS: dict[str, list[str]] = {  # the flags of each, beside data, seed, threads and budget
    "default": [],
    "hybrid": ["--model", "hybrid"],  # the same family with attention, its width by the same rule
    "vit_nano": ["--model", "vit_nano"],
    "dhvt_nano": ["--model", "dhvt_nano"],
    "resnet_nano": ["--model", "resnet_nano"],
}
# The default with one of its levers switched off, for the ablation.
ABLATED = (
    "augment.saturation", "model.kwargs.whiten", "model.kwargs.global_pool", "optimizer.name", "batch_size", "precision",
    "augment.padding", "augment.flip", "data.flips",
)  # fmt: skip
OURS |= {f"without-{lever.setting}": shlex.split(lever.off) for lever in levers() if lever.setting in ABLATED}
# What waits for time (threads, processes) is imported before the clock is exchanged.
PROCESSOR_CLOCK = (
    "import concurrent.futures, multiprocessing, queue, runpy, subprocess, sys, threading, time; "
    "time.monotonic = time.perf_counter = time.process_time; "
    "sys.argv[0] = 'smallvit'; runpy.run_module('smallvit', run_name='__main__')"
)
TOO_LONG = 1.5  # times the seconds: the process is ended


class Task(NamedTuple):
    kind: str  # tries or runs
    entrant: str
    set: str
    seed: int
    settings: Settings
    seconds: float

    @property
    def key(self) -> str:
        return f"{self.entrant}/{self.set}/{words(self.settings) if self.kind == 'tries' else self.seed}"

    @property
    def folder(self) -> Path:
        return WORK / self.kind / self.key.replace("/", "-").replace(" ", "-")

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")


def words(settings: Settings) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "as it is"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["tune", "run"])
    parser.add_argument("--sets", nargs="+", default=CONTEST, choices=list(SETS), metavar="SET")
    parser.add_argument(
        "--entrants",
        nargs="+",
        default=[*TRIES, *(name for name in OURS if not name.startswith("without-"))],
        choices=[*TRIES, *OURS],
        metavar="NAME",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=240, help="processor time of a run; a try has half of it")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further run after this time")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--ours", type=Path, default=ROOT, help="the project's folder that ours are run from")
    parser.add_argument("--python", default=sys.executable, help="the Python that has what the rivals need")
    parser.add_argument("--store", type=Path, default=ROOT / "docs" / "results" / "contest.json")
    parser.add_argument("--tries", type=Path, help="the store with the rivals' tries, where it is another one")
    given = parser.parse_args()
    if given.tries is not None and not given.tries.is_file():
        sys.exit(f"there is no {given.tries}")
    begin(given)
    do_all(tries(given) if given.do == "tune" else runs(given), given)


# ---- what there is to do -------------------------------------------------------------------------------


def tries(given: argparse.Namespace) -> list[Task]:
    return [
        Task("tries", rival, one, 0, settings, given.seconds / 2)
        for rival in given.entrants
        for one in given.sets
        for settings in TRIES.get(rival, [])
    ]


def runs(given: argparse.Namespace) -> list[Task]:
    """Seeds first, so that a contest that is stopped has all sets and entrants of the seeds it has."""
    record = read(given.tries or given.store)
    return [
        Task("runs", entrant, one, seed, chosen(record, entrant, one), given.seconds)
        for seed in range(given.seeds)
        for entrant in given.entrants
        for one in given.sets
    ]


def chosen(record: dict[str, Any], rival: str, name: str) -> Settings:
    """The settings that were best on this set, or on one of the same image size; else the first.

    What takes longer than a run may take is not chosen, however good.
    """
    if rival in OURS:
        return {}
    same_size = [other for other in SETS if SETS[other].side == SETS[name].side]
    for one in (name, *same_size):
        keys = [f"{rival}/{one}/{words(settings)}" for settings in TRIES[rival]]
        found = [record["tries"][key] for key in keys if key in record["tries"]]
        if in_time := [score for score in found if score["cpu_seconds"] <= record["seconds"]]:
            return max(in_time, key=lambda score: score["accuracy"])["settings"]
    return TRIES[rival][0]


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


def begin(given: argparse.Namespace) -> None:
    """Prepare the sets; a store of runs with another time is refused."""
    with Opened(given.store) as record:
        if record["seconds"] not in (None, given.seconds):
            sys.exit(
                f"{given.store} holds runs of {record['seconds']} s: give --seconds {record['seconds']} or a --store"
            )
        record["seconds"] = given.seconds
        for name in given.sets:
            prepared(name, given.data, WORK, tuning=True)
            with np.load(prepared(name, given.data, WORK)) as found:
                record["sets"].setdefault(name, {}).update(
                    train=len(found["y_train"]), test=len(found["y_test"]), classes=len(found["class_names"])
                )


def machine_number(record: dict[str, Any]) -> int:
    machine = environment("cpu", 1)
    if machine not in record["machines"]:
        record["machines"].append(machine)
    return record["machines"].index(machine)


# ---- the runs ------------------------------------------------------------------------------------------


def do_all(tasks: list[Task], given: argparse.Namespace) -> None:
    stored = read(given.store)
    waiting = [task for task in tasks if task.key not in stored[task.kind]]
    total, started, active = len(waiting), time.monotonic(), {}
    while waiting or active:
        while waiting and len(active) < given.jobs and time.monotonic() - started < 60 * given.minutes:
            task = waiting.pop(0)
            active[launch(task, given)] = task
        if not active:
            break
        process, status, usage = os.wait4(-1, 0)
        task = active.pop(process)
        found = keep(task, status, round(usage.ru_utime + usage.ru_stime, 1), given)
        done = total - len(waiting) - len(active)
        left = (time.monotonic() - started) / done * (total - done) / 60
        print(f"{done}/{total} {task.kind} {task.key}: {found}, about {left:.0f} min left", flush=True)


def launch(task: Task, given: argparse.Namespace) -> int:
    data = prepared(task.set, given.data, WORK, tuning=task.kind == "tries")
    shutil.rmtree(task.folder, ignore_errors=True)
    task.folder.parent.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if task.entrant in OURS:
        environ["PYTHONPATH"] = str(given.ours.resolve() / "src")
        command = [sys.executable, "-c", PROCESSOR_CLOCK, "train", str(data), "--out", str(task.folder), "--quiet"]
        command += ["--threads", "1", "--budget", f"{task.seconds:.0f}s", "--seed", str(task.seed), *OURS[task.entrant]]
    else:
        task.folder.mkdir()
        command = [given.python, str(ROOT / "benchmarks" / "rivals" / f"{task.entrant}.py"), "--data", str(data)]
        command += ["--seconds", str(task.seconds), "--seed", str(task.seed), "--out", str(task.folder / "result.json")]
        command += [part for key, value in task.settings.items() for part in ("--set", f"{key}={value}")]
    most = int(TOO_LONG * task.seconds) + 30
    with task.log.open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environ, cwd=task.folder.parent,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most)),
        ).pid  # fmt: skip


def keep(task: Task, status: int, cpu_seconds: float, given: argparse.Namespace) -> str:
    """Store what a process found, and say it."""
    with np.load(prepared(task.set, given.data, WORK, tuning=task.kind == "tries")) as data:
        labels_N = data["y_test"]
    try:
        if status:
            raise RuntimeError(f"status {os.waitstatus_to_exitcode(status)}")
        found = of_ours(task.folder, given.ours, labels_N) if task.entrant in OURS else of_rival(task)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        last = task.log.read_text(errors="replace").strip().splitlines()[-1:]
        with Opened(given.store) as record:
            record["broken"][task.key] = f"{error}, {cpu_seconds} s: {' '.join(last)[:300]}"
        return f"broke: {error}"
    finally:
        shutil.rmtree(task.folder, ignore_errors=True)
    floors = found.pop("floors", None)
    found = judged(found, labels_N) | {"cpu_seconds": cpu_seconds, "seed": task.seed, "settings": task.settings}
    if task.kind == "tries":  # they are compared by their accuracy only
        del found["right"]
    with Opened(given.store) as record:
        record[task.kind][task.key] = found | {"machine": machine_number(record)}
        record["broken"].pop(task.key, None)
        if floors and task.kind == "runs":  # they depend on the set alone
            record["sets"][task.set]["floors"] = floors
    return f"{found['accuracy']:.1%} in {cpu_seconds} s, {found['epochs']} epochs"


def judged(found: dict[str, Any], labels_N: NDArray[np.int64]) -> dict[str, Any]:
    """With how many and which test images are right in the place of the predictions."""
    predictions, rest = np.asarray(found["predictions"]), {key: found[key] for key in found if key != "predictions"}
    right_N = predictions == labels_N
    counts = {"accuracy": right_N.mean().item(), "correct": int(right_N.sum()), "n": len(right_N)}
    return counts | rest | {"right": np.packbits(right_N).tobytes().hex()}


def of_rival(task: Task) -> dict[str, Any]:
    result = json.loads((task.folder / "result.json").read_text())
    return {key: result[key] for key in ("epochs", "parameters", "predictions")}


def of_ours(folder: Path, ours: Path, labels_N: NDArray[np.int64]) -> dict[str, Any]:
    """From the run folder, in the order of the file."""
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


if __name__ == "__main__":
    main()
