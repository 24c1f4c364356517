"""Which member of our family is taken where nothing is said: the widest that sees its images often enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import smallvit
from smallvit.errors import UsageError
from smallvit.planning import room
from smallvit.planning.choices import Choices
from smallvit.planning.member import ENOUGH, WIDER, about_attention, choose_member
from smallvit.planning.plan import Plan, make_plan, prepare
from smallvit.recipe import resolved
from smallvit.training.budget import StepCost
from smallvit.training.loop import Training
from smallvit.training.memory import Need

SMALL: dict[str, Any] = {"data": "mnist5k", "per_class": 4, "threads": 1, "settings": {"precision": "fp32"}}


def planned(**flags: Any) -> Plan:
    return make_plan(smallvit.make_recipe(**{**SMALL, **flags}))


def reasons(plan: Plan, key: str) -> list[str]:
    return [choice.why for choice in plan.choices if choice.key == key]


def test_few_images_leave_time_for_the_widest_and_the_reason_is_told_once() -> None:
    plan = planned()
    assert plan.recipe.model.name == plan.recipe.model.timm_name == "conv_tiny"
    [why] = reasons(plan, "model.name")
    assert why.startswith(f"the widest that could see every image {ENOUGH} times or more")


def test_a_kind_of_the_family_leaves_the_width_to_us() -> None:
    plan = planned(model="hybrid")
    assert plan.recipe.model.name == plan.recipe.model.timm_name == "hybrid_tiny"
    assert plan.recipe.optimizer.name == "muon" and plan.recipe.augment.padding == 1 / 16  # as for its members
    short = planned(model="hybrid", epochs=3)
    assert short.recipe.model.name == short.recipe.model.timm_name == "hybrid_nano"
    [why] = reasons(short, "model.name")
    assert "smallest" in why


@pytest.mark.parametrize("given", [{"epochs": 3}, {"data": "digits"}, {"model": "conv_nano"}])
def test_given_epochs_tiny_images_and_a_given_model_leave_it_as_it_is(given: dict[str, Any]) -> None:
    assert planned(**given).recipe.model.name == "conv_nano"


def test_a_model_to_start_from_is_not_replaced_by_a_wider_one(tmp_path: Path) -> None:
    flags = {**SMALL, "epochs": 1}
    start = smallvit.train(**flags, out=tmp_path / "start", show_progress=False)
    for given in ({}, {"model": "conv"}, {"budget": "10m"}):
        plan = planned(init=start.path, **given)
        assert plan.recipe.model.name == plan.recipe.model.timm_name == "conv_nano"
        assert reasons(plan, "model.name") == ["the model to start from"]


def test_without_a_budget_the_width_is_chosen_for_the_time_that_a_processor_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("smallvit.planning.length.MOST_MINUTES_CPU", 1e-4)
    assert planned(device="cpu").recipe.model.name == "conv_nano"


def test_a_wider_member_is_taken_in_pieces_where_it_does_not_fit_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    free = with_room_for_the_smallest(monkeypatch)
    plan = planned()
    assert plan.recipe.model.name == "conv_tiny" and plan.recipe.grad_accum == 2 and len(free) == 2
    [why] = reasons(plan, "grad_accum")
    assert "the step is that of the whole batch" in why
    with pytest.raises(UsageError, match=r"conv_tiny needs about .* more memory"):
        planned(grad_accum=1)


def with_room_for_the_smallest(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A machine on which whole batches of the smallest fit, and those of a wider member in two pieces."""
    free: list[float] = []
    measure = room.measure_need

    def reckon(training: Training, *more: Any) -> Need:
        need = measure(training, *more)._replace(activations=10**8)
        pieces = 1 if "nano" in training.recipe.model.name else 2
        free.append(1.001 * need.more(resolved(training.recipe.batch_size), pieces) / room.COMFORT)
        return need

    monkeypatch.setattr(room, "measure_need", reckon)
    monkeypatch.setattr(room, "free_bytes", lambda device: free[-1])
    monkeypatch.setattr(room, "held_by_children", lambda: 0)  # processes of other tests
    return free


@pytest.mark.parametrize(
    ("seconds_for_epochs", "member"),
    [(0.9 * ENOUGH, "nano"), (1.1 * ENOUGH * WIDER["micro"], "micro"), (1.1 * ENOUGH * WIDER["tiny"], "tiny")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["conv", "hybrid"])
def test_a_budget_takes_what_it_has_time_for(seconds_for_epochs: float, member: str, kind: str) -> None:
    """Steps of the smallest take a second, so that an epoch takes as many as it has steps."""
    recipe = smallvit.make_recipe(**SMALL, model=f"{kind}_nano", epochs=1)
    training = prepare(recipe).training
    choices = Choices(training.recipe)
    taken = choose_member(choices, training, StepCost((1, 1), (1.0, 1.0)), seconds_for_epochs * len(training.loader))
    assert taken == (member != "nano") and choices["model.name"] == choices["model.timm_name"] == f"{kind}_{member}"


def test_a_wider_member_sees_fewer_images_so_that_the_time_is_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smallvit.planning.length.MOST_MINUTES_CPU", 600)  # on a slow machine, too
    many = planned(per_class=300)  # of 3,000: more often than the smallest needs, not often enough for the widest
    assert many.recipe.model.name == "conv_micro"
    [why] = reasons(many, "epochs")
    assert "about 105,263 images seen" in why and many.recipe.epochs == 35


@pytest.mark.parametrize("more", [{"budget": 4}, {"budget": 60, "model": "hybrid"}])
def test_a_budget_that_is_gone_before_a_step_is_refused_in_words(
    more: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smallvit.planning.length.Clock.for_steps", lambda clock, budget, end: -1.0)
    with pytest.raises(UsageError, match=r"leaves 0 s for training, .*: raise --budget to \d+s"):
        planned(**more)


def test_why_there_are_as_many_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smallvit.planning.length.MOST_MINUTES_CPU", 6_000)  # on a slow machine, too
    assert reasons(planned(per_class=20), "epochs") == ["the most that is taken unasked"]


@pytest.mark.parametrize(("images", "seconds", "cell"), [
    (400, 200, "CIFAR-10, 500 images, 240 s"), (2_000, 1_000, "CIFAR-10, 2,000 images, 900 s"), (60_000, 240, "CIFAR-10, 10,000 images, 240 s"),
])  # fmt: skip
def test_what_attention_brought_is_told_of_the_nearest_measurement(images: int, seconds: float, cell: str) -> None:
    assert cell in about_attention(images, seconds)


def test_that_there_is_no_attention_is_told_where_it_was_left_out() -> None:
    [why], [with_it] = (reasons(planned(model=model), "model.name") for model in ("conv", "hybrid"))
    assert "without attention, which nearest to this brought" in why and "attention" not in with_it
