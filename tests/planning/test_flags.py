"""Where presets and flags meet: what a recipe says for its own length, in a run of another."""

from __future__ import annotations

from typing import Any

import pytest

from smallvit import make_recipe
from smallvit.errors import UsageError
from smallvit.planning.flags import read_flags
from smallvit.planning.plan import Plan, make_plan
from smallvit.recipe import Recipe

SMALL: dict[str, Any] = {
    "data": "digits", "model": "vit_pico", "img_size": 8, "per_class": 8, "batch_size": 8, "threads": 1
}  # fmt: skip


def asked(recipe: str, settings: dict[str, Any] | None = None, **flags: Any) -> Recipe:
    return read_flags(recipe, settings, **flags)[0]


def planned(recipe: str, settings: dict[str, Any] | None = None, **flags: Any) -> Plan:
    return make_plan(
        make_recipe(recipe, {"aux.drloc": "none", **(settings or {})}, **{**SMALL, **flags}), with_floors=False
    )


def warmup_of(plan: Plan) -> tuple[float | str, list[str]]:
    key = "schedule.warmup_epochs"
    return plan.recipe.schedule.warmup_epochs, [choice.why for choice in plan.choices if choice.key == key]


# ---- the warm-up -------------------------------------------------------------------------------------


def test_the_warm_up_of_a_shortened_recipe_takes_a_fifth_of_it_and_says_so() -> None:
    warmup, [why] = warmup_of(planned("liu2021-swin", epochs=20))
    assert warmup == 4 and why.startswith("a fifth of the epochs")


@pytest.mark.parametrize(
    ("recipe", "epochs", "warmup"),
    [("liu2021-swin", None, 20), ("liu2021-swin", 100, 20), ("liu2021-swin", 99, 19.8), ("lu2022-cifar", 25, 5)],
)
def test_one_that_is_no_more_stays_as_published(recipe: str, epochs: int | None, warmup: float) -> None:
    assert asked(recipe, epochs=epochs).schedule.warmup_epochs == warmup


@pytest.mark.parametrize("given", [{"schedule.warmup_epochs": 20}, {"schedule": {"warmup_epochs": 20}}])
def test_one_that_was_given_stays_and_is_told_where_it_is_the_whole_run(given: dict[str, Any]) -> None:
    plan = planned("liu2021-swin", given, epochs=20)
    assert warmup_of(plan) == (20, [])
    assert any(said.startswith("schedule.warmup_epochs = 20 is the whole run") for said in plan.cautions)


def test_a_recipe_of_a_user_is_as_written_at_its_own_length(tmp_path: Any) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("epochs = 10\n[schedule]\nwarmup_epochs = 5\n")
    assert asked(str(mine)).schedule.warmup_epochs == 5
    assert asked(str(mine), epochs=5).schedule.warmup_epochs == 1
    mine.write_text("[schedule]\nwarmup_epochs = 5\n")
    assert asked(str(mine), budget="2m").schedule.warmup_epochs == 5
    assert asked(str(mine), epochs=5).schedule.warmup_epochs == 1


# ---- a budget ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"budget": "20m"}, {"settings": {"budget": "20m"}}])
def test_the_epochs_of_a_recipe_give_way_to_a_budget(given: dict[str, Any]) -> None:
    recipe = asked("lu2022-cifar", **given)
    assert (recipe.budget, recipe.epochs, recipe.schedule.warmup_epochs) == (1200, "auto", "auto")
    assert recipe.batch_size == 512, "all else is the recipe's"


def test_such_a_run_is_planned() -> None:
    plan = planned("lu2022-cifar", budget="2m")
    assert plan.recipe.steps and plan.recipe.epochs != 300
    assert warmup_of(plan)[1] == ["a tenth of the epochs, at most 10"]


def test_a_budget_and_epochs_that_were_both_given_are_refused() -> None:
    with pytest.raises(UsageError, match="budget and epochs = 30 exclude each other"):
        planned("lu2022-cifar", budget="2m", epochs=30)
