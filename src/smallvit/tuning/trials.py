"""The trials of a search as a source of runs: planned when there is room, followed, ended early, counted."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from smallvit.console import quiet, roughly, say, several
from smallvit.errors import SmallvitError, UsageError, ran_out
from smallvit.planning.elsewhere import at_fold
from smallvit.planning.length import Clock
from smallvit.planning.plan import Plan, make_plan
from smallvit.planning.stages import stages_of
from smallvit.recipe import Recipe, flat, with_settings
from smallvit.runs.executor import Ended
from smallvit.runs.folder import RunFolder
from smallvit.runs.following import Follower
from smallvit.runs.group import Planned, grow_group
from smallvit.tuning.folder import Stored, Tuning, trial_number, update_trial, write_trial
from smallvit.tuning.search import RANDOM_TRIALS, Trial, falls_behind, propose

FINAL_SHARE = 0.25  # of the time, for the model that is trained at the end
MOST_REFUSED = RANDOM_TRIALS + 2  # in a row: on 28 images five batches too large are chance, then the search keeps away
AIMED_TRIALS = 12  # of full length, where their number is not given; those that end early make room for more


class Trials:
    """Asked for a run when there is room, told of every one that ends."""

    def __init__(self, tuning: Tuning, started: float) -> None:
        self.tuning = tuning
        self.begun = started - tuning.spent  # when it would have begun if it had never stopped
        found = tuning.trials()
        self.known = {trial.number: trial for trial in found}
        # What a search that was stopped has left.
        self.waiting = [path for trial in found if trial.state == "running" for path in self._unfinished(trial.number)]
        self.running: dict[Path, Follower] = {}
        self.since: dict[Path, float] = {}

    @property
    def left(self) -> int | None:
        """How many runs there will be; None where a clock decides, or where folds may be spared."""
        asked = self.tuning.asked
        if asked.trials is None or asked.folds:
            return None
        return len(self.waiting) + asked.trials - len(self.known)

    # ---- a source of runs ----------------------------------------------------------------------------

    def ask(self) -> Path | None:
        if self.waiting:
            return self._start(self.waiting.pop(0))
        refused = 0
        while self._is_room():
            number = len(self.known)
            trial = self._plan(number)
            self.known[number] = trial
            if trial.state == "running":
                self.waiting = self._unfinished(number)
                return self._start(self.waiting.pop(0))
            say(f"trial {number} cannot be trained: {trial.problem}")
            refused += 1
            if refused == MOST_REFUSED:
                raise UsageError(
                    f"{refused} trials in a row cannot be trained, the last because: {trial.problem}\nwhat is given and the space "
                    f"{self.tuning.asked.space} do not go together: change one of them and begin anew (--overwrite)"
                )
        return None

    def given_up(self) -> Iterable[Path]:
        """The worse half at each rung. The default is never among them: the others are measured by it."""
        for path, follower in self.running.items():
            if follower.look() and self.tuning.asked.folds is None:
                number = trial_number(path)
                self.known[number] = self.known[number]._replace(course=tuple(follower.course))
                self._end_if_behind(number)
        return [path for path in self.running if self.known[trial_number(path)].state == "ended early"]

    def tell(self, ended: Ended) -> None:
        path, number = ended.path, trial_number(ended.path)
        del self.running[path]
        holder = self.tuning.trial(number)
        seconds = self.known[number].seconds + time.monotonic() - self.since.pop(path)
        update_trial(holder, {"seconds": round(seconds, 1)})
        if ended.problem and not ended.stopped:
            update_trial(holder, {"problem": ended.problem.splitlines()[-1].removeprefix("smallvit: ")})
        self.known[number] = self.tuning.read(number)
        if self.known[number].state == "running":
            self._end_if_behind(number)
        if self.known[number].state != "running":
            self.waiting = [other for other in self.waiting if trial_number(other) != number]
        self.tuning.spend(time.monotonic() - self.begun)

    # ---- parts ---------------------------------------------------------------------------------------

    def _unfinished(self, number: int) -> list[Path]:
        return [path for path in self.tuning.runs(number) if not (path / "results.json").is_file()]

    def _end_if_behind(self, number: int) -> None:
        others = [trial for trial in self.known.values() if trial.number != number and trial.state != "failed"]
        if number and falls_behind(self.known[number], others):
            update_trial(self.tuning.trial(number), {"ended_early": True})
            self.known[number] = self.known[number]._replace(state="ended early")

    def _start(self, path: Path) -> Path:
        self.running[path] = Follower(path)
        self.since[path] = time.monotonic()
        return path

    def _is_room(self) -> bool:
        asked = self.tuning.asked
        if asked.trials is not None and len(self.known) >= asked.trials:
            return False
        if asked.budget is None or not self.known:
            return True
        time_left = (1 - FINAL_SHARE) * asked.budget - (time.monotonic() - self.begun)
        return time_left >= 0.9 * (trial_seconds(asked.budget, asked.trials, asked.jobs) or 0)

    def _plan(self, number: int) -> Trial:
        """A trial that is planned in its folder; one that cannot be is a result, too."""
        tuning = self.tuning
        values = settings = {}
        if number:
            values = propose(tuning.space, tuning.basis, list(self.known.values()), tuning.recipe.seed)
            settings = tuning.space.settings(values, tuning.basis)
        try:
            recipe = trial_recipe(tuning, settings)
            with quiet():
                plan = as_asked(make_plan(recipe, Clock(time.monotonic(), turns=1), with_floors=False), tuning, number)
            if stages := [stage.name for stage in stages_of(plan.recipe)]:
                raise UsageError(
                    f"tune trains its trials in one stage, and this recipe has another before it: {', '.join(stages)}"
                )
        except (SmallvitError, MemoryError, RuntimeError) as error:
            if not number or not (isinstance(error, SmallvitError) or ran_out(error)):
                raise
            problem = str(error) if isinstance(error, SmallvitError) else f"out of memory: {error}"
            write_trial(tuning.trial(number), Stored(values=values, settings=settings, problem=problem))
            return Trial(number, values, "failed", problem=problem)
        if not number:
            tuning.space.defaults(
                flat(plan.recipe.model_dump())
            )  # a space that does not fit is told before anything is trained
            self._tell_time(plan)
        for place in reversed(tuning.places(number)):  # the first last: its folder says that all are planned
            own = at_fold(plan, place.fold) if place.fold else plan
            grow_group(tuning.path, place.folder, Planned(place, own), tuning.asked.command, group_is_held=True)
        write_trial(tuning.trial(number), Stored(values=values, settings=settings))
        return Trial(number, values)

    def _tell_time(self, plan: Plan) -> None:
        """How long a search of so many trials will take, by its first."""
        asked = self.tuning.asked
        if asked.budget is None and asked.trials is not None and plan.seconds is not None:
            one = plan.seconds * (asked.folds or 1)
            all_of_it = one * math.ceil(asked.trials / asked.jobs) + plan.seconds
            say(
                f"{several(asked.trials, 'trial')} and the final model take about {roughly(all_of_it)}, if all take as long as the first "
                f"(about {roughly(one)}) and none ends early; --budget gives it a time instead"
            )


def trial_recipe(tuning: Tuning, settings: dict[str, Any]) -> Recipe:
    """The default with these settings, for the time of a trial, judged on validation images."""
    asked = tuning.asked
    always: dict[str, Any] = {"data.sealed": True}
    always["threads"] = asked.threads or (tuning.basis["threads"] if settings else "auto")
    if asked.folds:
        always |= {"data.folds": asked.folds, "data.fold": 0}
    if seconds := trial_seconds(asked.budget, asked.trials, asked.jobs):
        always["budget"] = seconds / (asked.folds or 1)
    elif settings:  # no clock decides: a search that is repeated tries the same
        always |= {key: tuning.basis[key] for key in ("precision", "epochs")}
    return with_settings(tuning.recipe, always | settings)


def as_asked(plan: Plan, tuning: Tuning, number: int) -> Plan:
    """The plan of a trial whose threads are the search's: where nobody asked for a number, the place where it runs decides."""
    if number and tuning.asked.threads is None:
        plan = plan._replace(cores=RunFolder(tuning.trial(0)).read("recipe.json").get("cores"))
    return plan._replace(asked=plan.asked.model_copy(update={"threads": tuning.recipe.threads}))


def trial_seconds(budget: float | None, trials: int | None, jobs: int) -> float | None:
    """Of one trial, so that so many of them fit beside each other; None where no time was given."""
    if budget is None:
        return None
    return (1 - FINAL_SHARE) * budget / math.ceil((trials or AIMED_TRIALS) / jobs)
