"""Load: check, train and predict with many small files, and with one folder of very many classes; time and memory.

    python benchmarks/reliability/load.py [--files 25000 100000] [--classes 5000 20000]

Each command is a process of its own (forks.py); four times the files should take at most four times the time, and memory grow no faster.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from corpus import encoded
from forks import command
from PIL import Image
from storing import store, stored, table

STEPS = "20"  # of training: the files are what is looked at
QUICK = (
    "--set",
    f"steps={STEPS}",
    "--model",
    "vit_pico",
    "--img-size",
    "8",
    "--threads",
    "1",
    "--batch-size",
    "128",
    "--quiet",
)


def make(root: Path, files: int, classes: int) -> None:
    """Every file has a colour of its own; 8 px."""
    for number in range(files):
        folder = root / f"class-{number % classes:05d}"
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (8, 8), (number % 256, number // 256 % 256, number * 7 % 256))
        (folder / f"{number}.png").write_bytes(encoded(image, "PNG"))


def measured(*words: Any, cache: Path) -> dict[str, Any]:
    """Status, seconds, and the largest memory of the process, of which what torch takes is a good part."""
    done = command(*words, timeout=3600, SMALLVIT_CACHE=str(cache))
    return {
        "status": done.status, "seconds": round(done.seconds, 1), "cpu": round(done.cpu, 1), "memory MB": round(done.memory),
        **({"said": done.err[-300:]} if done.status else {}),
    }  # fmt: skip


def one(files: int, classes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        make(place / "photos", files, classes)
        cache = place / "cache"
        return {
            "check": measured("check", place / "photos", "--fast", cache=cache),
            "train": measured("train", place / "photos", *QUICK, "--out", place / "run", cache=cache),
            "predict": measured(
                "predict", place / "run", place / "photos", "--csv", place / "out.csv", "--threads", "1", cache=cache
            ),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="*", default=[25_000, 100_000])
    parser.add_argument("--classes", type=int, nargs="*", default=[5000, 20_000])
    asked = parser.parse_args()
    # The same files for all counts of classes: what is told of an image and a class is files times classes.
    sizes = [(files, 10) for files in asked.files] + [(3 * max(asked.classes), classes) for classes in asked.classes]
    for files, classes in sizes:
        figures = stored("load").get("sizes", {})
        figures[f"{files} files, {classes} classes"] = one(files, classes)
        store("load", {"sizes": figures}, "python benchmarks/reliability/load.py")
    rows = [
        [size, name, found["status"], found["seconds"], found["cpu"], found["memory MB"]]
        for size, commands in stored("load")["sizes"].items()
        for name, found in commands.items()
    ]
    print(table(["size", "command", "status", "seconds", "processor seconds", "memory MB"], rows))


if __name__ == "__main__":
    main()
