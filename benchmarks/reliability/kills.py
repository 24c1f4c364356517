"""kill -9 at random moments: everything is resumed, to the same weights and records, and no half-written file is read as whole.

    python benchmarks/reliability/kills.py [--kind NAME] [--kills 12] [--twice 0.33] [--seed 0]

Real processes (forks.py), killed with all their children; some are killed twice. Right after a kill every file that stands under
its own name must be whole. Every call goes on from what is stored, until each kind was killed so often.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from corpus import photos
from forks import command, start
from storing import OFTEN, SMALL, TINY_PHOTOS, Done, results_of, store, stored, table

TRAIN = ("train", "digits", *SMALL, *OFTEN)
PRETRAIN = ("--batch-size", "16", *SMALL[:2], *SMALL[4:], *OFTEN)
TUNE = (
    "--trials",
    "2",
    "--folds",
    "1",
    "--val",
    "0.2",
    "--jobs",
    "1",
    "--epochs",
    "1",
    "--per-class",
    "6",
    "--threads",
    "1",
)
STUDY = """
title = "A miniature"
seeds = 2
epochs = 1
compare = [["one", "two"]]
[shared]
val = "none"
batch_size = 8
[arms]
one = { model = "vit_pico" }
two = { model = "vit_pico", settings = { "objective.label_smoothing" = 0.1 } }
"""
ENDINGS = (".part",), (".tmp", ".building-")


class Kind(NamedTuple):
    words: tuple[str, ...]  # OUT is the folder; other words in capitals are files beside it
    prepare: Callable[[Path], object] = lambda place: None  # once, for all cases
    on_run: bool = False  # the run is there before; the command looks at it, and is given again


def a_run(place: Path) -> None:
    assert command(*TRAIN, "--out", place / "before").status == 0


def a_study(place: Path) -> None:
    (place / "STUDY.toml").write_text(STUDY, encoding="utf-8")
    draw = np.random.default_rng(0)
    parts = {f"x_{part}": draw.integers(0, 255, (12, 8, 8, 3), dtype=np.uint8) for part in ("train", "val", "test")}
    np.savez(place / "SET.npz", **parts, **{name.replace("x_", "y_"): np.arange(12) % 2 for name in parts})


KINDS = {
    "train": Kind((*TRAIN, "--val", "0.15", "--set", "ema=0.9", "--out", "OUT")),
    "pretrain, queue": Kind(("pretrain", "digits", "--method", "mocov2", *PRETRAIN, "--out", "OUT")),
    "pretrain, teacher": Kind(("pretrain", "digits", "--method", "dino", *PRETRAIN, "--out", "OUT")),
    "group of seeds": Kind((*TRAIN, "--seeds", "2", "--jobs", "2", "--out", "OUT")),
    "tune": Kind(("tune", "digits", *TUNE, "--model", "vit_pico", *OFTEN, "--quiet", "--out", "OUT")),
    "study": Kind(("study", "run", "STUDY.toml", "--data", "SET.npz", "--jobs", "1", "--quiet", "--out", "OUT"), a_study),
    "cache": Kind(("train", "PHOTOS", *TINY_PHOTOS, "--quiet", "--out", "OUT"), lambda place: photos(place / "PHOTOS", 300)),
    "report": Kind(("report", "OUT"), a_run, on_run=True),
    "diagnosis": Kind(("diagnose", "OUT", "--images", "16", "--threads", "1", "--quiet"), a_run, on_run=True),
}  # fmt: skip


class Case:
    """One kind at one place: all of its cases have the same paths, so that pages can be compared, too."""

    def __init__(self, kind: Kind, place: Path) -> None:
        self.kind, self.place, self.run, self.cache = kind, place, place / "run", place / "cache"
        self.words = [str(place / word) if word.partition(".")[0].isupper() else word for word in kind.words]
        self.words = [str(self.run) if word == str(place / "OUT") else word for word in self.words]
        kind.prepare(place)
        self.fresh()
        command("--version")  # the first one waits for torch
        done = command(*self.words, **self.around, timeout=900)
        assert done.status == 0, done.err
        self.seconds = done.seconds
        self.expected = self.results()

    @property
    def around(self) -> dict[str, str]:
        return {"SMALLVIT_CACHE": str(self.cache)}

    def fresh(self) -> None:
        for folder in (self.run, self.cache):
            shutil.rmtree(folder, ignore_errors=True)
        if self.kind.on_run:
            shutil.copytree(self.place / "before", self.run)

    def results(self) -> dict[str, Any]:
        """Weights and records; what a command that looks at a run has made of it; the images of the cache."""
        made = [*self.cache.rglob("*.*"), *([self.run / "report.html", *self.run.glob("findings/*")] if self.kind.on_run else [])]  # fmt: skip
        digests = {str(path.relative_to(self.place)): digest(path) for path in made if path.is_file()}
        return results_of(self.run) | digests

    def killed(self, words: list[str], seconds: float) -> bool:
        """Whether it was still running; all of its family is killed then."""
        child = start(*words, **self.around)
        if running := not child.ended_within(seconds):
            child.kill()
        child.done()
        return running

    def go_on(self) -> Done:
        """As a user would: resume; where nothing was started yet, the command again."""
        if self.kind.on_run:
            return command(*self.words, **self.around)
        done = command("resume", self.run, "--quiet", **self.around)
        says = ("nothing was", "no such folder", "stopped before all")
        if done.status and not done.crashed and any(words in done.err for words in says):
            done = command(*self.words, "--overwrite", **self.around)
        return done

    def one(self, draw: random.Random, twice: float = 1 / 3) -> dict[str, Any]:
        """A share `twice` is killed again while it goes on, where that takes long enough."""
        self.fresh()
        while not (kills := int(self.killed(self.words, draw.random() * self.seconds))):
            self.fresh()  # it had ended before
        torn = broken(self.place)
        if draw.random() < twice:
            again = self.words if self.kind.on_run else ["resume", str(self.run), "--quiet"]
            kills += int(self.killed(again, draw.random() * self.seconds / 3))
            torn += broken(self.place)
        done = self.go_on()
        same = done.status == 0 and self.results() == self.expected
        return {
            "kills": kills, "twice": kills > 1, "resumed": done.status == 0, "same": same, "left": left_over(self.place),
            "torn": torn, "said": "" if same else f"status {done.status}: {(done.out + done.err)[-400:]}",
        }  # fmt: skip


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def broken(place: Path) -> list[str]:
    """Files under their own name that are not whole. A log may end in half a line: its readers know."""
    from safetensors import safe_open

    readers: dict[str, Callable[[Path], object]] = {
        ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
        ".toml": lambda path: tomllib.loads(path.read_text(encoding="utf-8")),
        ".safetensors": lambda path: safe_open(path, "np").keys(),
        ".html": lambda path: path.read_text(encoding="utf-8").rindex("</html>"),
    }
    found = []
    for path in place.rglob("*.*"):
        if path.suffix in readers and not path.name.startswith(".") and ".building-" not in str(path):
            try:
                readers[path.suffix](path)
            except Exception as error:
                found.append(f"{path.name}: {error}")
    return found


def left_over(place: Path) -> list[str]:
    return [
        path.name for path in place.rglob(".*") if path.name.endswith(ENDINGS[0]) or path.name.startswith(ENDINGS[1])
    ]


def counted(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    sums = {key: before.get(key, 0) + int(found[key]) for key in ("kills", "twice", "resumed", "same")}
    lists = {key: before.get(key, 0) + len(found[key]) for key in ("left", "torn")}
    problems = [
        *before.get("problems", []),
        *([found["said"]] if not found["same"] else []),
        *found["left"],
        *found["torn"],
    ]
    return {"runs": before.get("runs", 0) + 1, **sums, **lists, "problems": problems}


def so_far(name: str) -> dict[str, Any]:
    found: dict[str, Any] = stored("kills").get("kinds", {}).get(name, {})
    return found


def until(name: str, kills: int, seed: int, twice: float) -> None:
    """Cases of one kind; each is stored when it has ended."""
    with tempfile.TemporaryDirectory() as place:
        case = Case(KINDS[name], Path(place))
        while (before := so_far(name)).get("kills", 0) < kills:
            draw = random.Random(f"{name} {seed} {before.get('runs', 0)}")
            found = case.one(draw, twice)
            kinds = stored("kills").get("kinds", {}) | {name: counted(before, found)}
            store("kills", {"kinds": kinds}, "python benchmarks/reliability/kills.py")
            print(name, found, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--kills", type=int, default=12, help="of each kind, with those that are stored")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--twice", type=float, default=1 / 3, help="share of the cases that is killed twice")
    asked = parser.parse_args()
    for name in asked.kind or KINDS:
        if so_far(name).get("kills", 0) < asked.kills:
            until(name, asked.kills, asked.seed, asked.twice)
    keys = ("runs", "kills", "twice", "resumed", "same", "left", "torn")
    rows = [[name, *(f[key] for key in keys)] for name, f in stored("kills")["kinds"].items()]
    print(
        table(
            ["kind", "runs", "kills", "killed twice", "resumed", "bit-identical", "files left over", "not whole"], rows
        )
    )


if __name__ == "__main__":
    main()
