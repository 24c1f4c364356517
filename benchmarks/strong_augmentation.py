"""Which strong augmentation pays, from how long a run on: the default as it is, and with one more kind of it, in equal time.

    python benchmarks/strong_augmentation.py run [--sets cifar500] [--minutes 4 15] [--arms as-it-is cutmix] [--seeds 1]
    python benchmarks/strong_augmentation.py page --write docs/results.md

Judged on training images that were not trained on: what is found here becomes a rule of the default, and no test image has been
looked at. Time is that of the whole command on one thread's processor clock, as in contest.py. What ended is in the store, and is
not run again.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contest import PROCESSOR_CLOCK, ROOT, TOO_LONG, WORK, Opened, judged, machine_number, of_ours, read
from contest_page import right, show
from rivals.sets import Rows, arrays, validation_part
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.runs.atomic import replacing

STORE = ROOT / "docs" / "results" / "strong-augmentation.json"
AS_IT_IS = "as-it-is"
# Since this was measured, the default of long runs has TrivialAugment by itself: here it is an arm like the others.
PLAIN = "augment.trivial=false"
ARMS: dict[str, list[str]] = {  # settings of each; without TrivialAugment where they do not name it
    AS_IT_IS: [],
    "cutmix": ["objective.cutmix=1.0", "objective.mix_prob=0.5"],
    "mixup": ["objective.mixup=0.2"],
    "randaugment": ["augment.randaugment=2"],
    "trivial": ["augment.trivial=true"],
    "erase": ["augment.erase=0.5"],
    "drop-path": ["model.drop_path=0.1"],
    "large-shifts": ["augment.padding=0.125"],
}
WORDS = {
    AS_IT_IS: "the default", "cutmix": "CutMix, every other batch", "mixup": "Mixup, 0.2", "randaugment": "RandAugment, 2 operations",
    "trivial": "TrivialAugment", "erase": "erasing, every other image", "drop-path": "drop-path 0.1", "large-shifts": "shifts of an eighth",
}  # fmt: skip
JUDGES = (200, 600)  # the images of each class, in an order that was drawn, that judge; those that train come before


def cifar(count: int, images: ImageSet) -> Rows:
    """So many images of each class, the fewer among the more, and always the same others to judge."""
    rows, labels_N, draw = images.parts["train"].numpy(), images.labels_N.numpy(), np.random.default_rng(7)
    own = [draw.permutation(rows[labels_N[rows] == klass]) for klass in range(len(images.class_names))]
    train, judging = ([of_class[part] for of_class in own] for part in (slice(count), slice(*JUDGES)))
    return Rows(torch.from_numpy(np.concatenate(train)), torch.from_numpy(np.concatenate(judging)))


SETS = {
    "cifar500": ("cifar10_10k2k_32.npz", 32, lambda images: cifar(50, images), "CIFAR-10, 500 images"),
    "cifar2000": ("cifar10_10k2k_32.npz", 32, lambda images: cifar(200, images), "CIFAR-10, 2,000 images"),
    "flowers": ("flowers102_64", 64, validation_part, "Flowers-102, 1,020 images"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["run", "page"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--minutes", nargs="+", type=int, default=[4, 15, 60])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS), metavar="ARM")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--ours", type=Path, default=ROOT, help="the project's folder that is run")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--write", type=Path, help="put the table between its marks in this page")
    given = parser.parse_args()
    if given.do == "page":
        show("\n".join(page(read(given.store)["runs"])), given.write, "strong-augmentation")
        return
    for minutes in given.minutes:
        for seed in range(given.seeds):
            for name in given.sets:
                for arm in given.arms:
                    key = f"{arm}/{name}/{minutes}/{seed}"
                    if key not in read(given.store)["runs"]:
                        print(key, run(arm, name, minutes, seed, given), flush=True)


# ---- a run ---------------------------------------------------------------------------------------------


def prepared(name: str, data: Path) -> Path:
    path, (source, side, rows_of, _) = WORK / f"{name}-validated.npz", SETS[name]
    if not path.is_file():
        images = open_source(str(data / source)).load(side, "crop", 3)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, **arrays(images, rows_of(images)))
    return path


def run(arm: str, name: str, minutes: int, seed: int, given: argparse.Namespace) -> str:
    """Store what the command found, and say it."""
    data, folder = prepared(name, given.data), WORK / "augmentation" / f"{arm}-{name}-{minutes}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    words = ["train", str(data), "--out", str(folder), "--quiet", "--threads", "1", "--seed", str(seed)]
    words += ["--budget", f"{minutes}m", *(part for setting in (PLAIN, *ARMS[arm]) for part in ("--set", setting))]
    environ = {**os.environ, "PYTHONPATH": str(given.ours.resolve() / "src"), "OMP_NUM_THREADS": "1"}
    most = int(TOO_LONG * 60 * minutes) + 30
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESSOR_CLOCK, *words], env=environ,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most)),
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    return keep(f"{arm}/{name}/{minutes}/{seed}", status, round(usage.ru_utime + usage.ru_stime, 1), folder, given)


def keep(key: str, status: int, cpu_seconds: float, folder: Path, given: argparse.Namespace) -> str:
    arm, name, *_ = key.split("/")
    with np.load(prepared(name, given.data)) as data, Opened(given.store) as record:
        if status:
            record["broken"][key] = f"status {os.waitstatus_to_exitcode(status)}"
            return record["broken"][key]
        found = of_ours(folder, given.ours, data["y_test"])
        del found["floors"]
        found = judged(found, data["y_test"]) | {"cpu_seconds": cpu_seconds, "settings": ARMS[arm]}
        record["runs"][key] = found | {"machine": machine_number(record)}
        shutil.rmtree(folder)
    return f"{found['accuracy']:.1%} in {cpu_seconds} s, {found['epochs']} epochs"


# ---- the table -----------------------------------------------------------------------------------------


def page(runs: dict[str, Any]) -> Iterator[str]:
    """A row for each set and length with a default to compare with; what was not run is left empty."""
    parsed = {tuple(key.split("/")): run for key, run in runs.items()}
    arms = [arm for arm in ARMS if arm != AS_IT_IS and any(key[0] == arm for key in parsed)]
    yield f"| images | minutes | {' | '.join(WORDS[arm] for arm in (AS_IT_IS, *arms))} |"
    yield "|---" * (3 + len(arms)) + "|"
    for name, (*_, words) in SETS.items():
        for minutes in sorted({int(key[2]) for key in parsed if key[0] == AS_IT_IS and key[1] == name}):
            plain = of_seeds(parsed, AS_IT_IS, name, minutes)
            own = f"{100 * np.mean([run['accuracy'] for run in plain.values()]):.1f} ({_epochs(plain)})"
            cells = [difference(of_seeds(parsed, arm, name, minutes), plain) for arm in arms]
            yield f"| {words} | {minutes} | {own} | {' | '.join(cells)} |"


def of_seeds(parsed: dict[tuple[str, ...], Any], arm: str, name: str, minutes: int) -> dict[str, Any]:
    return {key[3]: run for key, run in parsed.items() if key[:3] == (arm, name, str(minutes))}


def _epochs(runs: dict[str, Any]) -> str:
    return f"{round(np.mean([run['epochs'] for run in runs.values()])):,} epochs"


def difference(runs: dict[str, Any], plain: dict[str, Any]) -> str:
    """In points, with the 95 % interval over the images of the seeds that both have."""
    both = [right(runs[seed]).astype(float) - right(plain[seed]) for seed in runs if seed in plain]
    if not both:
        return ""
    mean_N = np.mean(both, axis=0)
    middle, wide = 100 * mean_N.mean(), 196 * mean_N.std(ddof=1) / len(mean_N) ** 0.5
    seeds = "" if len(both) == 1 else f", {len(both)} seeds"
    return f"{middle:+.1f} ({middle - wide:+.1f} to {middle + wide:+.1f}{seeds}; {_epochs(runs)})"


if __name__ == "__main__":
    main()
