"""Full and read-only disks, in the middle of a checkpoint, a cache, a report: on a small disk in memory, which takes root on Linux.

    python benchmarks/reliability/disks.py [--times 1]

The previous files stay whole, a message says what was lacking, and the run goes on, to the same weights, when there is room.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corpus import photos
from forks import command
from storing import OFTEN, SMALL, TINY_PHOTOS, Done, counted, results_of

TRAIN = ("train", "digits", *SMALL, *OFTEN)
LACKING = ("No space left", "no room", "Read-only file system", "cannot write", "cannot be written")


@contextmanager
def small_disk(place: Path, megabytes: int = 24) -> Iterator[Path]:
    disk = place / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Until nothing more can be written, but for so many bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            file.truncate(max(0, file.tell() - leave))
    return filler


def says_what_lacks(done: Done) -> str:
    text = done.err + done.out
    if done.crashed:
        return f"crashed: {text[-300:]}"
    return "" if any(words in text for words in LACKING) else f"said: {text[-200:]}"


def in_a_checkpoint(place: Path) -> str:
    command(*TRAIN, "--out", place / "alone")
    with small_disk(place) as disk:
        stopped = command(*TRAIN, "--set", "epochs=1", "--out", disk / "first")  # how much room a run takes
        filler = fill(disk, leave=150_000)
        done = command(*TRAIN, "--out", disk / "run")
        if stopped.status or done.status != 1 or (problem := says_what_lacks(done)):
            return problem if done.status == 1 else f"ended with {done.status}: {done.err[-200:]}"
        filler.unlink()
        again = (
            command("resume", disk / "run")
            if (disk / "run" / "recipe.json").is_file()
            else command(*TRAIN, "--out", disk / "run")
        )
        if again.status:
            return again.err[-300:]
        return "" if results_of(disk / "run") == results_of(place / "alone") else "other weights"


def in_a_cache(place: Path) -> str:
    train = ("train", photos(place / "photos", 60), *TINY_PHOTOS, "--out")
    with small_disk(place) as disk:
        fill(disk)
        done = command(*train, place / "run", SMALLVIT_CACHE=str(disk / "cache"))
    return says_what_lacks(done) if done.status == 0 else f"ended with {done.status}: {done.err[-200:]}"


def in_a_report(place: Path) -> str:
    with small_disk(place) as disk:
        command(*TRAIN, "--out", disk / "run")
        before = (disk / "run" / "report.html").read_bytes()
        filler = fill(disk)
        done = command("report", disk / "run")
        if done.status != 1 or (problem := says_what_lacks(done)):
            return problem if done.status == 1 else f"ended with {done.status}"
        if (disk / "run" / "report.html").read_bytes() != before:
            return "the old report is damaged"
        filler.unlink()
        return command("report", disk / "run").err


def read_only(place: Path) -> str:
    with small_disk(place) as disk:
        command(*TRAIN, "--out", disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for words in (
            ("report", disk / "run"),
            (*TRAIN, "--out", disk / "new"),
            (*TRAIN, "--out", disk / "run", "--overwrite"),
        ):
            done = command(*words)
            if done.status != 1 or (problem := says_what_lacks(done)):
                return f"{words[0]}: {problem}" if done.status == 1 else f"{words[0]} ended with {done.status}"
        looked = command("evaluate", disk / "run", "--threads", "1")
        return looked.err if looked.status else ""


CASES: dict[str, Callable[[Path], str]] = {
    "full in a checkpoint": in_a_checkpoint,
    "full in a cache": in_a_cache,
    "full in a report": in_a_report,
    "read-only": read_only,
}


if __name__ == "__main__":
    counted("disks", CASES, __doc__ or "", times=1)
