"""The one writer of choices: what it replaces, what it records, and that a section writes into the same recipe."""

from __future__ import annotations

import pytest

from smallvit import make_recipe
from smallvit.errors import UsageError
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.supervised import Supervised, SupervisedOptions
from smallvit.planning.choices import Choice, Choices
from smallvit.planning.resolve import resolve_names


@pytest.fixture
def choices() -> Choices:
    return Choices(make_recipe(data="digits", lr=0.1, aux=["drloc"], settings={"model.kwargs.depth": 3}))


def test_only_what_was_left_open_is_chosen(choices: Choices) -> None:
    choices.choose("optimizer.lr", 0.5, "never")
    choices.choose("model.kwargs.depth", 7, "never")
    choices.choose("epochs", 4, "few images")
    choices.choose("epochs", 5, "never")
    choices.choose("model.kwargs.patch_size", 2, "small images")
    assert choices.made == [
        Choice("epochs", 4, "few images"),
        Choice("model.kwargs.patch_size", 2, "small images"),
    ]
    assert (choices.recipe.epochs, choices.recipe.optimizer.lr) == (4, 0.1)
    assert choices.recipe.model.kwargs == {"depth": 3, "patch_size": 2}


def test_what_follows_is_recorded_over_what_was_given_and_what_is_measured_is_not_told(choices: Choices) -> None:
    choices.record("model.name", "vit_pico", "the model to start from")
    choices.put("data.fingerprint", "abc")
    assert choices.made == [Choice("model.name", "vit_pico", "the model to start from")]
    assert (choices["model.name"], choices.recipe.data.fingerprint) == ("vit_pico", "abc")


def test_a_section_writes_into_the_same_recipe_and_the_same_list(choices: Choices) -> None:
    resolve_names(choices)
    inner = choices.within("aux").within("drloc")
    inner.record("weight", 0.25, "asked by a test")
    assert inner["weight"] == choices["aux.drloc.weight"] == 0.25
    assert choices.made == [Choice("aux.drloc.weight", 0.25, "asked by a test")]
    assert choices.recipe.aux["drloc"]["weight"] == 0.25


def test_class_weights_are_the_matter_of_the_objective(choices: Choices) -> None:
    task = TaskInfo(2, 6, 8, class_names=("cat", "dog"), class_counts=(4, 2))
    inner = choices.within("objective")
    for given in ("none", (1.0, 2.0)):
        Supervised.resolve(SupervisedOptions(class_weights=given), task, inner)
    assert choices.made == []
    inner.put("class_weights", "auto")
    Supervised.resolve(SupervisedOptions(class_weights="auto"), task, inner)
    assert choices.made == [
        Choice("objective.class_weights", [0.75, 1.5], "inverse frequency in the training part, mean 1")
    ]
    with pytest.raises(UsageError, match=r"cannot read 'none\.csv'"):
        Supervised.resolve(SupervisedOptions(class_weights="none.csv"), task, inner)
