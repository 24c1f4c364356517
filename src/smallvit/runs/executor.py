"""Runs that are planned, each in a process of its own, some at a time: seeds, the demo, studies.

A source is asked for the next folder when there is room and told of every run that has ended, so it may plan runs from
what earlier ones found. Where the runs are computed is one function (`Launch`); here it is a process of this machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from smallvit.console import say, several, warn
from smallvit.errors import STOPPED_STATUS, Interrupted, SmallvitError, UsageError
from smallvit.planning.whereabouts import Given, whereabouts
from smallvit.runs.beside import Room
from smallvit.runs.folder import RunFolder
from smallvit.runs.following import LOADING, ON_CLUSTER, following
from smallvit.runs.ownership import is_owned, owner_in_words
from smallvit.training.session import heeded_signals, stop_signals

POLL_SECONDS = 0.3
TAIL_LINES = 3  # of what a run that failed has said
STOPPED = 75  # status of a run that was asked to stop, and has not failed; sysexits.h says "try again later"


class Exit(NamedTuple):
    status: int
    cpu_seconds: float | None  # None where the system does not tell

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop, by whomever; a signal may come before the run can heed it."""
        return self.status in {STOPPED, *(-number for number in heeded_signals())}


class Ended(NamedTuple):
    path: Path
    cpu_seconds: float | None
    problem: str  # what it said where it failed; empty where it did not
    stopped: bool = False  # it was asked to stop, and can be gone on with

    @property
    def well(self) -> bool:
        return not self.problem


class PlaceLost(SmallvitError):
    """Where runs were started nothing answers any more. They have not failed: they can be gone on with."""


class Job(Protocol):
    """A run that was started somewhere."""

    def poll(self) -> Exit | None:
        """None while it runs. Raises `PlaceLost` where nobody can tell, unless it was asked to stop."""

    def stop(self) -> None:
        """Ask it to save and stop; `poll` tells when it has."""


Launch = Callable[[Path], Job]


class Source(Protocol):
    """Where runs come from."""

    def ask(self) -> Path | None:
        """The folder of a run that is planned; None where there is none now. Asked again when a run has ended."""

    def tell(self, ended: Ended) -> None: ...

    def given_up(self) -> Iterable[Path]:
        """Running ones that are not worth going on with: they save what they have and stop."""


class Listed:
    """Runs that are all known before the first one starts."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.waiting = deque(folders)

    def ask(self) -> Path | None:
        return self.waiting.popleft() if self.waiting else None

    def tell(self, ended: Ended) -> None:
        pass

    def given_up(self) -> Iterable[Path]:
        return ()


def run_all(
    source: Source, jobs: int, *, go_on: str, total: int | None = None, keep_going: bool = False,
    launch: Launch | None = None, room: Room | None = None,
) -> list[Ended]:  # fmt: skip
    """Finish every run that the source has, `jobs` at a time, and return those that failed.

    There are fewer at a time where they do not fit into the memory of this machine together; elsewhere the place sees to it.

    The first failure stops all others, unless `keep_going`. A stop signal lets all save what they have; `go_on` is the
    command that goes on from there. A run that somebody else has stopped has not failed, and the others go on where `keep_going`.
    """
    launch = launch or Processes(jobs)
    here = isinstance(launch, Processes)
    under_way = UnderWay(source, jobs, launch, room or (Room() if here else None))
    failed: list[Ended] = []
    with stop_signals() as stop, following(total, jobs, LOADING if here else ON_CLUSTER) as view:
        try:
            while not stop.is_set():
                while not stop.is_set() and (path := under_way.start_next()):
                    view.started(path)
                if not under_way.active:
                    break
                time.sleep(POLL_SECONDS)
                view.update()
                under_way.stop(source.given_up())
                over = under_way.collect()
                if stop.is_set():  # whoever asks us may have asked them, too
                    over = [ended._replace(stopped=True) for ended in over]
                    under_way.stopped.update(ended.path for ended in over)
                for ended in over:
                    view.ended(ended.path, "" if ended.stopped else ended.problem)
                    source.tell(ended)
                failed += [ended for ended in over if ended.problem and not ended.stopped]
                if failed and not keep_going:
                    first = failed[0]
                    raise SmallvitError(f"the run {first.path} failed: {first.problem}\ngo on with `{go_on}`")
                for ended in over:
                    if ended.problem and ended.stopped and ended.path not in under_way.stopped:
                        _tell_stopped(ended.path, go_on, keep_going)
        except PlaceLost as error:
            raise PlaceLost(f"{error}\ngo on with `{go_on}`") from None
        finally:
            under_way.stop_all()
    if stop.is_set():
        raise Interrupted(f"stopped; go on with `{go_on}`")
    return failed


class UnderWay:
    """The runs of a source that were started and have not ended, at most `jobs` of them."""

    def __init__(self, source: Source, jobs: int, launch: Launch, room: Room | None) -> None:
        self.source, self.jobs, self.launch, self.room = source, jobs, launch, room
        self.active: dict[Path, Job] = {}
        self.waiting: Path | None = None  # asked for, and without room so far
        self.stopped: set[Path] = set()

    def start_next(self) -> Path | None:
        """Start one more; None where there is none now, or no room for it."""
        if len(self.active) >= self.jobs:
            return None
        path = self.waiting or self.source.ask()
        self.waiting = path if path and self.room and not self.room.has_place(path, self.active) else None
        if path is None or self.waiting:
            return None
        self.active[path] = self.launch(path)
        return path

    def stop(self, paths: Iterable[Path]) -> None:
        """These save what they have; `collect` tells when they have."""
        for path in {*paths} & self.active.keys() - self.stopped:
            self.stopped.add(path)
            self.active[path].stop()

    def collect(self) -> list[Ended]:
        """Those that have ended since; they are under way no more."""
        ended = []
        for path, job in list(self.active.items()):
            if found := job.poll():
                del self.active[path]
                problem = _last_words(path, found.status) if found.status else ""
                ended.append(Ended(path, found.cpu_seconds, problem, path in self.stopped or found.stopped))
        return ended

    def stop_all(self) -> None:
        """All save what they have, and are waited for; the source hears of each."""
        for job in self.active.values():
            job.stop()
        self.stopped.update(self.active)
        while self.active:
            for ended in self.collect():
                self.source.tell(ended)
            time.sleep(POLL_SECONDS / 10)


def _tell_stopped(path: Path, go_on: str, keep_going: bool) -> None:
    """Of a run that somebody else has stopped."""
    if not keep_going:
        raise Interrupted(f"the run {path} was stopped; go on with `{go_on}`")
    warn(f"{path} was stopped and is not finished: `smallvit resume {path}` goes on with it")


def wait_for_others(folders: Iterable[Path]) -> None:
    """Runs of a command that was killed may still go on: they save what they have at their end, and it counts.

    One that has not taken its folder yet is not seen here: whoever is started on that folder waits for it (`--wait`).
    """
    told = False
    while owned := [path for path in folders if is_owned(path)]:
        if not told:
            names = ", ".join(f"{path.name} ({owner_in_words(path)})" for path in owned)
            say(
                f"waiting for {names}, which an earlier command started; `kill` lets a process save what it has and stop"
            )
            told = True
        time.sleep(1)


def _last_words(path: Path, status: int) -> str:
    if status < 0:  # it had no time for words: those in the log are of an earlier session
        return (
            f"killed by signal {-status}{', as a machine does that runs out of memory' * (status == -signal.SIGKILL)}"
        )
    log = path / "log.txt"
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    return "\n".join(said[-TAIL_LINES:]) or f"exit status {status}"


def tell_cores(folders: Sequence[Path], at_once: int, given: Given) -> None:
    """How the cores are divided among runs that go on beside each other."""
    if at_once < 2:
        return
    threads = max(whereabouts(RunFolder(path), given).threads for path in folders)
    cores = torch.get_num_threads()
    say(f"{several(at_once, 'run')} at a time, {several(threads, 'thread')} each, on {several(cores, 'core')}")
    if at_once * threads > cores and threads > 1:
        warn(
            f"{at_once * threads} threads share {several(cores, 'core')}: --threads {max(1, cores // at_once)} would be faster"
        )


# ---- processes of this machine -----------------------------------------------------------------------


class Processes:
    """Launches runs here, so many at once: each is given its share of the cores (planning/whereabouts.py)."""

    def __init__(self, at_once: int) -> None:
        self.given = Given.here()._replace(cores=cores_of_one(at_once))

    def __call__(self, path: Path) -> Process:
        return Process(path, self.given.cores)


def cores_of_one(at_once: int) -> int:
    """Of the cores that this process may use, for one of so many runs."""
    if at_once < 1:
        raise UsageError(f"jobs = {at_once}: give 1 or more")
    return max(1, torch.get_num_threads() // at_once)


class Process:
    """`smallvit resume FOLDER` as a child. What it says goes to log.txt in the folder.

    It waits for a run that an earlier, killed command has left at work there.
    """

    def __init__(self, path: Path, cores: int) -> None:
        command = [sys.executable, "-m", "smallvit", *words_for(path)]
        # Its own session: a Ctrl-C reaches us alone, and we tell the children.
        with (path / "log.txt").open("ab") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": child_path(),
                    "OMP_NUM_THREADS": str(cores),
                    STOPPED_STATUS: str(STOPPED),
                },
            )

    def poll(self) -> Exit | None:
        ended: int | None = self.child.returncode
        if ended is not None:  # `terminate` looks first, and has found it so
            return Exit(ended, None)
        if not hasattr(os, "wait4"):
            return None if self.child.poll() is None else Exit(self.child.returncode, None)
        pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
        if not pid:
            return None
        self.child.returncode = os.waitstatus_to_exitcode(status)  # Popen must not wait for it again
        return Exit(self.child.returncode, usage.ru_utime + usage.ru_stime)

    def stop(self) -> None:
        self.child.terminate()


def words_for(path: Path) -> list[str]:
    return ["resume", str(path), "--quiet", "--wait"]


def child_path() -> str:
    """PYTHONPATH of a child: it must find the package the parent uses, installed or not."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([root, inherited] if inherited else [root])
