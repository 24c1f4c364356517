"""Places on the axes of a group: folder names, words, what is read from group.json and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smallvit.errors import RunError
from smallvit.recipe import flat
from smallvit.runs.axes import Place, in_order, listed, place_from, place_named, replicate_word
from smallvit.runs.members import add_member, full_name, members_of, method_of, place_of, read_group, write_group

PLACES = {
    "seed-0": Place(seed=0),
    "fold-3": Place(fold=3),
    "seed-1-fold-3": Place(seed=1, fold=3),
    "vit_nano": Place(arm="vit_nano"),
    "vit_nano-seed-2": Place(arm="vit_nano", seed=2),
    "vit_nano-seed-2-first": Place(arm="vit_nano", seed=2, stage="first"),
}


@pytest.mark.parametrize(("name", "place"), PLACES.items())
def test_a_place_names_its_folder_and_is_stored(name: str, place: Place) -> None:
    assert place.folder == name
    assert place_from(json.loads(json.dumps(place.axes)), "here") == place
    alone = place.arm is None and place.stage is None
    assert place_named(name) == (place if alone else None), "a name alone tells replicates, never an arm"


@pytest.mark.parametrize("name", ["", "-", "seed-", "seed-0-", "-fold-1", "seed-01", "seed--1", "seed-0fold-1"])
def test_names_that_are_no_replicates(name: str) -> None:
    assert place_named(name) is None


def test_words() -> None:
    seeds = [Place(seed=10), Place(seed=2)]
    assert listed(seeds) == "seeds 2, 10" and listed(seeds[:1]) == "seed 10" and replicate_word(seeds) == "seed"
    both = [Place(seed=0, fold=1), Place(seed=0, fold=0)]
    assert listed(both) == "seed 0 fold 0, seed 0 fold 1" and replicate_word(both) == "run"
    assert in_order([Place(arm="b"), Place(seed=1), Place(arm="a", seed=0)])[0] == Place(seed=1)
    assert Place(arm="vit", seed=0).words == "vit, seed 0"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"colour": 1}, "'colour' is no axis of a group: arm, seed, fold, stage"),
        ({"seed": "0"}, "'0' is no seed"),
        ({"seed": True}, "True is no seed"),
        ({"arm": 3}, "3 is no arm"),
        ({}, "is no place"),
        ([0], "axes.a = .0.: should be a valid dictionary"),
    ],
)
def test_places_that_are_refused(axes: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text(json.dumps({"members": ["a"], "axes": {"a": axes}}))
    with pytest.raises(RunError, match=r"group\.json.*" + message):
        read_group(tmp_path)


def test_groups_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "group.json"
    for record, message in (
        ({"members": ["../a"]}, "'../a' is no folder of this group"),
        ({"members": ["a"], "axes": {}}, "axes does not say where 'a' stands"),
        ({"members": ["a", "b"], "axes": {"a": {"seed": 0}, "b": {"seed": 0}}}, "at the same place"),
        ({}, "it has no members"),
        ([], "does not hold a JSON object"),
    ):
        file.write_text(json.dumps(record))
        with pytest.raises(RunError, match=message):
            members_of(tmp_path)


def test_groups_of_0_1_have_names_only(tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text(json.dumps({"members": ["seed-3", "vit_nano"]}))
    assert [member.place for member in members_of(tmp_path)] == [Place(seed=3), Place(arm="vit_nano")]


def test_a_group_grows_and_keeps_what_it_holds(tmp_path: Path) -> None:
    write_group(tmp_path, {"title": "t", "diagnosis": {"against": "a", "images": 64}}, {"a": Place(arm="a")})
    add_member(tmp_path, "b-1", Place(arm="b", seed=1))
    record = json.loads((tmp_path / "group.json").read_text())
    assert record["title"] == "t" and record["diagnosis"] == {"against": "a", "images": 64}
    assert record["members"] == ["a", "b-1"], "the names are a list, as in version 0.1"
    assert place_of(tmp_path / "b-1") == Place(arm="b", seed=1) and place_of(tmp_path / "c") is None


def make_run(path: Path, **resolved: object) -> dict[str, object]:
    """Its recipe, in one level."""
    path.mkdir(parents=True)
    whole = {"seed": 0, "epochs": 5, "data": {"source": "digits"}, "model": {"name": "vit_nano"}, **resolved}
    (path / "recipe.json").write_text(json.dumps({"resolved": whole, "choices": []}))
    return flat(whole)


def test_runs_of_one_method(tmp_path: Path) -> None:
    """By the recipe apart from the seed, for runs that the user gives; by the arm, for those of a group."""
    a, b = tmp_path / "a", tmp_path / "b"
    recipe = make_run(a)
    assert recipe == make_run(b)
    assert method_of(a, recipe) == method_of(b, recipe | {"seed": 7}) != method_of(b, recipe | {"epochs": 6})

    group = tmp_path / "group"
    places = {f"{arm}-{fold}": Place(arm=arm, fold=fold) for arm in ("x", "y") for fold in (0, 1)}
    recipes = {
        name: make_run(group / name, model={"name": name[0]}, optimizer={"lr": 0.1 + (place.fold or 0)})
        for name, place in places.items()
    }
    write_group(group, {}, places)
    keys = [method_of(group / name, recipes[name]) for name in places]
    assert keys[0] == keys[1] != keys[2] == keys[3], "folds of an arm, though their recipes differ"


def test_runs_that_start_from_their_own_seed_are_seeds_of_one_method(tmp_path: Path) -> None:
    def started(seed: int, start: str) -> str:
        init = {"model.init": str(tmp_path / start / "model.safetensors"), "model.init_digest": start}
        return method_of(tmp_path / f"run-{seed}", {"seed": seed, **init})

    assert started(0, "group/seed-0") == started(1, "group/seed-1")
    assert started(0, "group/seed-0") != started(1, "group/seed-0"), "one start for all is another way to train"
    names = {f"p-{seed}-first": Place(arm="p", seed=seed, stage="first") for seed in (0, 1)}
    (tmp_path / "study").mkdir()
    write_group(tmp_path / "study", {}, names)
    assert started(0, "study/p-0-first") == started(1, "study/p-1-first") != started(1, "study/p-0-first")


def test_names_of_folders(tmp_path: Path) -> None:
    assert full_name(tmp_path / "group" / "seed-0") == "group/seed-0"
    assert full_name(tmp_path / "group" / "vit") == "vit"
