"""What the shipped studies would cost at laptop scale: processor time of a step of every kind of stage, and the sum.

    OMP_NUM_THREADS=1 python benchmarks/study_costs.py --data DATA [--store docs/results/study-costs.json]

DATA is a folder with cifar10_10k2k_32.npz, svhn_1000_400_32.npz and flowers102_64. Of every kind of stage (images, model, method, sizes)
one step warms up and three are timed, on one thread; a study costs its steps, and START for each of its processes. A study
of equal processor time costs what it says. Where images are not in DATA (ImageNet, DomainNet) nothing is said. It goes on
with the kinds that are not stored yet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smallvit.runs.atomic import write_text
from smallvit.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "docs" / "results" / "study-costs.json"
SETS = {
    "": "cifar10_10k2k_32.npz",
    "cifar10": "cifar10_10k2k_32.npz",
    "svhn": "svhn_1000_400_32.npz",
    "flowers102": "flowers102_64",
}
TIMED = 3  # steps
START = 15.0  # seconds of a process beside its steps: imports, planning, judging, report
LENGTH = ("epochs", "share", "init")  # what a step does not depend on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", type=Path, default=STORE)
    args = parser.parse_args()
    from smallvit.studies.library import read_study, study_names

    stored = json.loads(args.store.read_text()) if args.store.is_file() else {"kinds": {}}
    asked = {
        kind_of(stage): stage for name in study_names() for stage in stages_of(read_study(name)) if stage_is_here(stage)
    }
    stored["kinds"] = {kind: cost for kind, cost in stored["kinds"].items() if kind in asked}
    for kind, stage in asked.items():
        if kind not in stored["kinds"]:
            stored["kinds"][kind] = measured(stage, args.data)
            write(args.store, stored)
    stored["studies"] = {name: hours(read_study(name), stored["kinds"]) for name in study_names()}
    write(args.store, stored)
    for name, cost in sorted(stored["studies"].items(), key=lambda item: item[1] or 1e9):
        print(f"{name:<24} {'images are not here' if cost is None else f'{cost:.1f} CPU-hours'}")


def write(store: Path, stored: Mapping[str, Any]) -> None:
    about = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/study_costs.py --data DATA",
        "machine": f"one thread of an {environment('cpu', 1)['cpu']}, beside other work",
    }
    write_text(store, json.dumps({**stored, **about}, indent=1) + "\n")


def stages_of(study: Any) -> list[dict[str, Any]]:
    """Those that have to be timed: none where the study says its processor time."""
    from smallvit.studies.spec import stages

    own = study.scales["laptop"]
    if own.cpu_seconds is not None:
        return []
    return [stage for asked in study.asked("laptop").values() for stage in stages(own.shared, asked)]


def stage_is_here(stage: Mapping[str, Any]) -> bool:
    return stage.get("data", "") in SETS


def kind_of(stage: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in stage.items() if key not in LENGTH}, sort_keys=True)


def measured(stage: Mapping[str, Any], data: Path) -> dict[str, float]:
    from smallvit.planning.plan import settle
    from smallvit.planning.resolve import longest
    from smallvit.recipe import resolved
    from smallvit.studies.costs import asked_recipe
    from smallvit.training.build import build_training
    from smallvit.training.loop import take_step
    from smallvit.training.session import computing

    plain = {key: value for key, value in stage.items() if key not in LENGTH}
    sources = {name: str(data / file) for name, file in SETS.items()}
    choices, images, split = settle(asked_recipe(plain, sources, epochs=2, threads=1, device="cpu"))
    settled = longest(choices.recipe).model_copy(update={"precision": "fp32", "grad_accum": 1})
    with computing(1):
        training = build_training(settled, images, split)
        times = []
        for step in range(TIMED + 1):
            before = time.process_time()
            take_step(training, 1, step % len(training.loader), 1e-5)
            times.append(time.process_time() - before)
    found = {
        "step_ms": round(1000 * statistics.median(times[1:]), 1),
        "steps": max(1, len(split.train) // resolved(settled.batch_size)),
    }
    print(f"{found['step_ms']:>8.1f} ms, {found['steps']} steps: {kind_of(stage)[:120]}", flush=True)
    return found


def hours(study: Any, kinds: Mapping[str, Mapping[str, float]]) -> float | None:
    """Of the study at laptop scale; None where images are missing."""
    from smallvit.studies.spec import stages

    own = study.scales["laptop"]
    replicates, seconds = own.seeds * own.draws, 0.0
    for asked in study.asked("laptop").values():
        each = stages(own.shared, asked)
        if not all(stage_is_here(stage) for stage in each):
            return None
        seconds += START * len(each) + (own.cpu_seconds or sum(seconds_of(stage, own, kinds) for stage in each))
    return round(replicates * seconds / 3600, 2)


def seconds_of(stage: Mapping[str, Any], own: Any, kinds: Mapping[str, Mapping[str, float]]) -> float:
    cost = kinds[kind_of(stage)]
    steps = own.steps * stage["share"] if own.steps else (stage.get("epochs") or own.epochs) * cost["steps"]
    return steps * cost["step_ms"] / 1000


if __name__ == "__main__":
    main()
