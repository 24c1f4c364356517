"""Several runs in one folder, planned before the first one starts and each run in a process of its own.

Going on after a kill is therefore the same as starting: every member that has no results is resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.errors import RunError
from smallvit.planning.plan import Plan, write_plan
from smallvit.runs.axes import Place
from smallvit.runs.executor import Listed, Processes, run_all, tell_cores, wait_for_others
from smallvit.runs.folder import RunFolder, claimed, make_folder
from smallvit.runs.members import add_member, is_group, members_of, read_group, write_group
from smallvit.runs.places import LOCAL, place_called


class Planned(NamedTuple):
    """A run of a group before it starts."""

    place: Place
    plan: Plan


class Diagnosis(NamedTuple):
    """What follows the training of a group: every other member is diagnosed against this one."""

    against: str
    images: int


@contextmanager
def claimed_group(
    folder: str | Path, planned: Sequence[Planned], command: str, overwrite: bool = False, title: str = "",
    diagnosis: Diagnosis | None = None, staged: bool = False, jobs: int = 1,
) -> Iterator[Path]:  # fmt: skip
    """A new group with the plans of its members. This process holds the group, each child the run it works on.

    `staged`: other runs come before them, so their plans are written later. `jobs` of them were meant to go on at once.
    """
    record: dict[str, Any] = {"title": title, "command": command, "jobs": jobs}
    if diagnosis:
        record["diagnosis"] = diagnosis._asdict()
    with claimed(folder, overwrite) as path:
        write_group(path, record, {run.place.folder: run.place for run in planned})  # first: it says what is ours
        for run in planned:
            member = make_folder(path / run.place.folder)
            if not staged:
                write_plan(member, run.plan, command)
        yield path


def grow_group(
    folder: Path, name: str, run: Planned, command: str, title: str = "", group_is_held: bool = False
) -> Path:
    """Plan one more member, in the folder `name`; the group is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    if not is_group(folder):
        write_group(folder, {"title": title, "command": command}, {})
    add_member(folder, name, run.place)
    with claimed(folder / name, True, group_is_held) as path:
        write_plan(path, run.plan, command)
    return folder / name


def jobs_of(folder: Path, given: int | None = None) -> int:
    """Runs at once, as given now, or as the group was planned for."""
    return given or read_group(folder).get("jobs") or 1


def diagnosis_of(folder: Path) -> Diagnosis | None:
    record = read_group(folder)
    if "diagnosis" not in record:
        return None
    asked = Diagnosis(**record["diagnosis"])
    if asked.against not in record["members"]:
        raise RunError(f"{folder / 'group.json'}: {asked.against!r} is none of its runs")
    return asked


def run_members(folder: Path, jobs: int, on: str = LOCAL) -> None:
    """Run the unfinished members, `jobs` at a time, on this machine or a cluster."""
    members = [member.path for member in members_of(folder)]
    if unplanned := [path.name for path in members if not (path / "recipe.json").is_file()]:
        raise RunError(
            f"{folder} was stopped before all of its runs were planned ({', '.join(unplanned[:3])}): nothing was trained "
            "yet; give the command that started it again, with --overwrite"
        )
    wait_for_others(members)
    waiting = [path for path in members if not RunFolder(path).finished]
    run_folders(waiting, jobs, on, go_on=f"smallvit resume {folder}")


def run_folders(waiting: Sequence[Path], jobs: int, on: str, go_on: str) -> None:
    """Runs that are planned; `go_on` is the command that goes on with them after a stop."""
    if not waiting:
        return
    at_once = min(jobs, len(waiting))
    launch = place_called(on, at_once)
    if isinstance(launch, Processes):
        tell_cores(waiting, at_once, launch.given)
    run_all(Listed(waiting), jobs, go_on=go_on, total=len(waiting), launch=launch)
