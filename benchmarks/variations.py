"""The default beside itself with one thing changed, in equal time: what becomes a rule of the default is found here.

    python benchmarks/variations.py run [strong-augmentation] [--sets cifar500] [--minutes 4 15] [--arms cutmix] [--seeds 1]
    python benchmarks/variations.py page strong-augmentation --write docs/results.md

Studies: `strong-augmentation` (which kind of it pays, from how long a run on) and `long-runs` (what pays beside TrivialAugment: other
members of our family, still more augmentation), `plain-vit` (initial weights, a teacher, pretraining, each in the same time), `vit-bf16` and
`deit-bf16` (what the steps are worth that bf16 adds), `vit-varied`, `dhvt-varied` and `resnet-varied` (TrivialAugment for these).
Judged on training images that were not trained on: no test image has been looked at. Time is that of the whole command on one
thread's processor clock, as in contest.py. What ended is in the store, and is not run again.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from contest_page import right, show
from ours import ROOT, WORK, Opened, Spent, found_in, judged, machine_number, read, run_alone
from rivals.sets import Rows, arrays, validation_part
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.evaluation.statistics import mean_interval
from smallvit.runs.atomic import replacing


class Arm(NamedTuple):
    words: str
    settings: tuple[str, ...] = ()  # beside those of the study


class Study(NamedTuple):
    settings: tuple[str, ...]  # of every arm; what an arm says counts
    arms: dict[str, Arm]  # the first is what the others are compared with


IN_BF16 = {
    "fp32": Arm("in 32 bits", ("precision=fp32",)),
    "bf16": Arm("in bf16, attention by plain products", ("precision=bf16",)),
}
VARIED = {
    "usual": Arm("as it is", ("augment.trivial=false",)),
    "trivial": Arm("TrivialAugment", ("augment.trivial=true",)),
}
STUDIES = {
    # Since this was measured, the default of long runs has TrivialAugment by itself: here it is an arm like the others.
    "strong-augmentation": Study(
        ("augment.trivial=false",),
        {
            "as-it-is": Arm("the default"),
            "cutmix": Arm("CutMix, every other batch", ("objective.cutmix=1.0", "objective.mix_prob=0.5")),
            "mixup": Arm("Mixup, 0.2", ("objective.mixup=0.2",)),
            "randaugment": Arm("RandAugment, 2 operations", ("augment.randaugment=2",)),
            "trivial": Arm("TrivialAugment", ("augment.trivial=true",)),
            "erase": Arm("erasing, every other image", ("augment.erase=0.5",)),
            "drop-path": Arm("drop-path 0.1", ("model.drop_path=0.1",)),
            "large-shifts": Arm("shifts of an eighth", ("augment.padding=0.125",)),
        },
    ),
    "long-runs": Study(  # what else, beside TrivialAugment
        ("augment.trivial=true",),
        {
            "trivial": Arm("TrivialAugment"),
            "wide": Arm("half as wide again", ("model.name=conv_tiny", "model.kwargs.widths=[96,192,384]")),
            "wider": Arm("a model twice as wide", ("model.name=conv_tiny", "model.kwargs.widths=[128,256,512]")),
            "hybrid": Arm("with attention (`hybrid_tiny`)", ("model.name=hybrid_tiny",)),
            "large-shifts": Arm("shifts of an eighth", ("augment.padding=0.125",)),
            "cutmix": Arm("CutMix, every other batch", ("objective.cutmix=1.0", "objective.mix_prob=0.5")),
        },
    ),
    "plain-vit": Study(  # what helps the ViT that nobody tuned
        ("model.name=vit_nano",),
        {
            "usual": Arm("`vit_nano`"),
            "mimetic": Arm("mimetic weights", ("model.weights=mimetic",)),
            "impulse": Arm("impulse weights", ("model.weights=impulse",)),
            "teacher": Arm("a teacher, trained first", ("aux.teacher.run=auto",)),
            "simclr": Arm("SimCLR first", ("pretrain.method=simclr",)),
            "mae": Arm("MAE first", ("pretrain.method=mae",)),
        },
    ),
    "vit-bf16": Study(("model.name=vit_nano",), IN_BF16),
    "deit-bf16": Study(("model.name=deit_tiny",), IN_BF16),
    # What our family gained by it from 100 epochs on: whether others do.
    "vit-varied": Study(("model.name=vit_nano", "precision=bf16"), VARIED),
    "dhvt-varied": Study(("model.name=dhvt_nano", "precision=bf16"), VARIED),
    "resnet-varied": Study(("model.name=resnet_nano", "precision=bf16"), VARIED),
}  # fmt: skip
JUDGES = (200, 600)  # the images of each class, in an order that was drawn, that judge; those that train come before


def of_each(count: int, judges: tuple[int, int], images: ImageSet) -> Rows:
    """So many images of each class, the fewer among the more, and always the same others to judge."""
    rows, labels_N, draw = images.parts["train"].numpy(), images.labels_N.numpy(), np.random.default_rng(7)
    own = [draw.permutation(rows[labels_N[rows] == klass]) for klass in range(len(images.class_names))]
    train, judging = ([of_class[part] for of_class in own] for part in (slice(count), slice(*judges)))
    return Rows(torch.from_numpy(np.concatenate(train)), torch.from_numpy(np.concatenate(judging)))


SETS = {
    "cifar500": ("cifar10_10k2k_32.npz", 32, lambda images: of_each(50, JUDGES, images), "CIFAR-10, 500 images"),
    "cifar2000": ("cifar10_10k2k_32.npz", 32, lambda images: of_each(200, JUDGES, images), "CIFAR-10, 2,000 images"),
    "flowers": ("flowers102_64", 64, validation_part, "Flowers-102, 1,020 images"),
    "svhn700": ("svhn_1000_400_32.npz", 32, lambda images: of_each(70, (70, 100), images), "SVHN, 700 images"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["run", "page"])
    parser.add_argument("study", nargs="?", default="strong-augmentation", choices=list(STUDIES))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--minutes", nargs="+", type=int, default=[4, 15, 60])
    parser.add_argument("--arms", nargs="+", metavar="ARM")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--ours", type=Path, default=ROOT, help="the project's folder that is run")
    parser.add_argument("--store", type=Path, help="docs/results/STUDY.json")
    parser.add_argument("--write", type=Path, help="put the table between its marks in this page")
    given = parser.parse_args()
    given.store = given.store or ROOT / "docs" / "results" / f"{given.study}.json"
    study = STUDIES[given.study]
    if unknown := set(given.arms or ()) - set(study.arms):
        parser.error(f"--arms {' '.join(unknown)}: one of {', '.join(study.arms)}")
    if given.do == "page":
        show("\n".join(page(study, read(given.store)["runs"])), given.write, given.study)
        return
    for minutes in given.minutes:
        for seed in range(given.seeds):
            for name in given.sets:
                for arm in given.arms or study.arms:
                    key = f"{arm}/{name}/{minutes}/{seed}"
                    if key not in read(given.store)["runs"]:
                        print(key, run(key, study, given), flush=True)


# ---- a run ---------------------------------------------------------------------------------------------


def prepared(name: str, data: Path) -> Path:
    path, (source, side, rows_of, _) = WORK / f"{name}-validated.npz", SETS[name]
    if not path.is_file():
        images = open_source(str(data / source)).load(side, "crop", 3)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, **arrays(images, rows_of(images)))
    return path


def run(key: str, study: Study, given: argparse.Namespace) -> str:
    """Store what the command found, and say it."""
    arm, name, minutes, seed = key.split("/")
    data, folder = prepared(name, given.data), WORK / "variations" / key.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    settings = (*study.settings, *study.arms[arm].settings)
    words = ["train", str(data), "--out", str(folder), "--quiet", "--threads", "1", "--seed", seed]
    words += ["--budget", f"{minutes}m", *(part for setting in settings for part in ("--set", setting))]
    spent = run_alone(words, given.ours, processor_seconds=60 * int(minutes))
    with np.load(data) as images:
        return keep(key, spent, folder, images["y_test"], settings, given)


def keep(
    key: str, spent: Spent, folder: Path, labels_N: Any, settings: tuple[str, ...], given: argparse.Namespace
) -> str:
    with Opened(given.store) as record:
        if spent.status:
            record["broken"][key] = f"status {os.waitstatus_to_exitcode(spent.status)}"
            return record["broken"][key]
        found = found_in(folder, given.ours, labels_N)
        del found["floors"]
        found = judged(found, labels_N) | {"cpu_seconds": spent.cpu_seconds, "settings": list(settings)}
        record["runs"][key] = found | {"machine": machine_number(record)}
        shutil.rmtree(folder)
    return f"{found['accuracy']:.1%} in {spent.cpu_seconds} s, {found['epochs']} epochs"


# ---- the table -----------------------------------------------------------------------------------------


def page(study: Study, runs: dict[str, Any]) -> Iterator[str]:
    """A row for each set and length with a first arm to compare with; what was not run is left empty."""
    parsed = {tuple(key.split("/")): run for key, run in runs.items()}
    first, *others = study.arms
    arms = [arm for arm in others if any(key[0] == arm for key in parsed)]
    yield f"| images | minutes | {' | '.join(study.arms[arm].words for arm in (first, *arms))} |"
    yield "|---" * (3 + len(arms)) + "|"
    for name, (*_, words) in SETS.items():
        for minutes in sorted({int(key[2]) for key in parsed if key[0] == first and key[1] == name}):
            plain = of_seeds(parsed, first, name, minutes)
            own = f"{100 * np.mean([run['accuracy'] for run in plain.values()]):.1f} ({_epochs(plain)})"
            cells = [difference(of_seeds(parsed, arm, name, minutes), plain) for arm in arms]
            yield f"| {words} | {minutes} | {own} | {' | '.join(cells)} |"


def of_seeds(parsed: dict[tuple[str, ...], Any], arm: str, name: str, minutes: int) -> dict[str, Any]:
    return {key[3]: run for key, run in parsed.items() if key[:3] == (arm, name, str(minutes))}


def _epochs(runs: dict[str, Any]) -> str:
    return f"{round(np.mean([run['epochs'] for run in runs.values()])):,} epochs"


def difference(runs: dict[str, Any], plain: dict[str, Any]) -> str:
    """In points, with the 95 % interval: from three seeds that both have on by t over seeds, with fewer over their images."""
    both = [right(runs[seed]).astype(float) - right(plain[seed]) for seed in runs if seed in plain]
    if not both:
        return ""
    mean_N = np.mean(both, axis=0)
    middle, wide = mean_N.mean(), 1.96 * mean_N.std(ddof=1) / len(mean_N) ** 0.5
    seeds = "" if len(both) == 1 else f", {len(both)} seeds"
    low, high = middle - wide, middle + wide
    if len(both) > 2:
        _, low, high = mean_interval([one_N.mean() for one_N in both])
    return f"{100 * middle:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}{seeds}; {_epochs(runs)})"


if __name__ == "__main__":
    main()
