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
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ours import ONE_THREAD, ROOT, WORK, Opened, code_in, command, end_after, found_in, judged, machine_number, read
from rivals.sets import CONTEST, SETS, prepared
from rivals.tries import TRIES, Settings
from smallvit.planning.evidence import levers
from smallvit.runs.environment import environment

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
        # By its time, too: a contest of four minutes and one of fifteen may run side by side.
        return WORK / f"{self.kind}-{self.seconds:.0f}" / self.key.replace("/", "-").replace(" ", "-")

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


def begin(given: argparse.Namespace) -> None:
    """Prepare the sets; a store of runs with another time is refused."""
    with Opened(given.store) as record:
        if record["seconds"] not in (None, given.seconds):
            sys.exit(
                f"{given.store} holds runs of {record['seconds']} s: give --seconds {record['seconds']} or a --store"
            )
        record["seconds"] = given.seconds
        here = environment("cpu", 1)["cpu"]
        if others := {machine["cpu"] for machine in record["machines"]} - {here}:
            print(
                f"{given.store} holds runs of {', '.join(sorted(others))}, and this is {here}: equal time is not equal work"
            )
        for name in given.sets:
            prepared(name, given.data, WORK, tuning=True)
            with np.load(prepared(name, given.data, WORK)) as found:
                record["sets"].setdefault(name, {}).update(
                    train=len(found["y_train"]), test=len(found["y_test"]), classes=len(found["class_names"])
                )


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
    if task.entrant in OURS:
        words = ["train", str(data), "--out", str(task.folder), "--quiet", "--threads", "1", "--seed", str(task.seed)]
        words += ["--budget", f"{task.seconds:.0f}s", *OURS[task.entrant]]
        whole, environ = command(words, processor_clock=True), code_in(given.ours)
    else:
        task.folder.mkdir()
        whole = [given.python, str(ROOT / "benchmarks" / "rivals" / f"{task.entrant}.py"), "--data", str(data)]
        whole += ["--seconds", str(task.seconds), "--seed", str(task.seed), "--out", str(task.folder / "result.json")]
        whole += [part for key, value in task.settings.items() for part in ("--set", f"{key}={value}")]
        environ = dict(os.environ)
    with task.log.open("wb") as log:
        return subprocess.Popen(
            whole, stdout=log, stderr=log, env=environ | ONE_THREAD, cwd=task.folder.parent,
            preexec_fn=lambda: end_after(task.seconds),
        ).pid  # fmt: skip


def keep(task: Task, status: int, cpu_seconds: float, given: argparse.Namespace) -> str:
    """Store what a process found, and say it."""
    with np.load(prepared(task.set, given.data, WORK, tuning=task.kind == "tries")) as data:
        labels_N = data["y_test"]
    try:
        if status:
            raise RuntimeError(f"status {os.waitstatus_to_exitcode(status)}")
        found = found_in(task.folder, given.ours, labels_N) if task.entrant in OURS else of_rival(task)
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


def of_rival(task: Task) -> dict[str, Any]:
    result = json.loads((task.folder / "result.json").read_text())
    return {key: result[key] for key in ("epochs", "parameters", "predictions")}


if __name__ == "__main__":
    main()
