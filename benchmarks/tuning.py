"""Does tuning pay? `smallvit tune` beside the default recipe, with the same time on the wall and the same cores.

    python benchmarks/tuning.py [--sets first50 svhn] [--seeds 3] [--time 30m] [--minutes 60]
    python benchmarks/contest_page.py --store docs/results/tuning.json --against tune

One command at a time has the machine to itself: a time on the wall means nothing beside other work. Both are given nothing but the
images, the time and a seed; a seed of `tune` is that of its search and of its final model, which alone is judged on the test images.
The sets are those of the contest. What ended is in the store, and is not run again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from ours import ROOT, WORK, Opened, found_in, judged, machine_number, read, run_alone
from rivals.sets import SETS, prepared

ENTRANTS = {"default": ("train", "."), "tune": ("tune", "final")}  # the command, and the run that is judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["first50", "svhn"], choices=list(SETS), metavar="SET")
    parser.add_argument("--entrants", nargs="+", default=list(ENTRANTS), choices=list(ENTRANTS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--time", default="30m", help="the budget of each, as smallvit takes it")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further run after this time")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--ours", type=Path, default=ROOT, help="the project's folder that is run")
    parser.add_argument("--store", type=Path, default=ROOT / "docs" / "results" / "tuning.json")
    given = parser.parse_args()
    begin(given)
    started = time.monotonic()
    for seed in range(given.seeds):
        for name in given.sets:
            for entrant in given.entrants:
                key = f"{entrant}/{name}/{seed}"
                if key not in read(given.store)["runs"] and time.monotonic() - started < 60 * given.minutes:
                    print(key, run(entrant, name, seed, given), flush=True)


def begin(given: argparse.Namespace) -> None:
    with Opened(given.store) as record:
        if record.setdefault("time", given.time) != given.time:
            sys.exit(f"{given.store} holds runs of {record['time']}: give --time {record['time']} or a --store")
        for name in given.sets:
            with np.load(prepared(name, given.data, WORK)) as found:
                facts = {
                    "train": len(found["y_train"]),
                    "test": len(found["y_test"]),
                    "classes": len(found["class_names"]),
                }
                record["sets"].setdefault(name, {}).update(facts)


def run(entrant: str, name: str, seed: int, given: argparse.Namespace) -> str:
    """Store what the command found, and say it."""
    command, judged_run = ENTRANTS[entrant]
    data, folder = prepared(name, given.data, WORK), WORK / "tuning" / f"{entrant}-{name}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    words = [command, str(data), "--budget", given.time, "--seed", str(seed), "--out", str(folder), "--quiet"]
    spent = run_alone(words, given.ours)
    with np.load(data) as found, Opened(given.store) as record:
        if spent.status:
            record["broken"][f"{entrant}/{name}/{seed}"] = f"status {os.waitstatus_to_exitcode(spent.status)}"
            return "broke"
        result = judged(found_in(folder / judged_run, given.ours, found["y_test"]), found["y_test"])
        result |= {"seconds": spent.seconds, "cpu_seconds": spent.cpu_seconds, "seed": seed, "settings": {}}
        result |= {"machine": machine_number(record), **about_trials(folder)}
        floors = result.pop("floors")
        record["sets"][name]["floors"] = floors
        record["runs"][f"{entrant}/{name}/{seed}"] = result
    return f"{result['accuracy']:.1%} in {spent.seconds} s"


def about_trials(folder: Path) -> dict[str, Any]:
    """How many there were, and the recipe that was found."""
    best = folder / "best.toml"
    trials = len(list(folder.glob("trial-*/trial.json")))
    return {"trials": trials, "best": tomllib.loads(best.read_text(encoding="utf-8"))} if best.is_file() else {}


if __name__ == "__main__":
    main()
