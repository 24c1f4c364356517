"""Runs as the user sees them while they run in other processes: a bar each on a terminal, elsewhere a line now and then.

Their folders are the only source, and only what was appended since the last look is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from smallvit import console
from smallvit.runs.ownership import owner_of, this_host
from smallvit.runs.shapes import Progress
from smallvit.runs.staged import run_name

LOADING, JUDGING = "loading torch and its images", "judging the model, writing the report"
ON_CLUSTER = "waiting for the cluster, or loading torch and its images"
MOST_SHOWN = 8  # bars, or names in a line; of more runs those that are running, and a count of the others


class Follower:
    """How far one run is, from the records that it appends to metrics.jsonl."""

    def __init__(self, path: Path, before: str = LOADING) -> None:
        self.path, self.name = path, run_name(path)
        self.before = self.note = before  # what it does until its first record
        self.file = path / "metrics.jsonl"
        self.inode = self.offset = 0
        self.step, self.steps = 0, 1
        self.began: tuple[float, int] | None = None  # clock and step at the first look: a resumed run has steps already
        self.course: list[tuple[float, float]] = []  # share of the steps that were done, validation accuracy then

    def look(self) -> bool:
        """Read what is new; whether there was anything."""
        try:
            now = self.file.stat()
            if now.st_ino != self.inode or now.st_size < self.offset:  # a resumed run writes its records anew
                self.inode, self.offset, self.course = now.st_ino, 0, []
            if now.st_size == self.offset:
                return False
            with self.file.open("rb") as file:
                file.seek(self.offset)
                appended = file.read()
        except OSError:  # not there yet
            return False
        whole = appended[: appended.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            self._take(line)
        if self.began is None and whole:
            self.began = (time.monotonic(), self.step)
        return bool(whole)

    def _take(self, line: bytes) -> None:
        try:
            record = Progress.model_validate_json(line)
        except ValueError:  # it is only looked at here; reading the run says what is wrong
            return
        self.step, self.steps = record.step, record.steps or self.steps
        if record.val_accuracy is not None:
            self.course.append((self.share, record.val_accuracy))
            self.note = f"val {record.val_accuracy:.1%}"
        elif self.note == self.before:
            self.note = ""
        if self.step >= self.steps:
            self.note = JUDGING

    @property
    def share(self) -> float:
        return min(1.0, self.step / max(self.steps, 1))

    @property
    def left(self) -> float | None:
        """Seconds, at the speed since the first look; None where that says nothing yet."""
        if self.began is None or self.step <= self.began[1]:
            return None
        return (time.monotonic() - self.began[0]) / (self.step - self.began[1]) * max(0, self.steps - self.step)

    @property
    def place(self) -> str:
        """The machine, where it is another one."""
        host = owner_of(self.path)
        return f" on {host}" if host and host != this_host() else ""


class View(Protocol):
    """Where the course of several runs is shown."""

    def started(self, path: Path) -> None: ...

    def ended(self, path: Path, problem: str = "") -> None:
        """`problem`: what it has said where it failed."""

    def update(self) -> None: ...


@contextmanager
def following(total: int | None = None, jobs: int = 1, before: str = LOADING) -> Iterator[View]:
    """`total` is how many runs there will be, where that is known; `jobs` of them at a time. `before`: what each does first."""
    screen = console.stderr()
    if console.is_quiet() or not screen.is_terminal:
        yield Lines(total, jobs, before)
        return
    progress = console.make_progress(screen)
    with progress:
        bars = Bars(progress, total, jobs, before)
        yield bars
        bars.update()


def waiting_in_words(total: int | None, started: int, jobs: int) -> str:
    """What the runs wait for that have not begun; empty where none does, or where it is not known."""
    left = 0 if total is None else total - started
    if left <= 0:
        return ""
    verb = "waits" if left == 1 else "wait"
    return f"{left} {verb} for one of these to end (--jobs {jobs})"


class Bars:
    def __init__(self, progress: Any, total: int | None, jobs: int = 1, before: str = LOADING) -> None:
        self.progress = progress
        self.total, self.jobs, self.before, self.begun = total, jobs, before, 0
        self.queue: Any = None  # the last row: what the runs wait for that have not begun
        self.active: dict[Path, tuple[Follower, Any]] = {}
        self.over: list[Any] = []  # bars of ended runs, the first ended first
        self.all = progress.add_task("all runs", total=total, note="") if total is None or total > MOST_SHOWN else None

    def started(self, path: Path) -> None:
        self.begun += 1
        name = console.printable(run_name(path))
        self.active[path] = (
            Follower(path, self.before),
            self.progress.add_task(name, total=1, note=self.before, waits=True),
        )
        if self.queue is not None:
            self.progress.remove_task(self.queue)
        waiting = waiting_in_words(self.total, self.begun, self.jobs)
        self.queue = self.progress.add_task("", total=None, note=waiting, waits=True) if waiting else None

    def ended(self, path: Path, problem: str = "") -> None:
        follower, bar = self.active.pop(path)
        self._show(follower, bar)
        if problem:  # its bar stays until the end
            self.progress.update(bar, note=console.printable(failure(problem)))
        else:
            self.over.append(bar)
        while self.over and len(self.over) + len(self.active) > MOST_SHOWN:
            self.progress.remove_task(self.over.pop(0))
        if self.all is not None:
            self.progress.update(self.all, advance=1)

    def update(self) -> None:
        for follower, bar in self.active.values():
            self._show(follower, bar)

    def _show(self, follower: Follower, bar: Any) -> None:
        if follower.look():
            note = f"{follower.note}{follower.place}"
            self.progress.update(bar, total=max(follower.steps, 1), completed=follower.step, note=note, waits=False)


class Lines:
    def __init__(self, total: int | None, jobs: int = 1, before: str = LOADING) -> None:
        self.total, self.jobs, self.before = total, jobs, before
        self.active: dict[Path, Follower] = {}
        self.done = self.failed = 0
        self.last = time.monotonic()

    def started(self, path: Path) -> None:
        self.active[path] = Follower(path, self.before)

    def ended(self, path: Path, problem: str = "") -> None:
        del self.active[path]
        self.done += 1
        if problem:
            self.failed += 1
            console.say(f"{run_name(path)} {failure(problem)}")

    def update(self) -> None:
        if time.monotonic() - self.last > console.LOG_SECONDS:
            self.last = time.monotonic()
            console.say(self.line())

    def line(self) -> str:
        followers = list(self.active.values())
        for follower in followers:
            follower.look()
        shown = [self._in_words(run) for run in followers]
        more = [f"and {len(shown) - MOST_SHOWN} more"] if len(shown) > MOST_SHOWN else []
        count = f"{self.done} of {self.total} done" if self.total is not None else f"{self.done} done"
        count += f", {self.failed} of them failed" if self.failed else ""
        waiting = waiting_in_words(self.total, self.done + len(followers), self.jobs)
        return "   ".join(filter(None, [count, *shown[:MOST_SHOWN], *more, waiting]))

    def _in_words(self, run: Follower) -> str:
        share = f"{run.share:.0%} " if run.step else ""
        left = f" {console.duration(run.left)} left" if run.left is not None and run.share < 1 else ""
        return f"{run.name}{run.place} {share}{run.note}".rstrip() + left


def failure(problem: str) -> str:
    """The last line of what a run has said, which says why."""
    return f"failed: {problem.strip().splitlines()[-1].removeprefix('smallvit: ')}"
