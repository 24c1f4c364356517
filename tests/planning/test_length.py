"""How long a run is, from a step that is known: budgets, epochs that are ours to choose, and what is said of the time."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import pytest

from smallvit import make_recipe
from smallvit.errors import UsageError
from smallvit.planning import length, tryout
from smallvit.planning.choices import Choice
from smallvit.planning.length import (
    AIM,
    LEAST_EPOCHS,
    LOOKED_SHARE,
    MOST_MINUTES_CPU,
    REPLAN_AT,
    REPORT_SECONDS,
    Clock,
)
from smallvit.planning.plan import Plan, make_plan, prepare, show_plan
from smallvit.training import budget

ASKED: dict[str, Any] = {"data": "digits", "model": "vit_pico", "per_class": 8, "batch_size": 8, "threads": 1}
STEPS = 10  # an epoch of these
TEST_IMAGES = 359
A_JUDGEMENT = 4.0  # seconds


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of a step, as a try would find them; a test may set another number. Judging takes 4 s."""
    seconds = [0.05]
    monkeypatch.setattr(tryout, "step_seconds", lambda training, threads, precision: seconds[0])
    monkeypatch.setattr(budget, "measure_answer", lambda training: A_JUDGEMENT / TEST_IMAGES)
    return seconds


def planned(clock: Clock | None = None, **asked: Any) -> tuple[Plan, dict[str, Choice]]:
    made = make_plan(make_recipe(**{**ASKED, **asked}), clock, with_floors=False)
    return made, {choice.key: choice for choice in made.choices}


class At(Clock):
    """A clock that stands still, on a machine where all takes twice as long."""

    gone = 30.0  # type: ignore[assignment]

    def __init__(self, turns: int = 0) -> None:
        super().__init__(0.0, turns)
        self.slowdown, self.to_begin = 2.0, 20.0

    def watch(self) -> Any:
        return nullcontext()


# ---- a budget --------------------------------------------------------------------------------------------


def test_a_budget_is_what_is_gone_steps_and_the_end(step: list[float]) -> None:
    made, choices = planned(At(), budget="100s")
    end = 2 * REPORT_SECONDS + A_JUDGEMENT
    seconds = AIM * 100 - 30 - end
    recipe = made.recipe
    assert recipe.steps is not None and recipe.replan is not None and recipe.budget is None
    assert recipe.steps == pytest.approx(seconds / step[0], rel=0.05)
    assert recipe.epochs == -(-recipe.steps // STEPS)
    assert choices["epochs"].why.startswith("a budget of 100 s: 50 ms a step, 10 steps an epoch")
    assert recipe.replan.at == int(REPLAN_AT * recipe.steps)
    assert recipe.replan.by == pytest.approx(30 + REPLAN_AT * seconds)
    assert (recipe.replan.seconds, recipe.replan.end) == (AIM * 100, end)


def test_runs_that_follow_one_another_share_it_and_begin_each(step: list[float]) -> None:
    made, _ = planned(At(turns=2), budget="200s")
    seconds = (AIM * 200 - 30) / 2 - 20 - (2 * REPORT_SECONDS + A_JUDGEMENT)
    assert made.recipe.steps == pytest.approx(seconds / step[0], rel=0.05)
    assert made.recipe.replan is None, "one decision for all"


@pytest.mark.parametrize(("budget", "turns"), [("10s", 0), ("37s", 0), ("70s", 2)])
def test_too_little_is_refused_with_what_would_do(budget: str, turns: int, step: list[float]) -> None:
    with pytest.raises(UsageError, match=r"leaves 0 s for training.*one epoch of 10 steps takes about 0.5 s") as error:
        planned(At(turns), budget=budget)
    needed = str(error.value).partition("raise --budget to ")[2].partition(" for 10 of them, or take fewer images")[0]
    made, _ = planned(At(turns), budget=needed)
    assert made.recipe.steps is not None and made.recipe.steps >= 10 * STEPS


def test_looks_that_select_nothing_take_little_of_it(step: list[float]) -> None:
    """A look takes 3 s, and 40 of them would take a third of the time."""
    made, choices = planned(At(), budget="400s", val=0.2, settings={"select": "last"})
    assert len(made.split.test) == TEST_IMAGES
    assert made.recipe.eval_every == choices["eval_every"].value and "5% of the time" in choices["eval_every"].why
    a_look = A_JUDGEMENT / TEST_IMAGES * len(made.split.val)
    assert made.recipe.steps is not None and made.recipe.epochs != "auto" and made.recipe.eval_every != "auto"
    looks = made.recipe.epochs / made.recipe.eval_every
    assert looks > 1 and looks * a_look <= LOOKED_SHARE * made.recipe.steps * step[0] * 1.1
    selecting, others = planned(At(), budget="400s", val=0.2, settings={"select": "best"})
    assert others["eval_every"].why == "about 40 looks in all"
    assert selecting.recipe.steps is not None and selecting.recipe.steps < made.recipe.steps


@pytest.mark.parametrize(("gone", "budget", "seconds"), [(0.0, None, 6.0), (10.0, 60.0, 2.5), (70.0, 60.0, -0.5)])
def test_tries_take_a_small_part_of_what_is_left(gone: float, budget: float | None, seconds: float) -> None:
    assert Clock(time.monotonic() - gone).for_tries(budget) == pytest.approx(seconds, abs=0.1)


def test_a_processor_that_others_use_too_slows_down() -> None:
    clock = Clock()
    with clock.watch():
        time.sleep(0.05)
    assert clock.slowdown == length.MOST_SLOWDOWN
    with clock.watch():
        while clock.gone < 0.1:
            pass
    assert 1 <= clock.slowdown < length.MOST_SLOWDOWN


# ---- epochs that are ours to choose ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "epochs"),
    [
        (0.01, 300),
        (60 * MOST_MINUTES_CPU / 300 / STEPS - 0.01, 300),
        (1.01, 55),  # 59 would fit
        (3.0, 20),
        (4.5, 10),  # 13 would fit
        (100.0, LEAST_EPOCHS),
    ],
)
def test_a_processor_trains_for_minutes(seconds: float, epochs: int, step: list[float]) -> None:
    step[0] = seconds
    made, choices = planned()
    assert made.recipe.epochs == epochs
    assert (f"{1000 * seconds:.0f} ms a step on this machine" in choices["epochs"].why) == (epochs < 300)


def test_what_was_given_is_not_bounded(step: list[float]) -> None:
    step[0] = 100.0
    made, choices = planned(epochs=40)
    assert made.recipe.epochs == 40 and "epochs" not in choices


# ---- what is said --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"), [({"epochs": 5}, "20 s"), ({"epochs": 30}, "2 min"), ({"epochs": 3000}, "2.5 h")]
)
def test_the_time_is_said_before_the_start(
    asked: dict[str, Any], said: str, step: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    step[0] = 0.3
    made, _ = planned(At(), **asked)
    end = 2 * REPORT_SECONDS + A_JUDGEMENT
    assert made.seconds == pytest.approx(asked["epochs"] * STEPS * 0.3 + end, rel=0.05)
    show_plan(made)
    assert f"this takes about {said} on this machine" in capsys.readouterr().err


def test_a_real_step_is_measured_where_nothing_was_tried() -> None:
    made = prepare(make_recipe(**ASKED, epochs=2), with_floors=False)
    assert made.cost.seconds[0] > 0 and made.plan.seconds is not None and made.plan.seconds > REPORT_SECONDS


def test_a_stored_plan_says_nothing_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = planned(epochs=1)
    show_plan(made._replace(seconds=None))
    assert "this takes" not in capsys.readouterr().err
