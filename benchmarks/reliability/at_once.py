"""Two at once: one waits or is refused, nothing is corrupted.

    python benchmarks/reliability/at_once.py [--times 3]

Two trainings into one folder, two builds of one cache, reports while a training or a diagnosis writes, a group resumed twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpus import photos
from forks import command, start
from storing import OFTEN, SMALL, TINY_PHOTOS, counted, results_of

TRAIN = ("train", "digits", *SMALL)


def together(*commands: tuple[Any, ...], **environment: str) -> list[tuple[int, str]]:
    """Exit status and all that was said by commands that begin at the same time."""
    children = [start(*words, **environment) for words in commands]
    return [(done.status, done.out + done.err) for done in [child.done(600) for child in children]]


def one_folder(place: Path) -> str:
    command(*TRAIN, "--out", place / "alone")
    ended = together((*TRAIN, "--out", place / "both"), (*TRAIN, "--out", place / "both"))
    good, refused = sorted(ended)
    if good[0] != 0 or refused[0] != 1 or not any(word in refused[1] for word in ("is at work on", "already used")):
        return f"ended with {[status for status, _ in ended]}: {refused[1][-200:]}"
    return "" if results_of(place / "both") == results_of(place / "alone") else "other weights"


def one_cache(place: Path) -> str:
    words = ("train", photos(place / "photos", 300), *TINY_PHOTOS, "--quiet", "--out")
    ended = together((*words, place / "one"), (*words, place / "two"), SMALLVIT_CACHE=str(place / "cache"))
    left = [path.name for path in (place / "cache").glob(".building-*")]
    entries = list((place / "cache").glob("images-*"))
    if [status for status, _ in ended] != [0, 0] or left or len(entries) != 1:
        return f"{[status for status, _ in ended]}, {len(entries)} entries, left: {left}"
    return "" if results_of(place / "one") == results_of(place / "two") else "other weights"


def report_and_diagnosis(place: Path) -> str:
    command(*TRAIN, "--out", place / "run")
    look = ("diagnose", place / "run", "--images", "16", "--threads", "1", "--quiet")
    ended = together(look, ("report", place / "run"), look, ("report", place / "run"))
    crashed = [out[-300:] for status, out in ended if "Traceback" in out or status not in (0, 1)]
    again = command("report", place / "run")
    return crashed[0] if crashed else again.err if again.status else ""


def report_while_training(place: Path) -> str:
    """One report after the other, from before the first record to after the last."""
    command(*TRAIN, "--out", place / "alone")
    training = start(*TRAIN, *OFTEN, "--out", place / "run")
    said = []
    while not training.ended_within(0):
        said.append(command("report", place / "run"))
    crashed = [done.err[-300:] for done in said if done.crashed or done.status not in (0, 1)]
    if crashed or not said or training.done().status:
        return crashed[0] if crashed else "the training did not end well, or no report was made meanwhile"
    return "" if results_of(place / "run") == results_of(place / "alone") else "other weights"


def one_group(place: Path) -> str:
    group = place / "group"
    started = start(*TRAIN, "--seeds", "2", "--jobs", "2", "--out", group)
    while not (group / "seed-1" / "recipe.json").is_file() and not started.ended_within(0):
        time.sleep(0.01)
    second = command("resume", group)
    first = started.done(600).status
    if first or second.status not in (0, 1) or second.crashed:
        return f"the first ended with {first}, the second with {second.status}: {second.err[-200:]}"
    alone = command(*TRAIN, "--seeds", "2", "--jobs", "2", "--out", place / "alone")
    return "" if alone.status == 0 and results_of(group) == results_of(place / "alone") else "other weights"


CASES: dict[str, Callable[[Path], str]] = {
    "two trainings into one folder": one_folder,
    "two builds of one cache": one_cache,
    "reports while a training writes": report_while_training,
    "two reports and two diagnoses of one run": report_and_diagnosis,
    "a group resumed while it runs": one_group,
}


if __name__ == "__main__":
    counted("at-once", CASES, __doc__ or "", times=3)
