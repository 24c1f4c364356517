"""Two variables of the environment bound every training, and never in silence."""

from __future__ import annotations

import pytest

from smallvit import make_recipe
from smallvit.errors import UsageError
from smallvit.planning.choices import Choice, Choices
from smallvit.planning.cut_short import MOST_EPOCHS, MOST_IMAGES, cut_batch, cut_short
from smallvit.planning.plan import make_plan


def cut(**flags: object) -> Choices:
    choices = Choices(make_recipe(data="digits", **flags))
    cut_short(choices)
    return choices


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MOST_EPOCHS, "3")
    monkeypatch.setenv(MOST_IMAGES, "5")


def test_without_the_variables_nothing_is_cut() -> None:
    assert cut(epochs=500, per_class=100).made == []


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize(
    "flags",
    [{}, {"epochs": 500}, {"budget": "20m"}, {"fraction": 0.5}, {"per_class": 100}],
    ids=lambda flags: "".join(flags) or "nothing",
)
def test_what_is_longer_is_cut_and_told(flags: dict[str, object]) -> None:
    choices = cut(**flags)
    assert choices.made == [
        Choice("epochs", 3, "SMALLVIT_MOST_EPOCHS is set"),
        Choice("data.per_class", 5, "SMALLVIT_MOST_IMAGES is set"),
    ]
    recipe = choices.recipe
    assert (recipe.epochs, recipe.budget, recipe.data.per_class, recipe.data.fraction) == (3, None, 5, None)


@pytest.mark.usefixtures("bounds")
def test_what_is_short_already_stays() -> None:
    choices = cut(epochs=2, per_class=4)
    assert choices.made == []
    assert (choices.recipe.epochs, choices.recipe.data.per_class) == (2, 4)


@pytest.mark.usefixtures("bounds")
def test_a_plan_is_cut_and_says_so() -> None:
    plan = make_plan(make_recipe(data="digits", model="vit_pico", budget="20m"), with_floors=False)
    assert (plan.recipe.epochs, plan.recipe.budget, len(plan.split.train)) == (3, None, 50)
    assert plan.recipe.schedule.warmup_epochs == 0.3, "what follows from the epochs follows from these"
    assert {"epochs", "data.per_class"} <= {choice.key for choice in plan.choices}


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize(("asked", "taken"), [(256, 25), (25, 25), (10, 10)])
def test_a_batch_is_no_larger_than_half_of_the_images_that_are_left(asked: int, taken: int) -> None:
    plan = make_plan(make_recipe(data="digits", model="vit_pico", batch_size=asked), with_floors=False)
    assert plan.recipe.batch_size == taken
    told = [choice for choice in plan.choices if choice.key == "batch_size"]
    assert told == ([Choice("batch_size", 25, "SMALLVIT_MOST_IMAGES is set")] if taken < asked else [])


def test_a_batch_that_was_asked_for_is_not_bound_by_itself() -> None:
    choices = Choices(make_recipe(data="digits", batch_size=256))
    cut_batch(choices, 16)
    assert choices["batch_size"] == 256, "the loader refuses it, in words"


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_bound_that_is_none_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MOST_EPOCHS, text)
    with pytest.raises(UsageError, match=f"SMALLVIT_MOST_EPOCHS={text}: should be a whole number, at least 1"):
        cut()
