"""A budget's steps are counted anew once, and what was decided stays decided, whatever happens to the process."""

from __future__ import annotations

import json
import shutil
import signal
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Moment, Warm
from tiny_runs import all_tensors, assert_same_run, assert_same_tensors, plan, training

import smallvit
from smallvit.errors import RunError
from smallvit.evaluation.model_file import read_tensors
from smallvit.planning.plan import Plan, write_plan
from smallvit.recipe import Replan
from smallvit.runs.execution import execute
from smallvit.runs.folder import check_free
from smallvit.training.build import build_training
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import Decision, Tick, Training, train
from smallvit.training.replan import MOST_CHANGE, decide, is_due, read_decision
from smallvit.training.session import Recorder, state_file

STEPS, AT = 35, 8  # of 13 an epoch: the last one is cut short
KILLED = -signal.SIGKILL


def planned(**changes: Any) -> Plan:
    """A run whose steps a budget counted."""
    made = plan("vit", checkpoint_seconds=0, **changes)
    update = {"steps": STEPS, "replan": Replan(at=AT, by=1e6, seconds=1e-3, end=0, step=1)}
    return made._replace(recipe=made.recipe.model_copy(update=update))


def planned_training(seconds: float = 100.0, end: float = 0.0) -> Training:
    made = planned()
    recipe = made.recipe.model_copy(
        update={"replan": Replan(at=AT, by=0.6 * seconds, seconds=seconds, end=end, step=1.0)}
    )
    return build_training(recipe, made.images, made.split)


# ---- the count -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "trained", "total"),
    [
        (20.0, 8.0, AT + 80),  # a step took a second, and 80 are left
        (84.0, 16.0, AT + 8),  # two seconds each, 16 left
        (99.0, 8.0, AT + round((STEPS - AT) / MOST_CHANGE)),  # a pause is no speed
        (500.0, 8.0, AT + round((STEPS - AT) / MOST_CHANGE)),
        (1.0, 0.01, AT + round((STEPS - AT) * MOST_CHANGE)),
    ],
)
def test_what_is_left_is_divided_by_what_a_step_took(spent: float, trained: float, total: int) -> None:
    t = planned_training()
    t.done = AT
    assert decide(t, spent, trained) == Decision(AT, total)


@pytest.mark.parametrize(("step", "left"), [(1.0, 70), (2.0, 30), (0.5, 150)])
def test_what_follows_the_steps_slows_down_with_them(step: float, left: int) -> None:
    """10 s of 100 are for the end, where a step takes the second that was planned."""
    t = planned_training(end=10.0)
    t.done = AT
    left = min(left, round((STEPS - AT) * MOST_CHANGE))
    assert decide(t, 20.0, AT * step) == Decision(AT, AT + left)


def test_the_speed_is_that_of_the_latest_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that begins on the way slows down what is to come, not what was."""
    t, now = planned_training(), 0.0
    monkeypatch.setattr("smallvit.training.session.time.monotonic", lambda: now)
    recorder = Recorder(tmp_path, t, [], spent=7.0)
    one = torch.ones(())
    for t.done in range(1, AT + 1):
        now += 1.0 if t.done <= 5 else 3.0
        recorder.add(Tick(0, t.done, one, {}, one, 0.1, False, None, False))
    spent, trained = recorder.clock()
    assert spent == 7.0 + 5 * 1.0 + 3 * 3.0
    assert trained == AT * 3.0
    again = Recorder(tmp_path, t, [])
    again.restore(recorder.state())
    assert again.clock() == (spent, trained), "a run that was killed measures the same"


def test_a_speed_is_not_told_by_the_step_that_it_is_measured_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to decide may come with that very step: no second has passed since, and eight times the steps would seem to fit."""
    t, now = planned_training(), 0.0
    monkeypatch.setattr("smallvit.training.session.time.monotonic", lambda: now)
    recorder, one, taken = Recorder(tmp_path, t, []), torch.ones(()), []
    for t.done in range(1, AT + 1):
        now += 2.0
        recorder.add(Tick(0, t.done, one, {}, one, 0.1, False, None, False))
        taken.append(recorder.clock()[1] / t.done)
    assert recorder.mark is not None and taken == pytest.approx([2.0] * AT)


def test_it_is_due_at_its_step_or_when_that_part_of_the_time_is_gone() -> None:
    t = planned_training()
    assert not is_due(t, 0.0)
    t.done = AT - 2
    assert not is_due(t, 59.0) and is_due(t, 60.0)
    t.done = AT
    assert is_due(t, 1.0)
    t.decision = Decision(AT - 2, 20)
    assert not is_due(t, 1.0) and not is_due(t, 99.0)


@pytest.mark.parametrize("total", [AT + 6, STEPS, 70])
def test_rates_go_on_where_they_were_and_end_where_they_should(total: int) -> None:
    t, undecided = planned_training(), planned_training()
    ways: list[tuple[float, float]] = []
    for run in (t, undecided):
        way = []
        while run.done < run.total:
            way.append(run.place)
            run.done += 1
            if run is t and run.done == AT:
                run.decision = Decision(AT, total)
        ways.append((way[0], way[-1]))
        assert len(way) == (total if run is t else STEPS)
        assert all(after > before for before, after in pairwise(way))
        assert way[: AT + 1] == list(range(AT + 1)), "the step after the decision is where it would have been"
    assert ways[0] == ways[1] == (0, STEPS - 1)


def test_learning_rate_and_progress_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    t = planned_training()
    progress: list[float] = []
    forward = type(t.step).forward

    def watched(step: Any, batch: Any, ctx: Any) -> Any:
        progress.append(ctx.progress)
        return forward(step, batch, ctx)

    monkeypatch.setattr(type(t.step), "forward", watched)
    ticks = []
    for tick in train(t):
        ticks.append(tick)
        if tick.step == AT:
            t.decision = Decision(AT, 20)
    assert len(ticks) == 20 == t.done == t.total and progress[0] == 0 and progress[-1] == 1
    assert progress[AT] == pytest.approx(AT / (STEPS - 1))
    rates = [tick.lr for tick in ticks]
    planned_rates = [tick.lr for tick in islice(train(planned_training()), AT + 1)]
    assert rates[: AT + 1] == planned_rates
    assert rates[-1] == min(rates[AT:]) and rates[-1] < 0.01 * max(rates)
    assert ticks[-1].ends_epoch and ticks[-1].validation is not None, "the epoch that is cut short is judged"
    assert t.exam(t.val_rows).progress == 1


def test_a_cut_epoch_is_judged_as_any_other() -> None:
    ticks = list(train(planned_training()))
    assert [tick.step for tick in ticks if tick.ends_epoch] == [13, 26, STEPS]


# ---- stopped and gone on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [3, AT, AT + 1, 17])
def test_a_training_resumed_with_its_decision_is_the_same(after: int, tmp_path: Path) -> None:
    whole, part, resumed = (planned_training() for _ in range(3))
    for t, steps in ((whole, 100), (part, after)):
        for tick in islice(train(t), steps):
            if tick.step == AT:
                t.decision = Decision(AT, 20)
    save_state(tmp_path / "state", part)
    assert read_tensors(tmp_path / "state")[1]["total"] == (20 if after > AT else STEPS)
    resumed.decision = Decision(AT, 20)  # as it was read from the folder
    load_state(tmp_path / "state", resumed)
    list(train(resumed))
    assert resumed.done == 20
    assert_same_tensors(all_tensors(resumed), all_tensors(whole))


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is planned and not begun."""
    folder = tmp_path_factory.mktemp("planned") / "run"
    folder.mkdir()
    write_plan(folder, planned(), "test")
    return folder


@pytest.fixture(scope="module")
def undisturbed(waiting: Path, smallvit_command: Warm) -> Path:
    """Its time is over before it begins, so that it decides for as few steps as may be, whatever the machine does."""
    folder = shutil.copytree(waiting, waiting.parent / "undisturbed")
    told = smallvit_command.run("resume", folder).output
    few = AT + round((STEPS - AT) / MOST_CHANGE)
    assert json.loads((folder / "decision.json").read_text()) == {"at": AT, "total": few, "planned": STEPS}
    assert f"after {AT} steps the speed is known: {few} fit, {STEPS} were planned" in told
    assert read_tensors(state_file(folder))[1]["done"] == few
    return folder


MOMENTS: dict[str, list[Moment]] = {
    "before it": [("enter", "take_step", 5), ("enter", "write_decision", 1)],
    "as soon as it is written": [("leave", "write_decision", 1)],
    "later": [("enter", "take_step", AT + 3), ("enter", "finish", 1)],
}


@pytest.mark.parametrize("name", MOMENTS)
def test_killed_around_the_decision(
    name: str, waiting: Path, undisturbed: Path, smallvit_command: Warm, tmp_path: Path
) -> None:
    folder = shutil.copytree(waiting, tmp_path / "run")
    for moment in MOMENTS[name]:
        killed = smallvit_command.start("resume", folder, moment=moment)
        assert killed.wait() == KILLED, f"{moment} never came:\n{killed.output}"
    smallvit_command.run("resume", folder)
    assert_same_run(folder, undisturbed)


def test_a_decision_is_not_made_twice(waiting: Path, smallvit_command: Warm, tmp_path: Path) -> None:
    """Killed after the decision and before the checkpoint of that step: the step is done again, the decision is not."""
    folder = shutil.copytree(waiting, tmp_path / "run")
    killed = smallvit_command.start("resume", folder, moment=("leave", "write_decision", 1))
    assert killed.wait() == KILLED, killed.output
    assert read_tensors(state_file(folder))[1]["done"] == AT - 1
    other = {"at": AT, "total": 23, "planned": STEPS}  # what a faster machine would have decided
    (folder / "decision.json").write_text(json.dumps(other))
    smallvit_command.run("resume", folder)
    assert json.loads((folder / "decision.json").read_text()) == other
    assert read_tensors(state_file(folder))[1]["done"] == 23


@pytest.mark.parametrize(
    "content", ["", "{", "[1, 2]", '{"at": 3}', '{"at": 3, "total": "many"}', '{"at": 3, "total": 2}']
)
def test_a_damaged_decision_is_an_error_that_names_the_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "decision.json").write_text(content)
    with pytest.raises(RunError, match=str(tmp_path / "decision.json")):
        read_decision(tmp_path)


def test_a_decision_does_not_keep_a_run_from_being_overwritten(undisturbed: Path) -> None:
    check_free(undisturbed, overwrite=True)


def test_no_decision_is_none(tmp_path: Path) -> None:
    assert read_decision(tmp_path) is None


def test_a_decision_that_was_lost_is_noticed(undisturbed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    for name in ("decision.json", "results.json"):
        (folder / name).unlink()
    with pytest.raises(RunError, match=f"belongs to a run of .* steps, not of {STEPS}"):
        smallvit.resume(folder, show_progress=False)


def test_steps_of_a_plan_without_a_decision_are_all_taken(tmp_path: Path) -> None:
    """As every seed of a group is planned: one count for all, and none of them counts anew."""
    made = planned(epochs=1)
    made = made._replace(recipe=made.recipe.model_copy(update={"steps": 9, "replan": None}))
    (tmp_path / "run").mkdir()
    run = write_plan(tmp_path / "run", made, "test")
    execute(run, made)
    assert not (run.path / "decision.json").exists()
    assert read_tensors(state_file(run.path))[1]["done"] == 9


def test_runs_without_a_budget_know_nothing_of_it() -> None:
    t = training(epochs=2)
    assert t.total == t.planned == 2 * 13 and t.recipe.replan is None and t.recipe.steps is None
