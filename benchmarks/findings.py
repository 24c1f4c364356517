"""The numbers that sentences of `smallvit diagnose` rest on, over many runs: what thresholds are chosen and tried on.

    python benchmarks/findings.py RUN...            # measure those that are not in the file yet, then print all
    python benchmarks/findings.py                   # print what is there, judged by the thresholds of today

Runs are copied before they are diagnosed; about 5 s of processor time each. Numbers go to docs/results/diagnosis-numbers.json
under the names of the folder and the one above it; what was chosen from them is docs/decisions/005-thresholds.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smallvit import Run
from smallvit.console import quiet, say
from smallvit.diagnosis.diagnose import diagnose
from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.judge import judge
from smallvit.runs.atomic import write_text

STORE = Path(__file__).parent.parent / "docs" / "results" / "diagnosis-numbers.json"
ARRAYS = {"heads": ("selectivity", "twin"), "self_similarity": ("steps",)}  # what sentences count in
LABELS = ("part", "floor", "layers", "blocks", "unit", "other")


def main() -> None:
    parser = argparse.ArgumentParser(description="Numbers of the diagnosis over many runs.")
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--against", type=Path, help="a run to compare each of them with")
    parser.add_argument("--images", type=int, default=256)
    asked = parser.parse_args()
    stored: dict[str, Any] = json.loads(STORE.read_text()) if STORE.is_file() else {}
    for path in asked.runs:
        name = f"{path.resolve().parent.name}/{path.name}"
        if name not in stored and Run(path).finished:
            say(name)
            stored[name] = measured(path, asked.against, asked.images)
            write_text(STORE, json.dumps(stored, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    print_all(stored)


def measured(path: Path, against: Path | None, images: int) -> dict[str, Any]:
    run = Run(path)
    with tempfile.TemporaryDirectory() as folder, quiet():
        copy = shutil.copytree(path, Path(folder) / path.name, ignore=shutil.ignore_patterns("state", "findings"))
        found = diagnose(copy, against, images)
    recipe = run.recipe
    arm = "+".join([recipe.model.name, *recipe.aux])
    return {
        "data": Path(recipe.data.source).stem, "arm": arm, "seed": recipe.seed, "epochs": recipe.epochs,
        "findings": {one.name: _plain(one) for one in found if one.numbers},
    }  # fmt: skip


def _plain(one: Finding) -> dict[str, Any]:
    kept = {key: np.round(one.arrays[key].astype(float), 4) for key in ARRAYS.get(one.name, ())}
    arrays = {key: np.where(np.isnan(value), None, value).tolist() for key, value in kept.items()}
    return {
        "numbers": {key: round(value, 4) for key, value in one.numbers.items()},
        "labels": {key: list(one.labels[key]) for key in LABELS if key in one.labels},
        "arrays": arrays,
    }


# ---- what was found ----------------------------------------------------------------------------------


def print_all(stored: dict[str, Any]) -> None:
    """By arm, the best last: the range of every number over its runs, and how many of them got which sentence."""
    arms: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for entry in stored.values():
        arms.setdefault((entry["data"], entry["arm"], entry["epochs"]), []).append(entry)
    for arm, entries in sorted(arms.items(), key=lambda item: _values(item[1], "fit", "accuracy")[0]):
        print(f"\n{arm[1]} on {arm[0]}, {arm[2]} epochs, seeds {', '.join(str(one['seed']) for one in entries)}")
        for name in dict.fromkeys(name for entry in entries for name in entry["findings"]):
            ranges = [
                f"{key} {_range(_values(entries, name, key))}"
                for key in entries[0]["findings"].get(name, {"numbers": {}})["numbers"]
            ]
            print(f"  {name:<16} {'  '.join(ranges)}")
        said = [one.name for entry in entries for one in judge(_findings(entry)) if one.verdict]
        print(
            "  said of         ", ", ".join(f"{name} {said.count(name)}/{len(entries)}" for name in dict.fromkeys(said))
        )


def _values(entries: Sequence[dict[str, Any]], name: str, key: str) -> list[float]:
    return [one["findings"][name]["numbers"][key] for one in entries if name in one["findings"]]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low}..{high}"


# What the first stored entries lack: all are of 10 classes and 256 images, and floors were not judged.
LACKING: dict[str, Any] = {
    "numbers": {"floor": 0.0, "classes": 10.0, "images": 256.0},
    "labels": {"floor": [""], "unit": ["block"]},
}


def _findings(entry: dict[str, Any]) -> list[Finding]:
    return [
        Finding(
            name,
            {key: np.array(values, dtype=float) for key, values in one["arrays"].items()},
            LACKING["numbers"] | one["numbers"],
            LACKING["labels"] | one["labels"],
        )
        for name, one in entry["findings"].items()
    ]


if __name__ == "__main__":
    main()
