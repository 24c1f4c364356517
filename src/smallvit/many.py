"""Several runs in one folder, each in a process of its own, followed through their folders.

A group is a folder with group.json and one run folder per member, planned before the first one starts; going on
after a kill is therefore the same as starting: every member that has no results is resumed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from smallvit import console
from smallvit.errors import Interrupted, RunError, SmallvitError
from smallvit.plan import Plan, write_plan
from smallvit.run import Run, claimed, make_folder, read_lines, write_text
from smallvit.training.session import stop_signals

POLL_SECONDS = 0.3


class Member(NamedTuple):
    name: str
    plan: Plan


class Diagnosis(NamedTuple):
    """What follows the training of a group: every other member is diagnosed against this one."""

    against: str
    images: int


@contextmanager
def claimed_group(
    folder: str | Path, members: Sequence[Member], command: str, overwrite: bool = False, title: str = "",
    diagnosis: Diagnosis | None = None,
) -> Iterator[Path]:  # fmt: skip
    """A new group with the plans of its members. This process holds the group, each child the run it works on."""
    with claimed(folder, overwrite) as path:
        _write_group(path, members, command, title, diagnosis)
        yield path


def _write_group(path: Path, members: Sequence[Member], command: str, title: str, diagnosis: Diagnosis | None) -> None:
    record: dict[str, Any] = {"title": title, "command": command, "members": [member.name for member in members]}
    if diagnosis:
        record["diagnosis"] = diagnosis._asdict()
    write_text(path / "group.json", json.dumps(record, indent=1) + "\n")  # first: it says which folders are ours
    for member in members:
        write_plan(make_folder(path / member.name), member.plan, command)


def member_paths(folder: Path) -> list[Path]:
    return [folder / name for name in _record(folder)["members"]]


def diagnosis_of(folder: Path) -> Diagnosis | None:
    record = _record(folder)
    if "diagnosis" not in record:
        return None
    try:
        asked = Diagnosis(**record["diagnosis"])
    except TypeError as error:
        raise RunError(f"cannot read {folder / 'group.json'}: {error}") from None
    if asked.against not in record["members"]:
        raise RunError(f"{folder / 'group.json'}: {asked.against!r} is none of its runs")
    return asked


def _record(folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((folder / "group.json").read_text(encoding="utf-8"))
        return record | {"members": [str(name) for name in record["members"]]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"cannot read {folder / 'group.json'}: {error}") from None


def run_members(folder: Path, jobs: int) -> None:
    """Run the unfinished members, `jobs` at a time, with one bar each."""
    waiting = [path for path in member_paths(folder) if not Run(path).finished]
    active: dict[Path, subprocess.Popen[bytes]] = {}
    with stop_signals() as stop, _bars(tuple(waiting)) as update:
        try:
            while waiting or active:
                while waiting and len(active) < jobs and not stop.is_set():
                    path = waiting.pop(0)
                    active[path] = _start(path)
                time.sleep(POLL_SECONDS)
                update()
                for path, process in list(active.items()):
                    if process.poll() is not None:
                        del active[path]
                        _check(path, process.returncode, stop.is_set())
                if stop.is_set():
                    break
        finally:
            for process in active.values():
                process.terminate()  # asks the child to save and stop
            for process in active.values():
                process.wait()
    if stop.is_set():
        raise Interrupted(f"stopped; go on with `smallvit resume {folder}`")


def _start(path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "smallvit", "resume", str(path), "--quiet"]
    # Its own session: a Ctrl-C reaches us alone, and we tell the children.
    with (path / "log.txt").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_child_env()
        )


def _child_env() -> dict[str, str]:
    """The child must find the package the parent uses, installed or not."""
    root = str(Path(__file__).resolve().parents[1])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, inherited] if inherited else [root])}


def _check(path: Path, status: int, stopping: bool) -> None:
    if status and not stopping:
        tail = (path / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        said = "\n".join(tail) or f"exit status {status}"
        raise SmallvitError(f"the run {path} failed: {said}\ngo on with `smallvit resume {path.parent}`")


@contextmanager
def _bars(paths: Sequence[Path]) -> Iterator[Any]:
    """A function that reads the folders' metrics and moves one bar per run."""
    screen = console.stderr()
    if console.is_quiet() or not screen.is_terminal:
        yield _line_updater(paths)
        return
    progress = console.make_progress(screen)
    tasks = {path: progress.add_task(path.name, total=1, note="starting") for path in paths}

    def update() -> None:
        for path, task in tasks.items():
            if state := _standing(path):
                progress.update(task, total=state.total, completed=state.done, note=state.note)

    with progress:
        yield update
        update()


class _Standing(NamedTuple):
    done: int
    total: int
    note: str


def _standing(path: Path) -> _Standing | None:
    done = total = 0
    note = ""
    for record in read_lines(path / "metrics.jsonl"):
        done, total = record["step"], record.get("steps", total)
        if "val_accuracy" in record:
            note = f"val {record['val_accuracy']:.1%}"
    return _Standing(done, max(total, 1), note) if done else None


def _line_updater(paths: Sequence[Path]) -> Any:
    last = time.monotonic()

    def update() -> None:
        nonlocal last
        if time.monotonic() - last > console.LOG_SECONDS:
            last = time.monotonic()
            states = [(path.name, _standing(path)) for path in paths]
            console.say(
                "   ".join(f"{name} {f'{s.done / s.total:.0%} {s.note}' if s else 'starting'}" for name, s in states)
            )

    return update
