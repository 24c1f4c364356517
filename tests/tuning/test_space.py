"""What a search may change: the spaces of ours, and files that cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from smallvit import UsageError, make_recipe
from smallvit.planning.flags import given_keys
from smallvit.recipe import flat
from smallvit.tuning.search import Trial, distributions, propose
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


def test_a_range_of_whole_numbers_has_whole_numbers() -> None:
    basis = flat(make_recipe(batch_size=64, img_size=32).model_dump())
    space = make_space(
        "mine", {"batch_size": {"low": 16, "high": 128, "log": True}, "data.img_size": {"low": 24.5, "high": 30}}
    )
    batch, size = distributions(space, basis).values()
    assert (type(batch).__name__, batch.low, batch.high, batch.log) == ("IntDistribution", 16, 128, True)
    assert (size.low, size.high) == (25, 32), "as wide as the default takes it"
    found = propose(space, basis, [Trial(0, {}, "done", 0.5)], seed=0)
    assert all(isinstance(value, int) for value in found.values())
    assert make_recipe("default", space.settings(found, basis)).batch_size == found["batch_size"]


@pytest.mark.parametrize(
    ("key", "table", "said"),
    [
        (
            "data.fraction",
            {"low": 0.1, "high": 1.0},
            "which has no place in a range: give the parameter a default, a number, or",
        ),
        ("ema", {"low": 0.05, "high": 0.9, "log": True}, "no place in a range with log = true: .* a number above 0"),
        ("data.flips", {"low": 0.0, "high": 1.0}, "no place in a range"),
    ],
)
def test_a_default_without_a_place_in_a_range_is_named(key: str, table: dict[str, float | bool], said: str) -> None:
    basis = flat(make_recipe(settings={"data.flips": True}).model_dump())
    with pytest.raises(UsageError, match=f"default recipe has {key} = .*{said}"):
        make_space("mine", {key: table}).defaults(basis)
    assert make_space("mine", {key: {**table, "default": 0.5}}).defaults(basis) == {key: 0.5}
