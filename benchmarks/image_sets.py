"""Which images the contest and the studies were measured on: told for all, and made anew from the official files for CIFAR-10.

    python benchmarks/image_sets.py cifar DATA OUT    # DATA has the official CIFAR-10; OUT gets the two files of it
    python benchmarks/image_sets.py record DATA       # DATA has all sets; docs/results/image-sets.json is written

docs/image-sets.md says what each set is. The files that are made hold the same pixels in the same order, which is checked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from smallvit.data.listed import Where
from smallvit.data.sources import open_source
from smallvit.runs.atomic import replacing, write_text

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "docs" / "results" / "image-sets.json"
ARRAYS = ("cifar10_10k2k_32.npz", "cifar10_first50_32.npz", "svhn_1000_400_32.npz")
FIRST = 50  # images of each class, in the official order


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["cifar", "record"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    given = parser.parse_args()
    if given.do == "record":
        write_text(STORE, json.dumps(record(given.data), separators=(",", ":")) + "\n")
    elif given.out is None:
        parser.error("cifar needs OUT, the folder that gets the files")
    else:
        make_cifar(given.data, given.out, json.loads(STORE.read_text()))


def record(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ARRAYS:
        with np.load(data / name) as arrays:
            found[name] = {key: digest(arrays[key]) for key in arrays.files if key[:2] in ("x_", "y_")}
            found[name] |= {key: arrays[key].tolist() for key in arrays.files if key.endswith(("_index", "_file"))}
    flowers = sorted((data / "flowers102_64" / "test").rglob("image_*.jpg"))
    found["flowers102_64"] = {"test": [int(path.stem.removeprefix("image_")) for path in flowers]}
    return found


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def make_cifar(data: Path, out: Path, known: dict[str, Any]) -> None:
    official: Any = open_source(Where("cifar10", dir=str(data)))
    images, labels = official.images_NHWC, official.labels.astype(np.uint8)
    train, test = official.parts["train"], official.parts["test"]
    large, small = ARRAYS[:2]
    first = np.concatenate([train[labels[train] == klass][:FIRST] for klass in range(10)])
    judging = test[known[large]["test_index"]]
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in ((large, train[known[large]["train_index"]]), (small, first)):
        arrays = {
            "x_train": images[rows],
            "y_train": labels[rows],
            "x_test": images[judging],
            "y_test": labels[judging],
        }
        if other := [key for key in arrays if digest(arrays[key]) != known[name][key]]:
            sys.exit(f"{name}: {', '.join(other)} would differ from what was measured on: is {data} the official set?")
        with replacing(out / name) as part, part.open("wb") as file:
            np.savez(file, class_names=np.array(official.class_names), **arrays)
        print(f"{out / name}: {len(rows):,} training and {len(judging):,} test images")


if __name__ == "__main__":
    main()
