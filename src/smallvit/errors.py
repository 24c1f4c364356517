"""Errors that speak to the user: the command line prints them without a traceback.

A message names the file or the value, says what is wrong with it and what to do instead.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable

# By this variable whoever starts runs as processes asks for a status that tells one which was stopped from one that failed.
STOPPED_STATUS = "SMALLVIT_STOPPED_STATUS"


class SmallvitError(Exception):
    """Something outside the program is wrong: data, disk, a run that cannot go on. Exit status 1."""

    exit_status = 1


class UsageError(SmallvitError, ValueError):
    """What was asked for cannot be done: unknown name, impossible value. Exit status 2."""

    exit_status = 2


class BudgetError(UsageError):
    """The time that was given is not enough to train in."""


class DataError(SmallvitError):
    """The images are missing, unreadable or too few."""


class RunError(SmallvitError):
    """A run folder is missing, in use, unfinished or not ours."""


class Diverged(SmallvitError):
    """The loss or the gradient stopped being a finite number."""


class Collapsed(SmallvitError):
    """Pretraining made the features of all images alike."""


class OutOfMemory(SmallvitError):
    """The machine or its GPU has no more memory to give."""


# What torch's allocators say on CPUs (Linux, Windows) and on GPUs.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def ran_out(error: BaseException) -> bool:
    """Whether it is memory that was missing."""
    return isinstance(error, MemoryError | OutOfMemory) or any(said in str(error) for said in NO_MEMORY)


def what_ran_out(error: BaseException) -> str:
    """What an allocator has said, without the place in its code."""
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return first.rpartition("DefaultCPUAllocator: ")[2].partition(". Error code")[0][:200]


class Interrupted(SmallvitError):
    """The user asked the run to stop; it was saved."""


def stopped_status() -> int:
    """With which a command ends that was asked to stop."""
    return int(os.environ.get(STOPPED_STATUS, Interrupted.exit_status))


def nearest(name: str, choices: Iterable[str], most: int = 5) -> str:
    """A phrase that helps after a mistyped name: the closest choices, or all when they are few."""
    known = sorted(set(choices))
    close = difflib.get_close_matches(name, known, n=most, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(close)}?"
    if len(known) <= 12:
        return f"choices: {', '.join(known)}"
    return f"{len(known)} choices, none of them close"
