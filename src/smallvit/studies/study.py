"""`smallvit study run`: a study from wherever its folder stands to its report.

The folder is a group of runs with study.json (what was found) and asked.json (how the command was given). Going on after a
kill is the same as starting, and so is growing: arms and seeds that the record lacks are run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, ValidationError

from smallvit.console import quiet, say
from smallvit.errors import RunError, SmallvitError, UsageError, nearest
from smallvit.recipe import Precision, Section
from smallvit.recipes.durations import parse_duration
from smallvit.runs.atomic import write_text
from smallvit.runs.axes import Place
from smallvit.runs.environment import environment
from smallvit.runs.executor import run_all, wait_for_others
from smallvit.runs.folder import claimed
from smallvit.runs.members import is_group, members_of, write_group
from smallvit.runs.ownership import sole_owner
from smallvit.runs.places import LOCAL, as_one_of, check_place, place_called, room_at
from smallvit.studies import costs
from smallvit.studies.library import in_words, read_study, study_names
from smallvit.studies.looking import measure_runs
from smallvit.studies.page import write_page
from smallvit.studies.record import (
    FILE,
    ArmFacts,
    Opened,
    Record,
    changed_arms,
    is_study,
    open_study,
    read_record,
    same_length,
    split_key,
    write_record,
)
from smallvit.studies.sets import Data, check_some_there, data_for, file_names, known_sets, moved_sets
from smallvit.studies.source import StudyRuns
from smallvit.studies.spec import BETWEEN, LENGTHS, ScaleName, Study, Table, stages

ASKED = "asked.json"


class Asked(Section):
    """How the command was given."""

    command: str
    data: dict[str, str]
    seeds: Annotated[int, Field(ge=1, le=1000)]
    draws: Annotated[int, Field(ge=1, le=1000)]
    only: tuple[str, ...] = ()
    budget: float | None = None
    jobs: Annotated[int, Field(ge=1)] = 1
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    precision: str | None = None


def run_study(
    name: str | Path, *, scale: ScaleName = "laptop", data: Data = None, seeds: int | None = None,
    draws: int | None = None, budget: str | float | None = None, only: Sequence[str] = (), jobs: int | None = None,
    threads: int | None = None, precision: str | None = None, on: str = LOCAL, out: str | Path | None = None,
    overwrite: bool = False, show_progress: bool = True, command: str = "smallvit.run_study(...)",
) -> Opened:  # fmt: skip
    """Run what a study lacks, and write its report. `name` is one of ours, or a .toml file.

    `data` is a source as for `train`, or a mapping from the names of a study's sets to sources. `only` names arms, or values of
    axes. A budget starts no run that would end after it; the same command goes on later, with more seeds or arms, too, and with the
    images that it had: without `data` where they were. `precision` is that of all runs for which the study says none. What failed
    stands in `record.failed` while the rest goes on.
    """
    started = time.monotonic()
    check_place(on)
    key, study = _key_of(name), read_study(name)
    if scale not in study.scales:
        raise UsageError(f"--scale {scale}: {name} has {' and '.join(study.scales)}")
    if precision not in (None, *get_args(Precision)):
        raise UsageError(f"--precision {precision}: should be {' or '.join(get_args(Precision))}")
    asked_scale = study.scales[scale]
    own = asked_scale.shared.get("precision", precision)
    if precision not in (None, own):
        raise UsageError(f"--precision {precision}: {name} itself says {own}")
    threads = threads or (1 if scale == "laptop" else None)
    try:
        asked = Asked(
            command=command, data=data_for(study, scale, data), seeds=seeds or asked_scale.seeds,
            draws=draws or asked_scale.draws, only=tuple(only), jobs=jobs or (room_at(LOCAL, threads) if threads else 1),
            budget=parse_duration(budget) if isinstance(budget, str) else budget, threads=threads, precision=precision,
        )  # fmt: skip
    except ValidationError as error:
        raise UsageError(in_words(error)) from None
    chosen_arms(study, scale, asked.only)
    folder = Path(out) if out else Path("runs") / "studies" / f"{key}-{scale}"
    with quiet(not show_progress):
        overwrite = overwrite or (is_study(folder) and _nothing_was_run(folder))  # of a file that is mended since
        if is_study(folder) and not overwrite:
            with sole_owner(folder):
                asked = _checked(key, study, scale, folder, asked)
                return _go(folder, study, _write_asked(folder, asked), on, started)
        check_some_there(study, scale, chosen_arms(study, scale, asked.only), asked.data)
        with claimed(folder, overwrite) as path:
            write_group(path, {"title": study.title, "command": command}, {})
            write_record(path / FILE, new_record(key, study, scale, asked))
            return _go(path, study, _write_asked(path, asked), on, started)


def _nothing_was_run(folder: Path) -> bool:
    return not read_record(folder / FILE).runs and not any(folder.glob("*/recipe.json"))


def resume_study(folder: Path, jobs: int | None = None, on: str = LOCAL, data: str | Path | None = None) -> Opened:
    """Go on as the last command asked. `data` is where its images are now, if they were moved."""
    started = time.monotonic()
    check_place(on)
    with sole_owner(folder):
        study, asked = open_study(folder).study, read_asked(folder)
        if data is not None:
            asked = _write_asked(folder, _moved(folder, study, asked, data))
        if jobs:
            asked = asked.model_copy(update={"jobs": jobs})
        return _go(folder, study, asked, on, started)


def finished_runs(opened: Opened) -> list[Path]:
    """Folders of the runs that count."""
    assert opened.path is not None
    found = [member.path for member in members_of(opened.path) if member.place.stage is None]
    return [path for path in found if (path / "results.json").is_file()]


# ---- what is asked for ---------------------------------------------------------------------------------


def _key_of(name: str | Path) -> str:
    """What its folder and its record are called; whatever has the name of one of ours is judged as that."""
    if not str(name).endswith(".toml"):
        return str(name)
    key = Path(name).stem
    if key in study_names():
        raise UsageError(
            f"{name} is called as a study that comes with smallvit, and would be taken for it: give the file another name"
        )
    return key


def chosen_arms(study: Study, scale: ScaleName, only: Sequence[str]) -> list[str]:
    """All arms, or those that are named: whole, by the arm alone, by values of axes, or by both: a model on one of the sets."""
    arms = list(study.asked(scale))
    if not only:
        return arms
    parts = {part for arm in arms for part in (arm, *arm.split(BETWEEN))}
    if unknown := [name for name in only if name not in parts]:
        raise UsageError(f"--only {unknown[0]}: no such arm: {nearest(unknown[0], parts)}")
    whole = {*only} & {*arms}
    named = [{*only} & {*values} - whole for values in zip(*(arm.split(BETWEEN) for arm in arms), strict=True)]
    found = [arm for arm in arms if arm in whole or (any(named) and _has_one_of_each(arm, named))]
    if not found:
        raise UsageError(f"--only {' --only '.join(only)}: no arm at {scale} scale has all of that")
    return found


def _has_one_of_each(arm: str, named: Sequence[Collection[str]]) -> bool:
    """Of the arm and of every axis of which something is named."""
    return all(part in names for part, names in zip(arm.split(BETWEEN), named, strict=True) if names)


def check_same(study: Study, scale: ScaleName, record: Record, folder: Path) -> None:
    """Whether what is stored answers what is asked. Arms and seeds may come; what is there may not change."""
    if record.scale != scale:
        raise UsageError(f"{folder} holds the study at {record.scale} scale: give another --out")
    if not same_length(record, study, scale):
        raise UsageError(
            f"{folder} was run with another length or other shared settings: give another --out, or --overwrite"
        )
    if changed := changed_arms(record, study.asked(scale)):
        raise UsageError(
            f"the arm {changed[0]!r} in {folder} was another one: give it another name, another --out, or --overwrite"
        )


def check_precision(record: Record, asked: str | None, folder: Path) -> None:
    own = record.shared.get("precision")
    if asked and asked != own:
        begun = f"--precision {own}" if own else "no precision given"
        raise UsageError(
            f"--precision {asked}: {folder} was begun with {begun}, and its runs are compared: give another --out"
        )


def _checked(key: str, study: Study, scale: ScaleName, folder: Path, asked: Asked) -> Asked:
    """What is asked of a study that is there, with the sets that it knows; the record has it as it is now, grown or not."""
    record = read_record(folder / FILE)
    check_same(study, scale, record, folder)
    check_precision(record, asked.precision, folder)
    data = known_sets(folder, record, _data_of(folder), asked.data)
    record.study, record.title, record.spec = key, study.title, _spec_of(study)
    record.data = record.data | file_names(data)
    write_record(folder / FILE, record)
    return asked.model_copy(update={"data": data})


def _moved(folder: Path, study: Study, asked: Asked, data: str | Path) -> Asked:
    """The same with its images at another place, for the runs that there are and for those that are not planned yet."""
    record = read_record(folder / FILE)
    places = moved_sets(folder, study, record, asked.data, data)
    record.data = record.data | file_names(places)
    write_record(folder / FILE, record)
    return asked.model_copy(update={"data": places})


def new_record(key: str, study: Study, scale: ScaleName, asked: Asked) -> Record:
    own = study.scales[scale]
    lengths = {name: value for name in LENGTHS if (value := getattr(own, name)) is not None}
    given = {"precision": asked.precision} if asked.precision else {}
    return Record(
        title=study.title, study=key, scale=scale, spec=_spec_of(study), **lengths,
        data=file_names(asked.data), shared=own.shared | given, arms_asked={}, arms={},
        machine=environment("cpu", asked.threads or 0), date=time.strftime("%Y-%m-%d"), runs={},
    )  # fmt: skip


def _spec_of(study: Study) -> dict[str, Any]:
    return study.model_dump(mode="json", exclude_unset=True)


def read_asked(folder: Path) -> Asked:
    try:
        return Asked.model_validate_json((folder / ASKED).read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {folder / ASKED}: {error.strerror}") from None
    except ValidationError as error:
        raise RunError(f"{folder / ASKED} is damaged: {in_words(error)}") from None


def _data_of(folder: Path) -> dict[str, str]:
    """Where a study that is there was told to find its images; empty where that cannot be read."""
    try:
        return read_asked(folder).data
    except RunError:  # the runs know it, too
        return {}


def _write_asked(folder: Path, asked: Asked) -> Asked:
    write_text(folder / ASKED, asked.model_dump_json(indent=1) + "\n")
    return asked


# ---- the way of a study --------------------------------------------------------------------------------


def _go(folder: Path, study: Study, asked: Asked, on: str, started: float) -> Opened:
    """From wherever the folder, which is held, stands."""
    record = read_record(folder / FILE)
    arms = chosen_arms(study, record.scale, asked.only)
    _reuse(folder, study, record, arms, asked.data)
    _start(study, record, [arm for arm in arms if arm not in record.arms], asked)
    write_record(folder / FILE, record)
    draws = [None, *range(1, asked.draws)]  # the first is that of a study without draws, which may grow
    ready = [arm for arm in arms if arm in record.arms]
    places = [Place(arm=arm, seed=seed, draw=draw) for draw in draws for seed in range(asked.seeds) for arm in ready]
    if is_group(folder):
        wait_for_others([member.path for member in members_of(folder)])
    runs = StudyRuns(
        folder, record, places, asked.data, threads=asked.threads, command=asked.command, budget=asked.budget,
        started=started,
    )  # fmt: skip
    go_on = f"smallvit resume {folder}"
    if runs.waiting:
        say(f"{len(runs.waiting)} runs of {len(ready)} arms to go, {asked.jobs} at a time")
    launch = place_called(on, asked.jobs)
    with as_one_of(asked.jobs, on):  # runs are planned when their turn comes
        run_all(runs, asked.jobs, go_on=go_on, total=runs.total, keep_going=True, launch=launch)
    measure_runs(folder, study, record)
    opened = Opened(record.study, study, record, folder)
    write_page(opened, folder / "report.html")
    if runs.left_for_later:
        say(f"the time is over: {runs.left_for_later} runs are left; go on with `{go_on}`, or the same command")
    return opened


def _reuse(folder: Path, study: Study, record: Record, arms: Sequence[str], data: Mapping[str, str]) -> None:
    """Runs of an arm that another study beside this one has made, with its number of epochs, on the same images."""
    asked = study.asked(record.scale)
    for arm, name in study.reuse.items():
        other_folder = folder.parent / f"{name}-{record.scale}"
        if arm not in arms or arm in record.arms or not is_study(other_folder):
            continue
        other = read_record(other_folder / FILE)
        same = [getattr(other, key) == getattr(record, key) for key in ("shared", "data", *LENGTHS)]
        same.append(_data_of(other_folder) == data)  # the record has names of files alone
        if arm in other.arms and all(same) and other.arms_asked[arm] == asked[arm]:
            record.arms = {**record.arms, arm: other.arms[arm]}
            record.arms_asked = {**record.arms_asked, arm: asked[arm]}
            record.runs = {**record.runs, **{key: run for key, run in other.runs.items() if split_key(key)[0] == arm}}
            say(f"{arm}: {len(other.of(arm))} runs of {name} count here, too")


def _start(study: Study, record: Record, new: Sequence[str], asked: Asked) -> None:
    """Put into the record how long the new arms are. A kind of stage that it has is not measured again."""
    scale, tables = study.scales[record.scale], study.asked(record.scale)
    each = {arm: stages(record.shared, tables[arm]) for arm in new}
    known: dict[str, costs.Cost | str] = dict(_known_costs(record))
    if scale.length in ("cpu_seconds", "steps"):
        wanted = [stage for own in each.values() for stage in own if costs.kind(stage) not in known]
        known |= costs.measured(wanted, scale, asked.data, asked.threads)
    failed = {name: why for name, why in record.failed.items() if name not in new}
    for arm, own in each.items():
        try:
            record.arms = {**record.arms, arm: _lengths(own, study, record, known, asked)}
            record.arms_asked = {**record.arms_asked, arm: tables[arm]}
        except SmallvitError as error:
            failed[arm] = str(error)
    record.failed = failed


def _lengths(
    own: Sequence[Table], study: Study, record: Record, known: Mapping[str, costs.Cost | str], asked: Asked
) -> ArmFacts:
    facts: ArmFacts | None = None
    for stage in own:
        cost = known.get(costs.kind(stage))
        if isinstance(cost, str):
            raise UsageError(cost)
        stage_facts = costs.length_of(stage, study.scales[record.scale], cost, asked.data)
        if facts is not None:
            stage_facts.first = facts
        facts = stage_facts
    assert facts is not None
    return facts


def _known_costs(record: Record) -> dict[str, costs.Cost]:
    found = {}
    for arm, facts in record.arms.items():
        if arm in record.arms_asked:
            for stage, own in zip(stages(record.shared, record.arms_asked[arm]), facts.stages, strict=True):
                if own.steps_per_epoch is not None:
                    found[costs.kind(stage)] = costs.Cost(own.step_ms, own.steps_per_epoch, own.train_images or 0)
    return found
