"""The runs that a study lacks, as a source for the executor: planned when there is room, kept when they end.

Seeds first, so that a study that is stopped has all arms of the seeds it has.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smallvit.console import duration, quiet, say, several, warn
from smallvit.errors import RunError, SmallvitError, UsageError
from smallvit.planning.plan import Plan, compute_floors, make_plan
from smallvit.runs.axes import Place
from smallvit.runs.executor import Ended
from smallvit.runs.folder import RunFolder
from smallvit.runs.group import Planned, grow_group
from smallvit.runs.members import is_group, members_of
from smallvit.runs.stored_answers import read_answers
from smallvit.studies.alike import Values, check_alike, decisive
from smallvit.studies.costs import Data, asked_recipe, in_words, on_processor
from smallvit.studies.record import FILE, ArmFacts, Record, RunFacts, key_of, write_record
from smallvit.studies.spec import Table, stages

MOST_POINTS = 60  # of a curve in the record
STAGES = ("first", "second", "third", "fourth")  # names of what comes before the run that counts


class StudyRuns:
    """Asked for a run when there is room, told of every one that ends."""

    def __init__(
        self, folder: Path, record: Record, places: Sequence[Place], data: Data, *, threads: int | None, command: str,
        budget: float | None = None, started: float | None = None,
    ) -> None:  # fmt: skip
        self.path, self.record, self.data, self.threads, self.command = folder, record, data, threads, command
        self.waiting = deque(place for place in places if key_of(place) not in record.runs)
        self.begun, self.budget, self.done = time.monotonic(), budget, 0
        self.started = self.begun if started is None else started  # when the command was
        self.total = sum(len(self.unfinished(place)) for place in self.waiting)  # of processes
        self.outlived = {*record.under_way}  # whatever started these was killed, and they may have ended since
        self.active: dict[Path, Place] = {}
        self.floors: dict[bytes, dict[str, Any]] = {}  # by the rows that they were computed on
        self.left_for_later = 0
        self.told_unknown = False

    # ---- a source of runs ----------------------------------------------------------------------------

    def ask(self) -> Path | None:
        """The next stage of the next run; one that was stopped goes on. None where the time is over."""
        while self.waiting:
            place = self.waiting.popleft()
            if not self._is_time_for(place):
                self.left_for_later += 1
                continue
            for step in self.chain(place):
                folder = self.folder(step)
                try:
                    if not (folder / "recipe.json").is_file():
                        self.plan(step)
                except SmallvitError as error:
                    self.fail(place, in_words(error, self.asked_of(step), self.data))
                    break
                if not RunFolder(folder).finished:
                    self.active[folder] = step
                    self.record.under_way = [*dict.fromkeys([*self.record.under_way, key_of(step)])]
                    self.save()
                    return folder
            else:
                self.keep(place)  # it had ended when the study was killed
        return None

    def tell(self, ended: Ended) -> None:
        place = self.active.pop(ended.path)
        key = key_of(place)
        self.record.spent = {**self.record.spent, key: self.record.spent.get(key, 0.0) + (ended.cpu_seconds or 0.0)}
        if key not in self.outlived:
            self.record.under_way = [other for other in self.record.under_way if other != key]
        if ended.well:
            self.done += 1
            if place.stage:
                self.waiting.appendleft(place._replace(stage=None))
            else:
                self.keep(place)
        elif not ended.stopped:
            self.fail(place, ended.problem.splitlines()[-1].removeprefix("smallvit: "))
        self.save()

    def given_up(self) -> Iterable[Path]:
        return ()

    # ---- parts ---------------------------------------------------------------------------------------

    def chain(self, place: Place) -> list[Place]:
        """The run with what comes before it."""
        before = len(stages(self.record.shared, self.record.arms_asked[str(place.arm)])) - 1
        return [*(place._replace(stage=name) for name in STAGES[:before]), place._replace(stage=None)]

    def unfinished(self, place: Place) -> list[Place]:
        """What is left of its chain."""
        return [step for step in self.chain(place) if not (self.folder(step) / "results.json").is_file()]

    def asked_of(self, step: Place) -> Table:
        """One stage of a run as it is asked for."""
        return stages(self.record.shared, self.record.arms_asked[str(step.arm)])[self.chain(step).index(step)]

    def folder(self, place: Place) -> Path:
        return folder_of(self.path, place)

    def _is_time_for(self, place: Place) -> bool:
        """Whether a run that begins now would end within the budget, by what the others of its arm took."""
        if self.budget is None:
            return True
        # Where none of this arm has ended: the longest of the others. Processor time knows of what came first, too.
        own = list((self.record.of(str(place.arm)) or self.record.runs).values())
        took = [max(run.train_seconds, run.cpu_seconds / (self.threads or torch.get_num_threads())) for run in own]
        expected = max(took) if took else self.record.cpu_seconds or 0.0
        return time.monotonic() - self.started + expected <= self.budget

    def fail(self, place: Place, problem: str) -> None:
        self.record.failed = {**self.record.failed, key_of(place): problem}
        warn(f"{place._replace(stage=None).words} failed, the others go on: {problem}")
        self.total -= len(self.unfinished(place._replace(stage=None)))
        self.save()

    def keep(self, place: Place) -> None:
        key, place = key_of(place), place._replace(stage=None)
        before = [self.folder(step) for step in self.chain(place)[:-1]]
        try:
            run, groups = read_run(self.folder(place), before)
        except RunError as error:
            self.fail(place, str(error))
            return
        run.cpu_seconds = 0.0 if key in self.outlived else round(self.record.spent.get(key, 0.0), 1)
        if groups is not None:
            self.record.groups = {**self.record.groups, run.judged: groups}
        self.outlived.discard(key)
        self.record.under_way = [other for other in self.record.under_way if other != key]
        self.record.runs = {**self.record.runs, key: run}
        self.record.spent = {other: spent for other, spent in self.record.spent.items() if other != key}
        self.record.failed = {other: why for other, why in self.record.failed.items() if other != key}
        self.save()
        left = (time.monotonic() - self.begun) / max(1, self.done) * (self.total - self.done)
        more = f", about {duration(left)} left" if 0 < self.done < self.total else ""
        say(f"{several(len(self.record.runs), 'run')}, {place.words}: {run.accuracy:.1%}{more}")

    def save(self) -> None:
        write_record(self.path / FILE, self.record)

    def plan(self, place: Place) -> None:
        """Make the run's folder; it starts from what the stage before it has left."""
        arm = str(place.arm)
        asked, facts, chain = (
            stages(self.record.shared, self.record.arms_asked[arm]),
            self.record.arms[arm],
            self.chain(place),
        )
        number = chain.index(place)
        own, known = facts.stages[number], self.known(place, number)
        flags: dict[str, Any] = {"epochs": own.epochs, "seed": place.seed, "threads": self.threads}
        settings: dict[str, Any] = {"steps": own.steps} if own.steps else {}
        if place.draw:
            settings["data.split_seed"] = asked_recipe(asked[number], self.data).data.split_seed + place.draw
        flags |= on_processor(asked[number], self.record)
        if asked_recipe(asked[number], self.data).precision == "auto":
            flags |= self.precision(known)
        if number:
            flags["init"] = str(self.folder(chain[number - 1]))
        with quiet():
            plan = make_plan(asked_recipe(asked[number], self.data, **flags, settings=settings), with_floors=False)
            if place.stage is None and not plan.split.judged:
                raise UsageError(
                    "nothing judges its runs: the images have no test part, and the study holds out none (val = none): give the "
                    "source a test part, or the study test or val"
                )
            plan = plan._replace(floors=self.floors_of(plan))
        now = decisive(plan.recipe.model_dump(mode="json"), place.draw, number > 0)
        if known is not None:
            check_alike(known, now, arm, str(self.record.machine.get("smallvit", "")))
        if place.stage is None and facts.floors is None and not self.record.floors:
            self.tell_images(facts, plan)
        folder = self.folder(place)
        grow_group(self.path, folder.name, Planned(place, plan), self.command, self.record.title, group_is_held=True)
        own.resolved = dict(known or now)
        self.save()

    def precision(self, known: Values | None) -> dict[str, Any]:
        """It may be measured, and come out otherwise for every seed and every arm. Where arms are to differ in nothing but what was asked,
        that is where no processor time is compared, all have 32 bits; on a GPU all have what it is fast at.
        """
        if known:
            return {"precision": known.get("precision")}
        of_equal_length = self.record.scale == "laptop" and self.record.cpu_seconds is None
        return {"precision": "fp32"} if of_equal_length else {}

    def known(self, place: Place, number: int) -> Values | None:
        """What the runs of this arm are, at this stage; None where there are none, or nothing says what they were."""
        members = members_of(self.path) if is_group(self.path) else []
        planned = [
            member
            for member in members
            if member.place.method == place.method and (member.path / "recipe.json").is_file()
        ]
        own, has_runs = self.record.arms[str(place.arm)].stages[number].resolved, bool(self.record.of(str(place.arm)))
        if own is not None and (planned or has_runs):
            return own
        if planned:  # by an earlier version, which kept it in the folder alone
            path, other = planned[0]
            return decisive(RunFolder(path).read("recipe.json")["resolved"], other.draw, number > 0)
        if has_runs and not self.told_unknown:
            self.told_unknown = True
            warn(
                f"{self.path / FILE} does not say how its first runs were trained, as an earlier smallvit wrote it: whether "
                "more seeds of an arm are trained as those were is not checked"
            )
        return None

    def tell_images(self, facts: ArmFacts, plan: Plan) -> None:
        plain = {
            name: {key: value for key, value in floor.items() if key != "right"} for name, floor in plan.floors.items()
        }
        facts.floors, facts.train_images, facts.test_images = plain, len(plan.split.train), len(plan.split.test)
        self.save()

    def floors_of(self, plan: Plan) -> dict[str, Any]:
        """Once for every split: they depend on the images alone."""
        rows = b"|".join(part.numpy().tobytes() for part in plan.split[:3]) + plan.images.fingerprint.encode()
        if rows not in self.floors:
            self.floors[rows] = compute_floors(plan.images, plan.split)
        return self.floors[rows]


def folder_of(study: Path, place: Place) -> Path:
    """Of a run in the folder of a study. The first draw lies where an earlier version, which numbered it, has put it."""
    path, numbered = (study / one.folder.replace("/", "_") for one in (place, place._replace(draw=0)))
    return numbered if place.draw is None and numbered.is_dir() and not path.is_dir() else path


def read_run(folder: Path, before: Sequence[Path] = ()) -> tuple[RunFacts, list[int] | None]:
    """What a run has found: enough for every comparison; and the groups of what judged it, where there are any."""
    run = RunFolder(folder)
    results, stored = run.results, read_answers(folder)
    order_N = np.argsort(stored.rows_N, kind="stable")
    right_N = (stored.probabilities_NK.argmax(1) == stored.labels_N)[order_N]
    part = results["evaluated_part"]
    facts = RunFacts(
        accuracy=results["parts"][part]["accuracy"],
        right=np.packbits(right_N).tobytes().hex(),
        train_seconds=results["timing"]["train_seconds"],
        parameters=results["model"]["parameters"],
        train_images=run.read("split.json", "parts")["parts"]["train"]["n"],
        test_images=len(right_N),
        judged=hashlib.sha256(np.sort(stored.rows_N).astype(np.int64).tobytes()).hexdigest()[:16],
        courses=courses(run),
    )
    if before:
        first = RunFolder(before[-1]).results
        facts.accuracy_first = first["parts"].get(first["evaluated_part"], {}).get("accuracy")
    return facts, None if stored.groups_N is None else stored.groups_N[order_N].tolist()


def courses(run: RunFolder) -> dict[str, list[tuple[float, float]]]:
    """Loss and validation accuracy over the epochs, thinned."""
    found = {}
    for key in ("train_loss", "val_accuracy"):
        points = [
            (float(line["epoch"]), round(float(line[key]), 4))
            for line in run.metrics
            if key in line and "epoch" in line
        ]
        if points:
            chosen = np.unique(np.linspace(0, len(points) - 1, min(MOST_POINTS, len(points))).round().astype(int))
            found[key] = [points[index] for index in chosen]
    return found
