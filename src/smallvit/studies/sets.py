"""The sets of a study: where each lies, and whether what is given later are the images that its runs were trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from smallvit.console import say
from smallvit.data.imageset import ImageSet
from smallvit.data.kinds import where_of
from smallvit.data.listed import Where
from smallvit.data.named.declared import data_folder, named_sets
from smallvit.data.named.opening import check_there, is_named
from smallvit.data.sources import open_source
from smallvit.errors import DataError, UsageError
from smallvit.planning.moved import check_same_images, current_place, is_same
from smallvit.planning.plan import images_at, load_images
from smallvit.planning.stored_split import stored_objective
from smallvit.runs.axes import Place
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import is_group, members_of
from smallvit.runs.relocation import relocate_known
from smallvit.studies.record import Record, split_key
from smallvit.studies.source import STAGES
from smallvit.studies.spec import ScaleName, Study, stages

Data = str | Path | Mapping[str, str | Path] | None


def sets_of(study: Study, scale: ScaleName) -> list[str]:
    """Names of the sets that the arms of a study ask for."""
    shared = study.scales[scale].shared
    each = [stage for asked in study.asked(scale).values() for stage in stages(shared, asked)]
    return list(dict.fromkeys(stage["data"] for stage in each if "data" in stage))


def data_for(study: Study, scale: ScaleName, data: Data) -> dict[str, str]:
    names = sets_of(study, scale)
    if data is None:
        return {}
    if isinstance(data, Mapping):
        if unknown := [name for name in data if name and name not in names]:
            choices = ", ".join(names) or "none by name: give --data SOURCE alone"
            raise UsageError(f"--data {unknown[0]}=...: the study has the sets {choices}")
        return {name: _absolute(source) for name, source in data.items()}
    if len(names) > 1:
        raise UsageError(
            f"--data {data}: the study has several sets: give --data {names[0]}=SOURCE, and so for {', '.join(names[1:])}"
        )
    return dict.fromkeys(["", *names], _absolute(data))


def check_some_there(study: Study, scale: ScaleName, arms: Sequence[str], data: Mapping[str, str]) -> None:
    """Refuse a study of which no set is there, before each of its runs says so."""
    shared, asked = study.scales[scale].shared, study.asked(scale)
    wanted = dict.fromkeys(str(stage.get("data", "")) for arm in arms for stage in stages(shared, asked[arm]))
    if any(name in data or (name and not _is_missing(name)) for name in wanted):
        return
    names = [name for name in wanted if name]
    if not names:
        raise UsageError("the study names no set: say what to train on, --data SOURCE")
    raise DataError(
        f"the study needs {' and '.join(names)}, and nothing of it is in {data_folder('')}: `smallvit check {names[0]}` says what to put "
        f"there, and with --download fetches it where that can be; SMALLVIT_DATA names another folder; or give --data {names[0]}=SOURCE"
    )


def _is_missing(name: str, folder: str = "") -> bool:
    if name not in named_sets():
        return False  # a path: its runs say what is wrong with it
    try:
        check_there(Where(name, folder))
    except DataError:
        return True
    return False


def file_names(data: Mapping[str, str]) -> dict[str, str]:
    """As a record has them: without a path of the machine."""
    return {name: Path(source).name for name, source in data.items()}


def _absolute(source: str | Path) -> str:
    """A file or folder wherever the runs are started from; the name of a set stays one."""
    return str(Path(source).expanduser().resolve()) if Path(source).expanduser().exists() else str(source)


# ---- a study that is there already ---------------------------------------------------------------------


def known_sets(folder: Path, record: Record, before: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The sets as a folder has them, and those that are given now: of one that it has runs on, the same images.

    `before` is what the last command went by.
    """
    lost = [name for name in record.data if name not in before and name not in given]
    found = {name: place for name in lost if (place := _place_of(folder, record, name))}
    for name, place in given.items():
        _check(folder, record, name, before.get(name), place)
    return {**found, **before, **given}


def moved_sets(
    folder: Path, study: Study, record: Record, before: Mapping[str, str], data: str | Path
) -> dict[str, str]:
    """The set of a study that goes on with its images at another place; or, of sets found by name, the folder they lie in."""
    if not isinstance(data, str | Path):
        raise UsageError(
            "data: a study goes on with images that are somewhere else; give a path, or each set to run_study"
        )
    names = sets_of(study, record.scale)
    found = [name for name in names if name not in before and name in named_sets() and named_sets()[name].layouts]
    if found and not any(_is_missing(name, str(data)) for name in found):
        for name in found:
            _move_named(folder, record, name, str(data))
        return dict(before)
    if len(names) > 1:
        raise UsageError(
            f"--data {data}: {folder} has several sets: give the `smallvit study run` that began it once more, with "
            f"--data SET=SOURCE for each that was moved: {', '.join(names)}"
        )
    return known_sets(folder, record, before, data_for(study, record.scale, data))


def _move_named(folder: Path, record: Record, name: str, place: str) -> None:
    """Tell the runs on a set that it lies in another folder. Runs to come know it by its name alone."""
    if _is_missing(name):
        raise UsageError(
            f"--data {place}: runs that are not planned yet look for {name} in {data_folder('')}, where it is not: "
            f"say SMALLVIT_DATA={place}, too"
        )
    runs = runs_on(folder, record, name)
    for run in {run.recipe.data.fingerprint: run for run in runs}.values():
        check_same_images(run, place, images_at(place, run))
    relocate_known(runs, place)
    say(f"{name} of {folder} lies in {place} now: the images are the same, and this is remembered")


def _place_of(folder: Path, record: Record, name: str) -> str | None:
    """Where a set is, of which only the runs on it know; None where there are none."""
    if runs := runs_on(folder, record, name):
        return current_place(runs[0])
    if _counts(record, name):
        raise UsageError(f"{folder} was run on {record.data[name]}, and nothing in it says where that is: give --data")
    return None


def _check(folder: Path, record: Record, name: str, before: str | None, place: str) -> None:
    """Refuse other images than those that the runs on a set were trained on; what was moved is remembered."""
    if before is not None and _is_same_place(before, place):
        return
    runs = runs_on(folder, record, name)
    if runs and _are_images_of(runs, place):
        relocate_known([run for run in runs if not is_named(where_of(run.recipe.data))], place)
        say(f"{place} holds the images that {folder} was run on")
        return
    had = before or record.data.get(name)
    if runs or (_counts(record, name) and had is not None and Path(had).name != Path(place).name):
        raise UsageError(
            f"--data {f'{name}={place}' if name else place}: {folder} was run on {had or runs[0].recipe.data.source}, and these "
            "are other images: leave --data out to go on with those, give another --out, or --overwrite to begin anew"
        )


def _is_same_place(one: str, other: str) -> bool:
    return one == other or Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def runs_on(folder: Path, record: Record, name: str) -> list[RunFolder]:
    """The planned runs of a study, with what comes before them, on one of its sets."""
    members = members_of(folder) if is_group(folder) else []
    planned = [member for member in members if (member.path / "recipe.json").is_file()]
    return [RunFolder(member.path) for member in planned if _set_of(record, member.place) == name]


def _set_of(record: Record, place: Place) -> str:
    """The name of the set that a run is on; empty where its arm names none."""
    each = stages(record.shared, record.arms_asked.get(str(place.arm), {}))
    number = STAGES.index(place.stage) if place.stage in STAGES else -1
    return str(each[number].get("data", ""))


def _counts(record: Record, name: str) -> bool:
    """Whether the record has a run on a set, wherever its folder is."""
    return any(_set_of(record, Place(arm=split_key(key)[0])) == name for key in record.runs)


def _are_images_of(runs: Sequence[RunFolder], place: str) -> bool:
    """Whether the images of a place are those of all these runs. Most runs take them alike, and one of each kind is asked."""
    kinds = {run.recipe.data.fingerprint: run for run in runs}
    return all(is_same(run, _images(place, run)) for run in kinds.values())


def _images(place: str, run: RunFolder) -> ImageSet:
    """What lies at a place, as the recipe of a run takes it."""
    recipe = run.recipe
    source = open_source(where_of(recipe.data)._replace(source=place), stored_objective(run, recipe).needs_labels)
    return load_images(source, recipe.data)
