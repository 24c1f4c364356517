"""evidence.toml: every lever can be switched off and on as it says, and every number is from a file of the repository."""

from __future__ import annotations

import shlex

import pytest
from pydantic import ValidationError

from helpers import PROJECT, ends_well, run_here
from smallvit.models.aliases import HYBRIDS
from smallvit.models.features import check_model_name
from smallvit.planning import evidence
from smallvit.planning.evidence import Lever, Measured, gains, levers
from smallvit.training import budget

PLANNED = ("train", "digits", "--explain", "--per-class", "13", "--epochs", "1", "--threads", "1")
ENTRY = {"name": "a lever", "setting": "ema", "unused": [0.0], "off": "--set ema=0", "on": "--set ema=0.9"}
NUMBER = {"points": 1.0, "seeds": 1, "images": "CIFAR-10", "seconds": 40, "source": "docs/results/contest.json"}


def test_there_are_levers_and_no_two_share_a_name() -> None:
    names = [lever.name for lever in levers()]
    assert len(names) > 10 and len(set(names)) == len(names)


@pytest.mark.parametrize("lever", levers(), ids=lambda lever: lever.setting)
def test_a_lever_is_switched_off_and_on_by_its_own_words(lever: Lever, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(budget, "MEASURED_SECONDS", 0.05)  # how long it would take is not asked here
    models = lever.needs.get(
        "model.name", ("conv_nano",)
    )  # what `train` takes by itself, or the first that has a use for it
    model = () if "conv_nano" in models else ("--model", models[0])
    without, with_it = (
        ends_well(run_here(*PLANNED, *model, *shlex.split(words))).out.partition("\nleft out\n")
        for words in (lever.off, lever.on)
    )
    assert lever.name in without[2] and lever.on in without[2], "what is switched off is left out"
    assert lever.name not in with_it[2]
    (row,) = [line for line in with_it[0].splitlines() if line.strip().startswith(f"{lever.setting} = ")]
    assert lever.off in row or lever.off in with_it[0], "what is in use says how to switch it off"
    for measured in lever.measured:
        assert str(measured) in with_it[0] and str(measured) in without[2]


def test_models_that_are_named_are_models() -> None:
    named = {
        name
        for lever in levers()
        for values in (lever.needs.get("model.name", ()), *([lever.used] if lever.setting == "model.name" else []))
        for name in values
    }
    assert named >= set(HYBRIDS)
    for name in named:
        check_model_name(name)


def test_every_number_has_its_source_in_the_repository() -> None:
    sources = {measured.source for lever in levers() for measured in lever.measured}
    assert sources and [source for source in sources if not (PROJECT / source).is_file()] == []
    assert all(source.startswith("docs/results/") for source in sources)


@pytest.mark.parametrize(
    ("wrong", "phrase"),
    [
        ({"interval": [0.5, 1.5]}, "one seed has none"),
        ({"seeds": 3}, "several seeds have an interval"),
        ({"second": 40}, "Extra inputs are not permitted"),
    ],
)
def test_a_number_says_how_sure_it_is(wrong: dict[str, object], phrase: str) -> None:
    with pytest.raises(ValidationError, match=phrase):
        Measured.model_validate(NUMBER | wrong)


def test_numbers_in_words() -> None:
    assert str(Measured.model_validate(NUMBER)) == "+1.0 points (one seed; CIFAR-10, 40 s)"
    several = Measured.model_validate(NUMBER | {"points": -0.25, "seeds": 3, "interval": [-1, 0.5], "note": "light"})
    assert str(several) == "-0.2 points, -1.0 to +0.5 (3 seeds; CIFAR-10, 40 s; light)"


def test_what_helped_a_model_beyond_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(model: str, points: float, low: float) -> dict[str, object]:
        return NUMBER | {"model": model, "points": points, "interval": [low, 2 * points], "seeds": 5}

    entries = [
        {
            "name": "first",
            "used": ["mimetic"],
            "measured": [measured("vit_nano", 3.0, 0.4), measured("deit_tiny", 9.0, -0.1)],
        },
        {
            "name": "second",
            "used": ["impulse"],
            "measured": [measured("vit_nano", 4.0, 1.0), NUMBER | {"model": "deit_tiny"}],
        },
    ]
    common = {"setting": "model.weights", "off": "--set model.weights=usual", "on": "--set model.weights=..."}
    made = tuple(Lever.model_validate(common | entry) for entry in entries)
    monkeypatch.setattr(evidence, "levers", lambda: made)
    assert [(gain.lever.name, gain.measured.points) for gain in gains("model.weights", "vit_nano")] == [
        ("second", 4.0),
        ("first", 3.0),
    ]
    assert gains("model.weights", "deit_tiny") == [], "an interval that holds 0, and a single seed, prove nothing"
    assert gains("ema", "vit_nano") == []
    assert str(made[0].measured[0]) == "+3.0 points, +0.4 to +6.0 (5 seeds; vit_nano; CIFAR-10, 40 s)"


@pytest.mark.parametrize("wrong", [{"unused": []}, {"used": [0.9]}])
def test_a_lever_says_with_which_values_it_is_in_use(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="give the values with which it is in use, or those with which it is not"):
        Lever.model_validate(ENTRY | wrong)
