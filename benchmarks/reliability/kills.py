"""kill -9 at random moments: everything is resumed, to the same weights and records, and no half-written file is read as whole.

    python benchmarks/reliability/kills.py [--kind NAME] [--times 10] [--seed 0]

Real processes, killed with all their children. A third of them is killed twice. Every call adds to what is stored.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from corpus import encoded, picture
from storing import SMALL, arguments, command, results_of, store, stored, surroundings, table

OFTEN = ("--set", "checkpoint_seconds=0")
PRETRAIN = ("--batch-size", "16", "--epochs", "2", "--threads", "1", "--quiet", "--per-class", "6", *OFTEN)


class Kind(NamedTuple):
    words: tuple[str, ...]  # OUT is the folder, PHOTOS a folder of images
    on_run: bool = False  # a run is there before; the command looks at it


KINDS = {
    "train": Kind(("train", "digits", *SMALL, *OFTEN, "--val", "0.15", "--set", "ema=0.9", "--out", "OUT")),
    "pretrain, queue": Kind(("pretrain", "digits", "--method", "mocov2", *PRETRAIN, "--out", "OUT")),
    "pretrain, teacher": Kind(("pretrain", "digits", "--method", "dino", *PRETRAIN, "--out", "OUT")),
    "group of seeds": Kind(("train", "digits", *SMALL, *OFTEN, "--seeds", "2", "--jobs", "2", "--out", "OUT")),
    "tune": Kind(("tune", "digits", *SMALL[:-1], "--trials", "2", "--val", "0.2", "--quiet", "--out", "OUT")),
    "cache": Kind(("train", "PHOTOS", "--epochs", "1", "--model", "vit_pico", "--img-size", "16", "--threads", "1", "--quiet", "--out", "OUT")),
    "report": Kind(("report", "OUT"), on_run=True),
    "diagnosis": Kind(("diagnose", "OUT", "--images", "16", "--threads", "1", "--quiet"), on_run=True),
}  # fmt: skip


def words_of(kind: Kind, place: Path) -> list[str]:
    return [
        str(place / "run") if word == "OUT" else str(place / "photos") if word == "PHOTOS" else word
        for word in kind.words
    ]


def prepare(kind: Kind, place: Path) -> None:
    if "PHOTOS" in kind.words:
        for name in ("a", "b"):
            (place / "photos" / name).mkdir(parents=True)
            for number in range(150):
                (place / "photos" / name / f"{number}.png").write_bytes(encoded(picture().rotate(number), "PNG"))
    if kind.on_run:
        command("train", "digits", *SMALL, "--out", place / "run")


def family(pid: int) -> Iterator[int]:
    """A process and all that it started, also those in sessions of their own."""
    yield pid
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                yield from family(int(entry.name))


def killed_after(seconds: float, words: list[str], cache: str) -> bool:
    """Whether it was still running; all of its family is killed then."""
    child = subprocess.Popen(
        arguments(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=surroundings(SMALLVIT_CACHE=cache)
    )
    try:
        child.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        for pid in list(family(child.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        child.wait()
        return True


def go_on(kind: Kind, place: Path, cache: str) -> tuple[int, str]:
    """As a user would: resume; where nothing was started yet, the command again."""
    if kind.on_run:
        done = command(*words_of(kind, place), SMALLVIT_CACHE=cache)
        return done.status, done.err
    done = command("resume", place / "run", "--quiet", SMALLVIT_CACHE=cache)
    if (
        done.status
        and not done.crashed
        and any(words in done.err for words in ("nothing was", "no such folder", "stopped before all"))
    ):
        done = command(*words_of(kind, place), "--overwrite", SMALLVIT_CACHE=cache)
    return done.status, done.err


def left_over(place: Path) -> list[str]:
    return [
        path.name
        for path in place.rglob(".*")
        if path.name.endswith(".part") or path.name.startswith((".tmp", ".building-"))
    ]


def one(kind: Kind, expected: dict[str, Any], seconds: float, draw: random.Random) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        prepare(kind, place)
        cache = str(place / "cache")
        kills = int(killed_after(draw.uniform(0.2, 1.0) * seconds, words_of(kind, place), cache))
        if draw.random() < 1 / 3 and (place / "run" / "recipe.json").is_file():
            again = words_of(kind, place) if kind.on_run else ["resume", str(place / "run"), "--quiet"]
            kills += int(killed_after(draw.uniform(0.2, 1.0) * seconds, again, cache))
        status, said = go_on(kind, place, cache)
        same = status == 0 and results_of(place / "run") == expected
        return {
            "kills": kills,
            "resumed": status == 0,
            "same": same,
            "left": left_over(place),
            "said": "" if same else said[-400:],
        }


def reference(kind: Kind) -> tuple[dict[str, Any], float]:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        prepare(kind, place)
        started = time.monotonic()
        done = command(*words_of(kind, place), SMALLVIT_CACHE=str(place / "cache"), timeout=900)
        assert done.status == 0, done.err
        return results_of(place / "run"), time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for name in asked.kind or KINDS:
        expected, seconds = reference(KINDS[name])
        draw = random.Random(f"{name} {asked.seed}")
        for _ in range(asked.times):
            found = one(KINDS[name], expected, seconds, draw)
            figures = stored("kills").get("kinds", {})
            before = figures.setdefault(
                name, {"runs": 0, "kills": 0, "resumed": 0, "same": 0, "left": 0, "problems": []}
            )
            for key in ("kills", "resumed", "same"):
                before[key] += int(found[key])
            before["runs"] += 1
            before["left"] += len(found["left"])
            before["problems"] += [found["said"]] if not found["same"] else []
            store("kills", {"kinds": figures}, "python benchmarks/reliability/kills.py")
    rows = [
        [name, *(f[key] for key in ("runs", "kills", "resumed", "same", "left"))]
        for name, f in stored("kills")["kinds"].items()
    ]
    print(table(["kind", "runs", "kills", "resumed", "bit-identical", "files left over"], rows))


if __name__ == "__main__":
    main()
