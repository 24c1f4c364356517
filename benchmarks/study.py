"""Several ways to train, compared over paired seeds at equal processor time.

    python benchmarks/study.py benchmarks/studies/dhvt-cifar.toml --data cifar10.npz [--jobs 2] [--show]

A study is a TOML file: what all arms share, the arms, the seconds of processor time each run may train for, and which
arms are compared. Keys are those of `smallvit.api.train`. An arm with a table `first` has two stages: it spends `share`
of its time on the first (with a `method` it pretrains, without one it trains on the labels) and starts the second from
what that gave.
`reuse` names another study whose runs of the same arm count here, too.

The cost of a step is measured first, the arms taking turns, and gives each stage its number of epochs; these stay fixed
from then on (arms that are added later are measured then). The runs are a group with the axes arm and seed in
runs/studies/NAME, each a process with one thread. What a run found is stored in docs/results/NAME.json as soon as it
ends, so a study goes on where it was stopped; a run that fails does not stop the others. --show only prints the tables, or,
before there are any, what would be trained.
Nothing selects: there is no validation part, and the last weights are judged once on the test part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import tomllib
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smallvit.console import several
from smallvit.errors import SmallvitError
from smallvit.runs.atomic import write_text
from smallvit.runs.axes import Place
from smallvit.runs.environment import environment
from smallvit.runs.folder import RunFolder
from study_tables import tables

if TYPE_CHECKING:
    from smallvit.planning.plan import Plan
    from smallvit.recipe import Recipe
    from smallvit.runs.executor import Ended

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
    parser.add_argument(
        "--show", action="store_true", help="print the tables of what is there, or what would be trained"
    )
    given = parser.parse_args()
    study = tomllib.loads(given.study.read_text())
    store = STORE / f"{given.study.stem}.json"
    record = json.loads(store.read_text()) if store.is_file() else {}
    if not given.show:
        if not same_study(study, record):
            record = {}
        if new := [arm for arm in study["arms"] if arm not in record.get("arms", {})]:
            start(study, record, new, given.data)
        reuse(study, record)
        save(store, record)
        try:
            run_study(study, record, given, store)
        except SmallvitError as error:  # some runs failed, or all were stopped
            print(tables(study, record))
            sys.exit(f"\n{error}")
    print(tables(study, record) if record else asked(study, given.data))


def asked(study: dict[str, Any], data: str) -> str:
    """What would be trained: every stage of every arm, as far as a recipe can tell whether it can be."""
    lines = [f"{study['title']}: {study['seeds']} seeds, {study['cpu_seconds']} s each; nothing is stored yet"]
    for arm in study["arms"]:
        for stage in stages(study, arm):
            recipe = asked_recipe(stage, data)
            what = ", ".join(f"{key} = {value}" for key, value in stage.items() if key != "share")
            lines.append(f"  {arm}: {study['cpu_seconds'] * stage['share']:.0f} s of {recipe.objective.name}, {what}")
    return "\n".join(lines)


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
    from smallvit.planning.plan import make_plan
    from smallvit.training.build import build_training
    from smallvit.training.loop import take_step
    from smallvit.training.session import fixed_threads

    plans, trainings = {}, {}
    for one in kinds:
        plan = make_plan(asked_recipe(json.loads(one), data, epochs=2), with_floors=False)
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


def asked_recipe(stage: dict[str, Any], data: str, **more: Any) -> Recipe:
    from smallvit.planning.flags import make_recipe, pretraining_recipe

    flags = {key: value for key, value in stage.items() if key not in ("share", "method")}
    recipe = pretraining_recipe(stage["method"]) if "method" in stage else "default"
    return make_recipe(recipe, **flags, data=data, threads=1, **more)


# ---- the runs ------------------------------------------------------------------------------------------


def run_study(study: dict[str, Any], record: dict[str, Any], given: argparse.Namespace, store: Path) -> None:
    from smallvit.runs.executor import list_failures, run_all

    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # the runs inherit them
    runs = StudyRuns(study, record, given, store)
    go_on = f"python benchmarks/study.py {given.study} --data {given.data}"
    list_failures(run_all(runs, given.jobs, go_on=go_on, total=runs.total, keep_going=True), go_on)


class StudyRuns:
    """The runs that the record lacks. Seeds first, so that a study that is stopped has all arms of the seeds it has."""

    def __init__(self, study: dict[str, Any], record: dict[str, Any], given: argparse.Namespace, store: Path) -> None:
        self.study, self.record, self.store, self.given = study, record, store, given
        places = [Place(arm=arm, seed=seed) for seed in range(study["seeds"]) for arm in study["arms"]]
        self.waiting = deque(place for place in places if key_of(place) not in record["runs"])
        self.started, self.done = time.monotonic(), 0
        self.total = sum(len(stages(study, str(place.arm))) for place in self.waiting)  # of processes
        self.active: dict[Path, Place] = {}
        self.floors: dict[bytes, dict[str, Any]] = {}  # by the rows that they were computed on

    def ask(self) -> Path | None:
        """The next stage of the next run; one that was stopped goes on. None after the time that was given."""
        while self.waiting and time.monotonic() - self.started < 60 * self.given.minutes:
            place = self.waiting.popleft()
            steps = [place] if len(stages(self.study, str(place.arm))) == 1 else [place._replace(stage="first"), place]
            for step in steps:
                folder = self.folder(step)
                if not (folder / "recipe.json").is_file():
                    self.plan(step)
                if not RunFolder(folder).finished:
                    self.active[folder] = step
                    return folder
            self.keep(place)  # it had ended when the study was killed
        return None

    def tell(self, ended: Ended) -> None:
        place = self.active.pop(ended.path)
        spent = self.record.setdefault("spent", {})  # by runs that are not in the record yet
        spent[key_of(place)] = spent.get(key_of(place), 0.0) + (ended.cpu_seconds or 0.0)
        save(self.store, self.record)
        if ended.well:
            self.done += 1
            if place.stage:
                self.waiting.appendleft(place._replace(stage=None))
            else:
                self.keep(place)

    def given_up(self) -> tuple[Path, ...]:
        return ()

    def keep(self, place: Place) -> None:
        spent = self.record.setdefault("spent", {})
        run = read_run(self.folder(place)) | {"cpu_seconds": round(spent.pop(key_of(place), 0.0), 1)}
        if not spent:
            del self.record["spent"]
        self.record["runs"][key_of(place)] = run
        save(self.store, self.record)
        left = (time.monotonic() - self.started) / max(1, self.done) * (self.total - self.done) / 60
        told = f"{several(len(self.record['runs']), 'run')}, {place.words}: {run['accuracy']:.1%}, about {left:.0f} min left"
        print(told, flush=True)

    def folder(self, place: Place) -> Path:
        return ROOT / "runs" / "studies" / self.store.stem / folder_name(place)

    def plan(self, place: Place) -> None:
        """Make the run's folder; of two stages, the second starts from what the first has left."""
        from smallvit.console import quiet
        from smallvit.planning.plan import make_plan
        from smallvit.runs.group import Planned, grow_group

        asked, costs = stages(self.study, str(place.arm)), self.record["arms"][place.arm]
        stage, cost = (asked[0], costs["first"]) if place.stage else (asked[-1], costs)
        flags: dict[str, Any] = {"epochs": cost["epochs"], "seed": place.seed}
        if len(asked) > 1 and not place.stage:
            flags["init"] = str(self.folder(place._replace(stage="first")))
        with quiet():
            plan = make_plan(asked_recipe(stage, self.given.data, **flags), with_floors=False)
            planned = Planned(place, plan._replace(floors=self.floors_of(plan)))
        folder = self.folder(place)
        grow_group(
            folder.parent, folder.name, planned, f"python benchmarks/study.py {self.store.stem}", self.study["title"]
        )

    def floors_of(self, plan: Plan) -> dict[str, Any]:
        """Once for every split: they depend on the images alone."""
        from smallvit.planning.plan import compute_floors

        rows = b"|".join(part.numpy().tobytes() for part in plan.split[:3]) + plan.images.fingerprint.encode()
        if rows not in self.floors:
            self.floors[rows] = compute_floors(plan.images, plan.split)
        return self.floors[rows]


def key_of(place: Place) -> str:
    """Of a run in the record, whatever its stage."""
    return f"{place.arm}/{place.seed}"


def folder_name(place: Place) -> str:
    return f"{place.arm}-{place.seed}{f'-{place.stage}' if place.stage else ''}"


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


if __name__ == "__main__":
    main()
