"""Several ways to train, compared over paired seeds at equal processor time.

    python benchmarks/study.py benchmarks/studies/dhvt-cifar.toml --data cifar10.npz [--jobs 2] [--show]

A study is a TOML file: what all arms share, the arms, the seconds of processor time each run may train for, and which
arms are compared. The cost of a step is measured first, the arms taking turns, and gives each arm its number of
epochs; these stay fixed from then on. Every run is a process with one thread. What a run found is stored in
docs/results/NAME.json as soon as it ends, so a study goes on where it was stopped; --show only prints the tables.
Nothing selects: there is no validation part, and the last weights are judged once on the test part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smallvit.environment import environment
from smallvit.evaluation.statistics import bootstrap_difference, mean_interval
from smallvit.run import write_text

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, STEPS = 7, 6  # of the measurement


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--data", default="mnist5k")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further run after this time")
    parser.add_argument("--show", action="store_true", help="print the tables of what is there")
    given = parser.parse_args()
    study = tomllib.loads(given.study.read_text())
    store = ROOT / "docs" / "results" / f"{given.study.stem}.json"
    record = json.loads(store.read_text()) if store.is_file() else {}
    if not given.show:
        if record.get("arms_asked") != study["arms"] or record.get("shared") != study["shared"]:
            record = start(study, given.data)
            save(store, record)
        run_all(study, record, given, store)
    print(tables(study, record))


def save(store: Path, record: dict[str, Any]) -> None:
    write_text(store, json.dumps(record, indent=1) + "\n")


# ---- how many epochs the time is worth -----------------------------------------------------------------


def start(study: dict[str, Any], data: str) -> dict[str, Any]:
    steps, plans = measure(study, data)
    arms = {}
    for name, seconds in steps.items():
        per_epoch = len(plans[name].split.train) // plans[name].recipe.batch_size
        epochs = max(1, round(study["cpu_seconds"] / (seconds * per_epoch)))
        arms[name] = {"step_ms": round(seconds * 1000, 2), "steps_per_epoch": per_epoch, "epochs": epochs}
    plan = next(iter(plans.values()))
    return {
        "title": study["title"], "cpu_seconds": study["cpu_seconds"], "shared": study["shared"],
        "arms_asked": study["arms"], "arms": arms, "machine": environment("cpu", 1), "date": time.strftime("%Y-%m-%d"),
        "train_images": len(plan.split.train), "test_images": len(plan.split.test), "floors": plan.floors, "runs": {},
    }  # fmt: skip


def measure(study: dict[str, Any], data: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Median processor time of a step of every arm, the arms taking turns."""
    from smallvit.api import make_recipe
    from smallvit.plan import make_plan
    from smallvit.training.build import build_training
    from smallvit.training.loop import take_step
    from smallvit.training.session import fixed_threads

    plans, trainings = {}, {}
    for number, (name, arm) in enumerate(study["arms"].items()):
        asked = make_recipe(**study["shared"], **arm, data=data, threads=1, epochs=1)
        plans[name] = make_plan(asked, with_floors=not number)
        trainings[name] = build_training(plans[name].recipe, plans[name].images, plans[name].split)
    times: dict[str, list[float]] = {name: [] for name in plans}
    with fixed_threads(1):
        for turn in range(ROUNDS + 1):
            for name, t in trainings.items():
                before = time.process_time()
                for number in range(STEPS):
                    take_step(t, turn, number % len(t.loader), 1e-5)
                if turn:  # the first warms up
                    times[name].append((time.process_time() - before) / STEPS)
    return {name: statistics.median(values) for name, values in times.items()}, plans


# ---- the runs ------------------------------------------------------------------------------------------


def run_all(study: dict[str, Any], record: dict[str, Any], given: argparse.Namespace, store: Path) -> None:
    """Seeds first, so that a study that is stopped has all arms of the seeds it has."""
    waiting = [
        (arm, seed) for seed in range(study["seeds"]) for arm in study["arms"] if f"{arm}/{seed}" not in record["runs"]
    ]
    total, started, active = len(waiting), time.monotonic(), {}
    while waiting or active:
        while waiting and len(active) < given.jobs and time.monotonic() - started < 60 * given.minutes:
            arm, seed = waiting.pop(0)
            folder = ROOT / "runs" / "studies" / store.stem / f"{arm}-{seed}"
            active[launch(study, record, arm, seed, folder, given.data)] = (arm, seed, folder)
        if not active:
            break
        process, status, usage = os.wait4(-1, 0)
        arm, seed, folder = active.pop(process)
        if status:
            sys.exit(f"{arm}, seed {seed} failed: {(folder.parent / f'{folder.name}.log').read_text()[-2000:]}")
        record["runs"][f"{arm}/{seed}"] = read_run(folder) | {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)}
        save(store, record)
        done = total - len(waiting) - len(active)
        left = (time.monotonic() - started) / done * (total - done) / 60
        accuracy = record["runs"][f"{arm}/{seed}"]["accuracy"]
        print(f"{done}/{total} {arm} seed {seed}: {accuracy:.1%}, about {left:.0f} min left", flush=True)


def launch(study: dict[str, Any], record: dict[str, Any], arm: str, seed: int, folder: Path, data: str) -> int:
    folder.parent.mkdir(parents=True, exist_ok=True)
    if (folder / "recipe.json").is_file():
        command = ["resume", str(folder), "--quiet"]
    else:
        settings = study["shared"] | study["arms"][arm] | {"epochs": record["arms"][arm]["epochs"], "seed": seed}
        command = ["train", data, "--out", str(folder), "--threads", "1", "--quiet", "--overwrite", *flags(settings)]
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "smallvit", *command], stdout=log, stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        ).pid  # fmt: skip


def flags(settings: dict[str, Any]) -> list[str]:
    """The command line of keyword arguments: `settings` become --set, a list becomes a repeated flag."""
    found: list[str] = []
    for name, value in settings.items():
        if name == "settings":
            found += [part for key, v in value.items() for part in ("--set", f"{key}={json.dumps(v)}")]
        else:
            for one in value if isinstance(value, list) else [value]:
                found += [f"--{name.replace('_', '-')}", str(one)]
    return found


def read_run(folder: Path) -> dict[str, Any]:
    """Accuracy, and which test images were right, in hexadecimal: enough for every comparison."""
    from safetensors.numpy import load_file

    results = json.loads((folder / "results.json").read_text())
    stored = load_file(folder / "predictions.safetensors")
    right = stored["probabilities"].argmax(1) == stored["labels"]
    return {
        "accuracy": results["parts"]["test"]["accuracy"],
        "right": np.packbits(right).tobytes().hex(),
        "train_seconds": results["timing"]["train_seconds"],
        "parameters": results["model"]["parameters"],
    }


# ---- the tables ----------------------------------------------------------------------------------------


def tables(study: dict[str, Any], record: dict[str, Any]) -> str:
    """Markdown: arms with their intervals over seeds, floors, and the paired differences."""
    n, machine = record["test_images"], record["machine"]
    lines = [
        f"{record['title']}: {record['train_images']:,} training and {n:,} test images, {record['cpu_seconds']} s of "
        f"processor time per run ({machine['cpu']}, one thread).", "",
        "| arm | parameters | epochs | ms a step | CPU s | accuracy by seed, % | mean (95 %, t over seeds) |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for arm, facts in record["arms"].items():
        runs = seeds_of(record, arm)
        if runs:
            accuracy = [100 * run["accuracy"] for run in runs.values()]
            cpu = statistics.mean(run["cpu_seconds"] for run in runs.values())
            parameters = next(iter(runs.values()))["parameters"]
            mean = "{:.1f} ({:.1f} to {:.1f})".format(*mean_interval(accuracy))
            each = ", ".join(f"{value:.1f}" for value in accuracy)
            lines.append(
                f"| {arm} | {parameters:,} | {facts['epochs']} | {facts['step_ms']} | {cpu:.0f} | {each} | {mean} |"
            )
    lines += [
        f"| *{floor['label']}* | | | | | | {100 * floor['accuracy']:.1f} |" for floor in record["floors"].values()
    ]
    lines += ["", "| difference | seeds | points (95 %, t over seeds) | 95 %, bootstrap over seeds and test images |"]
    lines += ["|---|---|---|---|"]
    for arm, other in study["compare"]:
        a, b = seeds_of(record, arm), seeds_of(record, other)
        both = sorted(set(a) & set(b))
        if len(both) > 1:
            points = mean_interval([100 * (a[seed]["accuracy"] - b[seed]["accuracy"]) for seed in both])
            low, high = bootstrap_difference(*(np.stack([right(x[seed], n) for seed in both]) for x in (a, b)))
            lines.append(
                f"| {arm} - {other} | {len(both)} | {points[0]:+.1f} ({points[1]:+.1f} to {points[2]:+.1f}) "
                f"| {100 * low:+.1f} to {100 * high:+.1f} |"
            )
    return "\n".join(lines)


def seeds_of(record: dict[str, Any], arm: str) -> dict[int, dict[str, Any]]:
    return {int(key.split("/")[1]): run for key, run in record["runs"].items() if key.split("/")[0] == arm}


def right(run: dict[str, Any], n: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bytes.fromhex(run["right"]), dtype=np.uint8)
    return np.unpackbits(packed, count=n).astype(bool)


if __name__ == "__main__":
    main()
