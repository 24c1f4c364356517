"""What a search may change: the spaces of ours, and files that cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from smallvit import UsageError, make_recipe
from smallvit.planning.flags import given_keys
from smallvit.recipe import flat
from smallvit.tuning.search import distributions
from smallvit.tuning.space import make_space, read_space, space_names

BASIS = {**flat(make_recipe().model_dump()), "data.img_size": 64, "batch_size": 64, "optimizer.weight_decay": 0.05}
BASIS |= {"objective.label_smoothing": 0.1}


@pytest.mark.parametrize("name", space_names())
def test_every_value_of_our_spaces_makes_a_recipe(name: str) -> None:
    space = read_space(name)
    for key, parameter in space.parameters.items():
        for value in parameter.choices or parameter.times or (parameter.low, parameter.high):
            make_recipe("default", space.settings({key: value}, BASIS))


@pytest.mark.parametrize("name", space_names())
def test_the_default_stands_in_the_space_and_changes_nothing(name: str) -> None:
    space = read_space(name)
    defaults = space.defaults(BASIS)
    for key, kind in distributions(space, BASIS).items():
        assert kind._contains(kind.to_internal_repr(defaults[key]))
    for key, value in space.settings(defaults, BASIS).items():
        assert value == BASIS[key]


def test_values_become_settings() -> None:
    space = read_space("wide")
    found = space.settings({"data.img_size": 0.75, "augmentation": "cutmix", "batch_size": 32}, BASIS)
    assert found == {"data.img_size": 48, "objective.cutmix": 1.0, "objective.mix_prob": 0.5, "batch_size": 32}


def test_a_default_outside_widens_the_space() -> None:
    space = make_space("mine", {"optimizer.weight_decay": {"low": 0.1, "high": 1.0}, "batch_size": {"choices": [8]}})
    kinds = distributions(space, BASIS)
    assert kinds["optimizer.weight_decay"].low == 0.05
    assert kinds["batch_size"].choices == (8, 64)


@pytest.mark.parametrize(("text", "message"), [
    ("", "has no parameter"),
    ("[batch_size]", "give one of choices"),
    ("[batch_size]\nchoices = [8]\nlow = 1", "give one of choices"),
    ("[batch_size]\nlow = 9\nhigh = 8", "low below high"),
    ("[batch_size]\nlow = 0\nhigh = 8\nlog = true", "needs a low above 0"),
    ("[batch_size]\nchoices = [8]\nsize = 3", "parameter 'batch_size', size"),
    ("[batchsize]\nchoices = [8]", "did you mean batch_size"),
    ("[strength]\nchoices = ['a', 'b']\nmeans.a = {}", "means says nothing of the choice 'b'"),
    ("[strength]\nchoices = ['a']\nmeans.a = {}", "means needs a default that is one of its choices"),
    ("[", "not valid TOML"),
])  # fmt: skip
def test_files_that_are_no_space(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_space(file)


def test_an_unknown_space_names_ours() -> None:
    with pytest.raises(UsageError, match="small, wide"):
        read_space("huge")


def test_what_is_given_is_not_searched() -> None:
    space = read_space("wide")
    assert space.touching(given_keys({"augment.hue": 0.1}, {"model": "vit_nano", "img_size": None})) == [
        "model.name",
        "augmentation",  # one of its choices changes the hue
    ]
    assert space.touching(given_keys({"batch_size": "auto"}, {"seed": 3})) == []


def test_a_parameter_that_the_default_has_no_value_for_is_named() -> None:
    space = make_space("mine", {"model.kwargs.embed_dim": {"choices": [32, 64]}})
    with pytest.raises(
        UsageError, match=r"the space mine: what the default recipe has for model\.kwargs\.embed_dim is not known"
    ):
        space.defaults(BASIS)
