"""Runs that come before the run that counts, in one command: each is planned when its turn comes, run, and handed on.

A single run and the members of a group go the same way. A home is the folder of a run that counts; its stages lie in it. All homes
share one plan of each stage, and one of the run that follows, so that seeds can be compared. Going on after a kill is the same
as starting: a stage that has a plan is resumed, one that has results is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smallvit.console import say, warn
from smallvit.errors import Interrupted, RunError
from smallvit.planning.choices import Choice
from smallvit.planning.length import Clock
from smallvit.planning.plan import Plan, Prepared, prepare, read_plan, show_plan, write_plan
from smallvit.planning.resolve import COLOURS
from smallvit.planning.stages import Stage, stage_named, stages_of
from smallvit.planning.whereabouts import MAY_DIFFER
from smallvit.recipe import Recipe, flat, validate
from smallvit.runs.execution import LogType, execute, report_runs, run_planned
from smallvit.runs.executor import wait_for_others
from smallvit.runs.folder import RunFolder, make_folder
from smallvit.runs.group import run_folders
from smallvit.runs.members import final_members
from smallvit.runs.ownership import sole_owner
from smallvit.runs.staged import Ahead, Staged, has_stages, read_stages, write_stages
from smallvit.training.session import train_seconds
from smallvit.training.together import tell_folder
from smallvit.types import ALONE, World

LENGTH = ("epochs", "steps", "replan", "budget", "eval_every")  # and the warm-up: not known before its turn
Homes = Mapping[Path, int]  # folder of a run that counts -> its seed
Finish = Callable[[Sequence[Path], Prepared | None], None]  # trains planned runs to their end


class Stages:
    """What is to be run first, and what the run that counts was planned as before."""

    def __init__(self, staged: Staged, clock: Clock, prepared: Prepared | None = None) -> None:
        assert staged.ahead is not None
        self.staged, self.ahead, self.clock = staged, staged.ahead, clock
        self.asked = validate(self.ahead.asked)
        self.prepared = prepared  # the first, where it was tried before anything was written

    @classmethod
    def planned(cls, plan: Plan, clock: Clock, command: str) -> Stages | None:
        """None where nothing comes first. Else the first stage is built, too: what cannot be is refused now."""
        wanted = stages_of(plan.recipe)
        if not wanted:
            return None
        ahead = Ahead(
            command=command, asked=plan.asked.model_dump(exclude_unset=True), settled=settled(plan),
            choices=tuple(plan.choices), floors=plan.floors, cores=plan.cores, turns=clock.turns, to_begin=clock.to_begin,
        )  # fmt: skip
        new = cls(Staged(stages=tuple(stage.name for stage in wanted), ahead=ahead), clock)
        new.prepared = new.prepare(wanted[0])
        return new

    @classmethod
    def stored(cls, folder: Path) -> Stages:
        staged = read_stages(folder)
        if staged.ahead is None:
            raise RunError(f"{folder} is planned with the other runs of its group: `smallvit resume {folder.parent}`")
        clock = Clock(time.monotonic() - staged.spent, staged.ahead.turns)
        clock.to_begin = staged.ahead.to_begin
        return cls(staged, clock)

    @property
    def all(self) -> list[Stage]:
        return [stage_named(name) for name in self.staged.stages]

    def prepare(self, stage: Stage, late: bool = False) -> Prepared:
        """A stage before its first step. It ends when its share, and those of all before it, are gone."""
        shares = [one.share(self.ahead.settled) for one in self.all[: self.all.index(stage) + 1]]
        self.clock.share = sum(shares)
        if late:
            self.give_time(shares[-1])
        asked = stage.asked(self.ahead.settled)
        asked = asked.model_copy(update={"precision": self.asked.precision, "compile": self.asked.compile})
        prepared = prepare(asked, self.clock, with_floors=False)
        plan = prepared.plan._replace(floors=self.ahead.floors, cores=self.ahead.cores)
        where = {key: getattr(self.asked, key) for key in MAY_DIFFER}  # it is settled where a stage runs, too
        return prepared._replace(plan=plan._replace(asked=plan.asked.model_copy(update=where)))

    def run(self, folder: Path, homes: Homes, finish: Finish) -> Prepared:
        """Train all of them; the run that counts, as the first home has it, before its first step."""
        if not has_stages(folder):
            self.save(folder)  # first: it says what is ours
        for number, stage in enumerate(self.all, start=1):
            paths = [home / stage.name for home in homes]
            if all(is_over(path) for path in paths):
                counted = self.staged.counted
                if counted is not None and stage.name not in counted:  # it outlived what began it
                    self.take_off(paths)
                    self.save(folder, stage)
                continue
            say(f"stage {number} of {len(self.all) + 1}: {stage.name}")
            prepared = None
            if not all((path / "recipe.json").is_file() for path in paths):
                prepared = self.prepared or self.prepare(stage, late=number > 1)
                show_plan(prepared.plan, self.clock.turns or 1)
                self.write(prepared.plan, {path: homes[path.parent] for path in paths})
                self.save(folder)
            else:
                self.take_off(paths)
            self.prepared = None
            try:
                finish(paths, prepared)
            except Interrupted:
                words = f"stopped in the stage {stage.name}; go on with `smallvit resume {folder}`"
                raise Interrupted(words) from None
            self.save(folder, stage)
        say(f"stage {len(self.all) + 1} of {len(self.all) + 1}: the run that counts")
        return self.last(next(iter(homes)))

    def run_here(self, folder: Path, logs: Sequence[LogType], world: World = ALONE) -> None:
        """All stages and the run that counts, in this process, in a folder that is held."""
        prepared = self.run(folder, {folder: self.asked.seed}, finish_here(logs, self.clock, world))
        run_planned(folder, prepared, self.ahead.command, logs, self.clock.started, world)

    def run_and_plan_group(self, folder: Path, jobs: int, on: str) -> None:
        """The stages of all members of a group, which is held; then one plan for the members, each from its own stages."""
        homes = {member.path: member.place.seed or 0 for member in final_members(folder)}
        for home in homes:
            write_stages(home, Staged(stages=self.staged.stages))
        plan = self.run(folder, homes, finish_elsewhere(folder, jobs, on)).plan
        show_plan(plan, self.clock.turns)
        for home, seed in homes.items():
            write_plan(home, self.at(plan, home, seed), self.ahead.command)

    def write(self, plan: Plan, folders: Homes) -> None:
        """One plan for all, each with its own seed."""
        for folder, seed in folders.items():
            own = plan.recipe.model_copy(update={"seed": seed})
            write_plan(make_folder(folder), plan._replace(recipe=own), self.ahead.command)

    def take_off(self, paths: Sequence[Path]) -> None:
        """What an earlier session has trained is gone of the budget."""
        trained = sum(train_seconds(path) for path in paths)
        self.clock.started -= trained * (self.clock.turns or 1) / len(paths)

    def save(self, folder: Path, ended: Stage | None = None) -> None:
        """With what is gone of the budget: a later session begins its clock there. `ended`: the stage that is in it now."""
        counted = self.staged.counted
        if counted is None and not has_stages(folder):
            counted = ()
        if counted is not None and ended:
            counted = (*counted, ended.name)
        self.staged = self.staged.model_copy(update={"spent": self.clock.gone, "counted": counted})
        write_stages(folder, self.staged)

    def last(self, home: Path) -> Prepared:
        """The run that counts. Its length depends on the time that is left."""
        self.clock.share = 1.0
        self.give_time(1 - sum(stage.share(self.ahead.settled) for stage in self.all))
        prepared = prepare(self.handed_on(self.ahead.settled, home), self.clock, with_floors=False)
        made = {choice.key for choice in prepared.plan.choices}
        earlier = [Choice(*choice) for choice in self.ahead.choices if choice[0] not in (*made, *LENGTH)]
        plan = prepared.plan._replace(
            asked=self.asked,
            choices=[*earlier, *prepared.plan.choices],
            floors=self.ahead.floors,
            cores=self.ahead.cores,
        )
        return prepared._replace(plan=plan)

    def give_time(self, share: float) -> None:
        """What follows has half of its share at least, however late it is: the end of a budget is then missed, and told."""
        budget = self.asked.budget
        latest = (self.clock.share - share / 2) * (budget or 0.0)
        if budget and self.clock.gone > latest:
            warn(f"what came first took {self.clock.gone:.0f} s of the {budget:.0f} s: the budget will not be kept")
            self.clock.started = time.monotonic() - latest

    def handed_on(self, recipe: Recipe, home: Path) -> Recipe:
        for stage in self.all:
            recipe = stage.handed_on(recipe, (home / stage.name / "model.safetensors").resolve())
        return recipe

    def at(self, plan: Plan, home: Path, seed: int) -> Plan:
        """The plan of the run that counts for another home: from its own stages."""
        recipe = self.handed_on(plan.recipe, home).model_copy(update={"seed": seed})
        values, planned = flat(recipe.model_dump()), flat(plan.recipe.model_dump())
        choices = [
            choice._replace(value=values[choice.key]) if values.get(choice.key) != planned.get(choice.key) else choice
            for choice in plan.choices
        ]
        return plan._replace(recipe=recipe, choices=choices)


def settled(plan: Plan) -> Recipe:
    """All that was chosen but the length, which stays as it was asked for."""
    asked, recipe = plan.asked, plan.recipe
    schedule = recipe.schedule.model_copy(update={"warmup_epochs": asked.schedule.warmup_epochs})
    lengths: dict[str, Any] = {key: getattr(asked, key) for key in LENGTH}
    of_epochs = {key: getattr(asked.augment, key) for key in (*COLOURS, "trivial")}  # chosen by their number
    augment = recipe.augment.model_copy(update=of_epochs)
    return recipe.model_copy(update={**lengths, "schedule": schedule, "augment": augment})


def is_over(path: Path) -> bool:
    return (path / "results.json").is_file() and (path / "report.html").is_file()


def finish_here(logs: Sequence[LogType], clock: Clock, world: World) -> Finish:
    """In this process, one after the other; those that train along are told."""

    def finish(paths: Iterable[Path], prepared: Prepared | None) -> None:
        for path in paths:
            run = RunFolder(path)
            with sole_owner(path):
                if run.finished:  # and killed before its report was written
                    report_runs([run], path / "report.html")
                    continue
                tell_folder(path, world)
                plan, training = (prepared.plan, prepared.training) if prepared else (read_plan(run), None)
                execute(run, plan, logs, training, clock.started, world)

    return finish


def finish_elsewhere(folder: Path, jobs: int, on: str) -> Finish:
    """Each in a process of its own, as the members of the group are."""

    def finish(paths: Sequence[Path], prepared: Prepared | None) -> None:
        wait_for_others(paths)
        run_folders([path for path in paths if not is_over(path)], jobs, on, go_on=f"smallvit resume {folder}")

    return finish
