"""Two at once: one waits or is refused, nothing is corrupted.

    python benchmarks/reliability/at_once.py [--times 3]

Two trainings into one folder, two builds of one cache, reports while a diagnosis writes, a group resumed twice.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpus import encoded, picture
from storing import SMALL, arguments, command, results_of, store, stored, surroundings, table

TRAIN = ("train", "digits", *SMALL)


def together(*commands: tuple[Any, ...], **environment: str) -> list[tuple[int, str]]:
    """Exit status and standard error of commands that begin at the same time."""
    children = [
        subprocess.Popen(arguments(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=surroundings(**environment))
        for words in commands
    ]  # fmt: skip
    return [(child.returncode, out) for child in children for out in [child.communicate(timeout=600)[0]]]


def one_folder(place: Path) -> str:
    command(*TRAIN, "--out", place / "alone")
    ended = together((*TRAIN, "--out", place / "both"), (*TRAIN, "--out", place / "both"))
    good, refused = sorted(ended)
    if good[0] != 0 or refused[0] != 1 or not any(word in refused[1] for word in ("another process", "already used")):
        return f"ended with {[status for status, _ in ended]}: {refused[1][-200:]}"
    return "" if results_of(place / "both") == results_of(place / "alone") else "other weights"


def one_cache(place: Path) -> str:
    for name in ("a", "b"):
        (place / "photos" / name).mkdir(parents=True)
        for number in range(300):
            image = picture("RGB", 24 + number % 5).rotate(number)
            (place / "photos" / name / f"{number}.png").write_bytes(encoded(image, "PNG"))
    words = (
        "train",
        place / "photos",
        "--epochs",
        "1",
        "--model",
        "vit_pico",
        "--img-size",
        "16",
        "--threads",
        "1",
        "--quiet",
        "--out",
    )
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


def one_group(place: Path) -> str:
    group = place / "group"
    started = subprocess.Popen(
        arguments(*TRAIN, "--seeds", "2", "--jobs", "2", "--out", group), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=surroundings()
    )  # fmt: skip
    while not (group / "seed-1" / "recipe.json").is_file() and started.poll() is None:
        pass
    second = command("resume", group)
    first = started.wait(timeout=600)
    if first or second.status not in (0, 1) or second.crashed:
        return f"the first ended with {first}, the second with {second.status}: {second.err[-200:]}"
    alone = command(*TRAIN, "--seeds", "2", "--jobs", "2", "--out", place / "alone")
    return "" if alone.status == 0 and results_of(group) == results_of(place / "alone") else "other weights"


CASES: dict[str, Callable[[Path], str]] = {
    "two trainings into one folder": one_folder,
    "two builds of one cache": one_cache,
    "two reports and two diagnoses of one run": report_and_diagnosis,
    "a group resumed while it runs": one_group,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    for _ in range(asked.times):
        for name, case in CASES.items():
            with tempfile.TemporaryDirectory() as place:
                problem = case(Path(place))
            figures = stored("at-once").get("cases", {})
            before = figures.get(name, {"times": 0, "problems": []})
            figures[name] = {
                "times": before["times"] + 1,
                "problems": [*before["problems"], *([problem] if problem else [])],
            }
            store("at-once", {"cases": figures}, "python benchmarks/reliability/at_once.py")
    rows = [[name, case["times"], len(case["problems"])] for name, case in stored("at-once")["cases"].items()]
    print(table(["case", "times", "went wrong"], rows))


if __name__ == "__main__":
    main()
