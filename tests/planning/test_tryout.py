"""Threads and precision by a try: what was measured is told, what was given stays, and nothing is used up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from smallvit import make_recipe
from smallvit.planning import tryout
from smallvit.planning.choices import Choice
from smallvit.planning.plan import Plan, prepare
from smallvit.training.build import build_training

ASKED: dict[str, Any] = {
    "data": "digits",
    "img_size": 16,
    "model": "conv_nano",
    "per_class": 4,
    "epochs": 1,
    "batch_size": 8,
}
# Milliseconds of a step, by threads and precision.
Speeds = dict[tuple[int, str], float]


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> Speeds:
    """A machine with four threads on which everything takes 10 ms, until a test says otherwise."""
    times: Speeds = {(threads, precision): 10.0 for threads in (1, 4) for precision in ("fp32", "bf16")}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(tryout, "step_seconds", lambda training, threads, precision: times[threads, precision] / 1000)
    return times


def chosen(**changes: Any) -> tuple[Plan, dict[str, Choice]]:
    plan, *_ = prepare(make_recipe(**{**ASKED, **changes}), with_floors=False)
    return plan, {choice.key: choice for choice in plan.choices}


@pytest.mark.parametrize(("fp32", "bf16", "expected"), [(10.0, 5.0, "bf16"), (10.0, 9.5, "fp32"), (10.0, 20.0, "fp32")])
def test_precision_is_what_was_faster_by_enough(speeds: Speeds, fp32: float, bf16: float, expected: str) -> None:
    speeds |= {(4, "fp32"): fp32, (4, "bf16"): bf16}
    plan, choices = chosen()
    assert plan.recipe.precision == choices["precision"].value == expected
    assert (
        choices["precision"].why
        == f"measured: a step of {plan.recipe.model.name} takes {bf16:.0f} ms in bf16, {fp32:.0f} ms in fp32"
    )


@pytest.mark.parametrize("units", [False, True])
def test_another_model_is_tried_where_there_are_units_for_it(
    speeds: Speeds, units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tryout, "has_fast_bf16", lambda device: units)
    speeds |= {(4, "bf16"): 3.0, (1, "bf16"): 9.0, (1, "fp32"): 12.0}
    plan, choices = chosen(model="vit_pico")
    assert plan.recipe.precision == ("bf16" if units else "fp32")
    assert choices["precision"].why.startswith(
        "measured: a step of vit_pico takes 3 ms in bf16" if units else "no fast bf16 units"
    )
    speeds |= {(4, "bf16"): 30.0, (1, "bf16"): 90.0}
    assert chosen(model="vit_pico")[0].recipe.precision == "fp32", "units that do not pay for this model"


@pytest.mark.parametrize(("alone", "together", "expected"), [(10.0, 5.0, 4), (10.0, 9.5, 1), (10.0, 20.0, 1)])
def test_threads_are_more_than_one_where_they_pay(speeds: Speeds, alone: float, together: float, expected: int) -> None:
    for precision in ("fp32", "bf16"):
        speeds |= {(1, precision): alone, (4, precision): together}
    plan, choices = chosen()
    assert plan.recipe.threads == choices["threads"].value == expected
    assert choices["threads"].why == f"measured: a step takes {alone:.0f} ms with one thread, {together:.0f} ms with 4"


def test_what_was_given_is_not_tried(speeds: Speeds) -> None:
    speeds.clear()
    speeds[3, "bf16"] = 10.0  # any other try is an error
    plan, choices = chosen(threads=3, precision="bf16")
    assert (plan.recipe.threads, plan.recipe.precision) == (3, "bf16")
    assert not {"threads", "precision"} & choices.keys()


def test_one_is_tried_with_the_other_as_given(speeds: Speeds) -> None:
    speeds |= {(4, "bf16"): 3.0, (1, "bf16"): 9.0}
    plan, choices = chosen(precision="bf16")
    assert plan.recipe.threads == 4 and "precision" not in choices
    speeds |= {(1, "fp32"): 9.0, (1, "bf16"): 3.0}
    del speeds[4, "fp32"], speeds[4, "bf16"]
    plan, choices = chosen(threads=1)
    assert plan.recipe.precision == "bf16" and "threads" not in choices


def test_the_training_that_goes_on_has_what_was_chosen_and_lost_nothing() -> None:
    """Real steps this time: weights, state and the next batch are those of a training that nobody tried."""
    before = torch.get_num_threads()
    plan, training, _ = prepare(make_recipe(**ASKED), with_floors=False)
    assert training.recipe == plan.recipe
    assert torch.get_num_threads() == before
    fresh = build_training(plan.recipe, plan.images, plan.split)
    assert training.done == 0 and not training.optimizer.state
    expected, found = fresh.step.state_dict(), training.step.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    ours, theirs = (t.loader.batch(0, 0) for t in (training, fresh))
    assert all(torch.equal(a, b) for a, b in zip(ours.views, theirs.views, strict=True))
