"""Several ways to train, compared over paired seeds at equal processor time.

    python benchmarks/study.py benchmarks/studies/dhvt-cifar.toml --data cifar10.npz [--jobs 2] [--show]

A study is a TOML file: what all arms share, the arms, the seconds of processor time each run may train for, and which
arms are compared. Keys are those of `smallvit.api.train`. An arm with a table `first` has two stages: it spends `share`
of its time on the first (with a `method` it pretrains, without one it trains on the labels) and starts the second from
what that gave.
`reuse` names another study whose runs of the same arm count here, too.

The cost of a step is measured first, the arms taking turns, and gives each stage its number of epochs; these stay fixed
from then on (arms that are added later are measured then). Every run is a process with one thread. What a run found is
stored in docs/results/NAME.json as soon as it ends, so a study goes on where it was stopped; --show only prints the
tables. Nothing selects: there is no validation part, and the last weights are judged once on the test part.
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

from smallvit.evaluation.statistics import bootstrap_difference, mean_interval
from smallvit.runs.atomic import write_text
from smallvit.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "docs" / "results"
ROUNDS, STEPS = 7, 6  # of the measurement
Cost = dict[str, Any]  # of a stage: step_ms, steps_per_epoch, train_images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--data", default="mnist5k")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further run after this time")
    parser.add_argument("--show", action="store_true", help="print the tables of what is there")
    parser.add_argument("--one", nargs=2, metavar=("ARM", "SEED"), help="a single run, as the study starts it")
    given = parser.parse_args()
    study = tomllib.loads(given.study.read_text())
    store = STORE / f"{given.study.stem}.json"
    record = json.loads(store.read_text()) if store.is_file() else {}
    if given.one:
        run_one(study, record, given.one[0], int(given.one[1]), store.stem, given.data)
        return
    if not given.show:
        if not same_study(study, record):
            record = {}
        if new := [arm for arm in study["arms"] if arm not in record.get("arms", {})]:
            start(study, record, new, given.data)
        reuse(study, record)
        save(store, record)
        run_all(study, record, given, store)
    print(tables(study, record))


def same_study(study: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether what is stored answers what is asked. Arms may come and go; one that means another thing may not."""
    arms = record.get("arms_asked", {})
    return all(record.get(key) == study[key] for key in ("shared", "cpu_seconds")) and all(
        arms.get(arm, asked) == asked for arm, asked in study["arms"].items()
    )


def save(store: Path, record: dict[str, Any]) -> None:
    write_text(store, json.dumps(record, indent=1) + "\n")


def stages(study: dict[str, Any], arm: str) -> list[dict[str, Any]]:
    """What `smallvit.api.train` is asked for, one stage after the other, and the share of the time that each takes."""
    asked = dict(study["arms"][arm])
    first = asked.pop("first", None)
    last = study["shared"] | asked
    if first is None:
        return [last | {"share": 1.0}]
    settings = asked.get("settings", {}) | first.get("settings", {})
    both = last | first | ({"settings": settings} if settings else {})
    return [both, last | {"share": 1.0 - first["share"]}]


def reuse(study: dict[str, Any], record: dict[str, Any]) -> None:
    """Runs of an arm that another study has made, with its number of epochs."""
    for arm, name in study.get("reuse", {}).items():
        other = json.loads((STORE / f"{name}.json").read_text())
        same = ("cpu_seconds", "shared", "train_images", "test_images")
        if any(other[key] != record[key] for key in same) or other["arms_asked"][arm] != study["arms"][arm]:
            sys.exit(f"{arm} is another arm in {name}: its runs cannot be used here")
        record["arms"][arm] = other["arms"][arm]
        record["runs"] |= {key: run for key, run in other["runs"].items() if key.split("/")[0] == arm}


# ---- how many epochs the time is worth -----------------------------------------------------------------


def start(study: dict[str, Any], record: dict[str, Any], new: list[str], data: str) -> None:
    """Put what the new arms cost into the record, and what is true of all where there is none yet.

    A kind of stage that the record has is not measured again: equal stages have equal epochs.
    """
    costs = known_costs(study, record)
    asked = [kind(stage) for arm in new for stage in stages(study, arm)]
    measured, plans = measure([one for one in dict.fromkeys(asked) if one not in costs], data)
    costs |= measured
    if not record:
        plan = max(plans.values(), key=lambda plan: len(plan.split.train))
        record |= about(study, plan)
    for arm in new:
        first, *rest = (with_epochs(study, stage, costs[kind(stage)]) for stage in stages(study, arm))
        record["arms"][arm] = rest[0] | {"first": first} if rest else first
        record["arms_asked"][arm] = study["arms"][arm]


def with_epochs(study: dict[str, Any], stage: dict[str, Any], cost: Cost) -> Cost:
    seconds = study["cpu_seconds"] * stage["share"]
    return cost | {"epochs": max(1, round(1000 * seconds / (cost["step_ms"] * cost["steps_per_epoch"])))}


def about(study: dict[str, Any], plan: Any) -> dict[str, Any]:
    from smallvit.planning.plan import compute_floors

    return {
        "title": study["title"], "cpu_seconds": study["cpu_seconds"], "shared": study["shared"], "arms_asked": {},
        "arms": {}, "machine": environment("cpu", 1), "date": time.strftime("%Y-%m-%d"),
        "train_images": len(plan.split.train), "test_images": len(plan.split.test), "runs": {},
        "floors": compute_floors(plan.images, plan.split),
    }  # fmt: skip


def known_costs(study: dict[str, Any], record: dict[str, Any]) -> dict[str, Cost]:
    found = {}
    for arm, facts in record.get("arms", {}).items():
        if arm in study["arms"] and arm not in study.get("reuse", {}):
            recorded = [facts["first"], facts] if "first" in facts else [facts]
            for stage, cost in zip(stages(study, arm), recorded, strict=True):
                found[kind(stage)] = {key: cost[key] for key in ("step_ms", "steps_per_epoch", "train_images")}
    return found


def kind(stage: dict[str, Any]) -> str:
    """Stages that differ in their share of the time only are of one kind, and cost the same."""
    return json.dumps({key: value for key, value in stage.items() if key != "share"}, sort_keys=True)


def measure(kinds: list[str], data: str) -> tuple[dict[str, Cost], dict[str, Any]]:
    """What every kind of stage costs (the median processor time of a step, all taking turns), and its plan."""
    from smallvit.api import make_recipe, pretraining_recipe
    from smallvit.planning.plan import make_plan
    from smallvit.training.build import build_training
    from smallvit.training.loop import take_step
    from smallvit.training.session import fixed_threads

    plans, trainings = {}, {}
    for one in kinds:
        flags = json.loads(one)
        recipe = pretraining_recipe(flags.pop("method")) if "method" in flags else "default"
        plan = make_plan(make_recipe(recipe, **flags, data=data, threads=1, epochs=2), with_floors=False)
        plans[one], trainings[one] = plan, build_training(plan.recipe, plan.images, plan.split)
    times: dict[str, list[float]] = {one: [] for one in plans}
    with fixed_threads(1):
        for turn in range(ROUNDS + 1):
            for one, t in trainings.items():
                before = time.process_time()
                for step in range(STEPS):
                    take_step(t, 1, step % len(t.loader), 1e-5)
                if turn:  # the first warms up
                    times[one].append((time.process_time() - before) / STEPS)
    costs = {
        one: {
            "step_ms": round(1000 * statistics.median(times[one]), 2),
            "steps_per_epoch": len(plan.split.train) // plan.recipe.batch_size,
            "train_images": len(plan.split.train),
        }
        for one, plan in plans.items()
    }
    return costs, plans


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
            active[launch(given, arm, seed, folder_of(store.stem, arm, seed))] = (arm, seed)
        if not active:
            break
        process, status, usage = os.wait4(-1, 0)
        arm, seed = active.pop(process)
        folder = folder_of(store.stem, arm, seed)
        if status:
            sys.exit(f"{arm}, seed {seed} failed: {(folder.parent / f'{folder.name}.log').read_text()[-2000:]}")
        run = read_run(folder) | {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)}
        record["runs"][f"{arm}/{seed}"] = run
        save(store, record)
        done = total - len(waiting) - len(active)
        left = (time.monotonic() - started) / done * (total - done) / 60
        print(f"{done}/{total} {arm} seed {seed}: {run['accuracy']:.1%}, about {left:.0f} min left", flush=True)


def folder_of(study: str, arm: str, seed: int) -> Path:
    return ROOT / "runs" / "studies" / study / f"{arm}-{seed}"


def launch(given: argparse.Namespace, arm: str, seed: int, folder: Path) -> int:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, __file__, str(given.study), "--data", given.data, "--one", arm, str(seed)],
            stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        ).pid  # fmt: skip


def run_one(study: dict[str, Any], record: dict[str, Any], arm: str, seed: int, name: str, data: str) -> None:
    """The stages of an arm one after the other, each going on where it was stopped."""
    from smallvit import Run
    from smallvit.api import pretrain, resume, train

    asked, costs = stages(study, arm), record["arms"][arm]
    last = folder_of(name, arm, seed)
    for stage in asked:
        is_last = stage is asked[-1]
        folder = last if is_last else last.with_name(f"{last.name}-first")
        epochs = costs["epochs"] if is_last else costs["first"]["epochs"]
        flags = {key: value for key, value in stage.items() if key != "share"}
        if is_last and len(asked) > 1:
            flags["init"] = last.with_name(f"{last.name}-first")
        if not (folder / "recipe.json").is_file():
            do = pretrain if "method" in flags else train
            do(data, out=folder, overwrite=True, threads=1, epochs=epochs, seed=seed, show_progress=False, **flags)
        elif not Run(folder).finished:
            resume(folder, show_progress=False)


def read_run(folder: Path) -> dict[str, Any]:
    """Accuracy, and which test images were right, in hexadecimal: enough for every comparison."""
    from safetensors.numpy import load_file

    results = json.loads((folder / "results.json").read_text())
    stored = load_file(folder / "predictions.safetensors")
    right = stored["probabilities"].argmax(1) == stored["labels"]
    first = folder.with_name(f"{folder.name}-first") / "results.json"
    before = json.loads(first.read_text())["parts"]["test"]["accuracy"] if first.is_file() else None
    return {
        "accuracy": results["parts"]["test"]["accuracy"],
        **({} if before is None else {"accuracy_first": before}),
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
    for arm in study["arms"]:
        facts, runs = record["arms"].get(arm), seeds_of(record, arm)
        if runs:
            accuracy = [100 * run["accuracy"] for run in runs.values()]
            cpu = statistics.mean(run["cpu_seconds"] for run in runs.values())
            parameters = next(iter(runs.values()))["parameters"]
            mean = "{:.1f} ({:.1f} to {:.1f})".format(*mean_interval(accuracy)) if len(runs) > 1 else "one seed"
            each = ", ".join(f"{value:.1f}" for value in accuracy)
            epochs, step = (_by_stage(facts, key) for key in ("epochs", "step_ms"))
            lines.append(f"| {arm} | {parameters:,} | {epochs} | {step} | {cpu:.0f} | {each} | {mean} |")
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


def _by_stage(facts: dict[str, Any], key: str) -> str:
    return f"{facts['first'][key]} + {facts[key]}" if "first" in facts else str(facts[key])


def seeds_of(record: dict[str, Any], arm: str) -> dict[int, dict[str, Any]]:
    return {int(key.split("/")[1]): run for key, run in record["runs"].items() if key.split("/")[0] == arm}


def right(run: dict[str, Any], n: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bytes.fromhex(run["right"]), dtype=np.uint8)
    return np.unpackbits(packed, count=n).astype(bool)


if __name__ == "__main__":
    main()
