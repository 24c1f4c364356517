"""How many planted wrong labels do folds find, and how many of those that they name are planted? Real digits.

    python benchmarks/label_errors.py [--out docs/results/label-errors.json]

Images of mnist5k get a wrong label, drawn evenly from the other classes, with the share PLANTED; then `smallvit train --folds` is run on
them as a user would, and its label-errors.csv is compared with what was planted. Two minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import smallvit
from smallvit.data.arrays import named_source
from smallvit.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
IMAGES, PLANTED = 1500, 0.05


def planted_set(path: Path, images: int = IMAGES, share: float = PLANTED, seed: int = 0) -> np.ndarray:
    """Write an .npz of some digits, a share of them with wrong labels; which ones, by their number in it."""
    source, draw = named_source("mnist5k"), np.random.default_rng(seed)
    rows = np.sort(draw.permutation(len(source.labels))[:images])
    labels = source.labels[rows].copy()
    wrong = np.sort(draw.permutation(images)[: round(share * images)])
    labels[wrong] = (labels[wrong] + draw.integers(1, 10, len(wrong))) % 10
    np.savez(path, x_train=source.images_NHWC[rows], y_train=labels, class_names=np.array(list("0123456789")))
    return wrong


def found_in(group: Path) -> list[int]:
    """Numbers of the images that are suspected, the surest first."""
    with (group / "label-errors.csv").open(encoding="utf-8", newline="") as file:
        return [int(row["file"].partition("[")[2].rstrip("]")) for row in csv.DictReader(file)]


def score(found: list[int], wrong: np.ndarray) -> dict[str, Any]:
    planted = {*wrong.tolist()}
    hits = [number in planted for number in found]
    return {
        "planted": len(planted),
        "suspected": len(found),
        "found": sum(hits),
        "precision": sum(hits) / max(1, len(found)),
        "recall": sum(hits) / len(planted),
        "precision_of_the_surest_half": sum(hits[: len(found) // 2]) / max(1, len(found) // 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "label-errors.json")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "planted.npz"
        wrong = planted_set(data)
        group = smallvit.train(data, folds=asked.folds, epochs=asked.epochs, threads=1, out=Path(folder) / "folds")
        judged = group.results["parts"]["left_out"]
        record = {
            "question": "How many planted wrong labels do folds find?",
            "command": f"smallvit train planted.npz --folds {asked.folds} --epochs {asked.epochs} --threads 1",
            "data": f"{IMAGES:,} images of mnist5k, {PLANTED:.0%} of them with a wrong label drawn evenly from the other classes, seed 0",
            "model": group.results["model"]["name"],
            "accuracy": judged["accuracy"],
            "interval": judged["interval"],
            "train_seconds": group.results["timing"]["train_seconds"],
            **score(found_in(group.path), wrong),
            "env": environment("cpu", 1),
        }
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
