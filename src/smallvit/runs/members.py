"""Which runs belong together: the members of a group with their places on its axes, and the runs of one method.

A group is a folder with group.json and one run folder per member. Groups of version 0.1 have names only: seed-N is a
seed there, every other name an arm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.errors import RunError, UsageError
from smallvit.recipe import flat
from smallvit.runs.atomic import write_text
from smallvit.runs.axes import Place, place_from, place_named
from smallvit.runs.folder import RunFolder
from smallvit.runs.stored import read_json


class Member(NamedTuple):
    path: Path
    place: Place


def is_group(folder: Path) -> bool:
    return (folder / "group.json").is_file()


def read_group(folder: Path) -> dict[str, Any]:
    """group.json with the names of its members, and under `axes` their places by name."""
    file = folder / "group.json"
    record = read_json(file)
    names, stored = record["members"], record.get("axes")
    places = {name: _derived(name) if stored is None else place_from(stored[name], str(file)) for name in names}
    if len(set(places.values())) < len(names):
        raise RunError(f"{file}: two runs of it stand at the same place")
    return record | {"members": names, "axes": places}


def _derived(name: str) -> Place:
    return place_named(name) or Place(arm=name)


def write_group(folder: Path, record: Mapping[str, Any], places: Mapping[str, Place]) -> None:
    """`places` are all members, by the names of their folders."""
    tree = {**record, "members": list(places), "axes": {name: place.axes for name, place in places.items()}}
    write_text(folder / "group.json", json.dumps(tree, indent=1) + "\n")


def add_member(folder: Path, name: str, place: Place) -> None:
    record = read_group(folder)
    if record["axes"].get(name) != place:
        write_group(folder, record, record["axes"] | {name: place})


def members_of(folder: Path) -> list[Member]:
    return [Member(folder / name, place) for name, place in read_group(folder)["axes"].items()]


def counting_members(folder: Path) -> list[Member]:
    """Without what they start from: none where a group, as of a study, has only that so far."""
    return [member for member in members_of(folder) if member.place.stage is None]


def final_members(folder: Path) -> list[Member]:
    """Those that count, of which there has to be one."""
    if members := counting_members(folder):
        return members
    raise RunError(f"{folder} is a group without runs: nothing was started in it")


def replicate_members(folder: Path) -> list[Member]:
    """The runs of a group that may answer as one: seeds or folds of one way to train."""
    members = final_members(folder)
    if arms := dict.fromkeys(member.place.arm for member in members if member.place.arm):
        raise UsageError(
            f"{folder} holds several ways to train ({', '.join(arms)}), which do not answer as one: give the folder "
            "of a run, or a group of seeds or folds"
        )
    return members


def is_folds(folder: Path) -> bool:
    """Whether all that counts of a group are folds of one way to train."""
    members = counting_members(folder) if is_group(folder) else []
    return bool(members) and all(place.fold is not None and place.arm is None for _, place in members)


def fold_results(folder: Path) -> dict[str, Any]:
    """What the folds of a group reach together; results.json of a group reads as that of a run."""
    if not is_folds(folder):
        raise RunError(f"{folder} holds no folds: each of its runs has results of its own")
    if not (folder / "results.json").is_file():
        raise RunError(f"{folder} has no results of its folds together: go on with `smallvit resume {folder}`")
    return read_json(folder / "results.json", "folds", "runs", "label_errors", "suspected_labels")


def folds_together(runs: Sequence[RunFolder]) -> Path | None:
    """The folder of a group, where these are all its runs, and they are folds that were judged together."""
    folder = runs[0].path.resolve().parent
    if not is_folds(folder) or not (folder / "results.json").is_file():
        return None
    own = {member.path for member in final_members(folder)}
    return runs[0].path.parent if {run.path.resolve() for run in runs} == own else None


def place_of(path: Path) -> Place | None:
    """Where its group puts a run. A folder that was taken out of its group may still tell its seed by its name."""
    path = path.resolve()
    if is_group(path.parent):
        places: dict[str, Place] = read_group(path.parent)["axes"]
        if path.name in places:
            return places[path.name]
    return place_named(path.name)


def replicate_of(path: Path, seed: int) -> Place:
    """What a run is paired by: its place in its group, or else its seed."""
    place = place_of(path)
    return place.replicate if place and place.replicate.axes else Place(seed=seed)


# ---- runs of one method --------------------------------------------------------------------------------


def method_of(path: Path, resolved: Mapping[str, Any]) -> str:
    """Equal for runs that are replicates of one arm: of one group, or of equal recipes apart from the seed.

    The recipe speaks for a run of its own; for the members of an arm the first of them does.
    """
    path = path.resolve()
    first = _first_of_arm(path)
    if first != path:
        path, resolved = first, flat(RunFolder(first).read("recipe.json", "resolved")["resolved"])
    rest = {key: value for key, value in resolved.items() if key != "seed"}
    start = Path(rest.get("model.init") or "").parent
    theirs = place_of(start) if start.name else None
    if theirs and theirs.replicate == replicate_of(path, resolved["seed"]):  # from its own replicate of another arm
        rest |= {"model.init": str(start.parent / theirs.method.folder), "model.init_digest": ""}
    return json.dumps(rest | _own_stages(path, rest), sort_keys=True)


def _own_stages(path: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What comes from the stages of the run itself, without its folder: every replicate has its own."""
    inside = {key: value for key, value in recipe.items() if isinstance(value, str) and value.startswith(f"{path}/")}
    digests = {
        name: "" for key in inside for name in recipe if name in (f"{key}_digest", f"{key.rpartition('.')[0]}.digest")
    }
    return {key: value.removeprefix(f"{path}/") for key, value in inside.items()} | digests


def _first_of_arm(path: Path) -> Path:
    if is_group(path.parent):
        members = members_of(path.parent)
        for own in members:
            if own.path == path:
                return next(member.path for member in members if member.place.method == own.place.method)
    return path


# ---- names ---------------------------------------------------------------------------------------------


def arm_name(path: Path) -> str:
    """What a run's arm may be called: by its group, or by the folder that holds its replicates, or its own."""
    path, place = path.resolve(), place_of(path)
    if place is None:
        return path.name
    return place.method.words or path.parent.name


def full_name(path: Path) -> str:
    """What a run's folder is called, with its group's name before it where its own tells the replicate alone."""
    path, place = path.resolve(), place_of(path)
    return f"{path.parent.name}/{path.name}" if place and not place.method.axes else path.name
