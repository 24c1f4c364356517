"""What the user sees while something runs: short lines and one bar with an ETA, on standard error.

On a terminal the bar moves; elsewhere (a log file, CI) a line is printed every few seconds instead. In a notebook lines are
plain text below the cell, and the bar is one line of its own that changes in its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import Any

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_of_bar: ContextVar[Any] = ContextVar("of_bar", default=None)  # the console of the bar that is shown
PATIENCE_SECONDS = 2.0  # shorter work shows no bar
LOG_SECONDS = 10.0  # pause between lines where there is no terminal
NOTEBOOK_SECONDS = 0.5  # between two states of a bar in a notebook

Advance = Callable[..., None]


@contextmanager
def quiet(on: bool = True) -> Iterator[None]:
    token = _quiet.set(on)
    try:
        yield
    finally:
        _quiet.reset(token)


def say(text: str = "", style: str | None = None) -> None:
    """One line for the user. Nothing in it is taken for markup: file names may hold brackets."""
    if not _quiet.get():
        stderr().print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def tell(text: str) -> None:
    """An answer of a command, on standard output."""
    print(printable(text))


def warn(text: str) -> None:
    say(f"note: {text}", style="yellow")


def stderr() -> Any:
    """Where there is a bar, its own console: that prints lines above the bar, where another would print into it."""
    if _of_bar.get() is not None:
        return _of_bar.get()
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter:  # which shows standard error as a fault, and rich's own output with every line apart
        return Console(force_jupyter=False, force_terminal=False)
    return console


def _in_notebook() -> bool:
    from rich.console import Console

    return Console().is_jupyter


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"


def roughly(seconds: float) -> str:
    """Of what is not known better than to a few parts of a hundred."""
    if seconds < 90:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def bar(label: str, total: int, done: int = 0) -> Iterator[Advance]:
    """`with bar("decoding", n) as advance: ... advance(1, note="...")`; shown once it has run two seconds.

    Within another bar none is shown: that one tells how far all of it is.
    """
    if _quiet.get() or _of_bar.get() is not None or total <= 0:
        yield lambda count=1, note="", total=None: None
        return
    console, label = stderr(), printable(label)
    if _in_notebook():
        shown = _displayed(label, total, done)
    else:
        shown = _moving(console, label, total, done) if console.is_terminal else _lines(label, total, done)
    _of_bar.set(console)
    try:
        with shown as advance:
            yield advance
    finally:
        _of_bar.set(None)


@contextmanager
def _moving(console: Any, label: str, total: int, done: int) -> Iterator[Advance]:
    progress = make_progress(console)
    task = progress.add_task(label, total=total, completed=done, note="")

    def advance(count: int = 1, note: str = "", total: int | None = None) -> None:
        progress.update(task, advance=count, total=total, **({"note": note} if note else {}))

    # A timer, so that the bar also appears while the first piece of work is still under way.
    timer = threading.Timer(PATIENCE_SECONDS, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


def make_progress(console: Any) -> Any:
    """Rows that have `waits=True` have nothing to measure yet: their note stands alone."""
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Measured(ProgressColumn):
        def __init__(self, column: ProgressColumn) -> None:
            super().__init__(column.get_table_column())
            self.column = column

        def render(self, task: Task) -> Any:
            return Text() if task.fields.get("waits") else self.column(task)

    measured = (
        BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    return Progress(
        TextColumn("{task.description}", markup=False),
        *map(Measured, measured),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
        auto_refresh=True,
        refresh_per_second=4,
    )


@contextmanager
def _lines(label: str, total: int, done: int) -> Iterator[Advance]:
    started = last = time.monotonic()
    first, whole = done, total

    def advance(count: int = 1, note: str = "", total: int | None = None) -> None:
        nonlocal done, last, whole
        done += count
        whole = total or whole
        now = time.monotonic()
        if now - last > LOG_SECONDS:
            last = now
            left = (now - started) / max(done - first, 1) * (whole - done)
            say(f"{label} {done / whole:4.0%}, {duration(left)} left  {note}".rstrip())

    yield advance


@contextmanager
def _displayed(label: str, total: int, done: int) -> Iterator[Advance]:
    """By what IPython itself has: no widgets need to be installed, and a stored notebook keeps the last state."""
    from IPython.display import display

    started = last = time.monotonic()
    first, whole, said, handle = done, total, "", None

    def show(left: str) -> None:
        nonlocal handle
        words = f"{label} {done / whole:4.0%}, {left}  {said}".rstrip()
        line = f'<progress value="{done}" max="{whole}"></progress> {escape(words)}'
        content = {"text/plain": words, "text/html": f'<span style="font-family:monospace">{line}</span>'}
        if handle is None:
            handle = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            handle.update(content, raw=True)

    def advance(count: int = 1, note: str = "", total: int | None = None) -> None:
        nonlocal done, last, whole, said
        done, whole, said = done + count, total or whole, note or said
        now = time.monotonic()
        if now - started > PATIENCE_SECONDS and now - last > NOTEBOOK_SECONDS:
            last = now
            show(f"{duration((now - started) / max(done - first, 1) * (whole - done))} left")

    try:
        yield advance
    finally:
        if handle is not None:
            show(f"took {duration(time.monotonic() - started)}")


def is_quiet() -> bool:
    return _quiet.get()


def several(count: int, noun: str, of: int | None = None) -> str:
    """1 file, 3 files, 0 files, 1 of 120 files: the one place that knows when a word takes its s."""
    words = noun if (count if of is None else of) == 1 else _many(noun)
    return f"{count:,} {words}" if of is None else f"{count:,} of {of:,} {words}"


def are(count: int, noun: str, of: int | None = None) -> str:
    """1 image is, 3 images are, 1 of 300 images is."""
    return f"{several(count, noun, of)} {'is' if count == 1 else 'are'}"


def _many(noun: str) -> str:
    """Of the words that are counted here."""
    if noun.endswith("ss"):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("try") else f"{noun}s"


def printable(text: str) -> str:
    """File names may hold anything; a terminal must not obey them."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
