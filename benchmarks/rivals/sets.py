"""The sets of the contest, each an .npz file that all entrants read: one to be judged on, one to tune on.

The file to tune on has the same keys, but its test part is made of training or validation images: settings are chosen
without a look at the test images.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.data.split import make_split
from smallvit.recipe import DataSpec
from smallvit.runs.atomic import replacing


class Rows(NamedTuple):
    train: Tensor
    test: Tensor


class Contested(NamedTuple):
    source: str  # in the folder of data
    side: int
    judged: Callable[[ImageSet], Rows]
    tuned: Callable[[ImageSet], Rows]


def per_class(images: ImageSet, count: int) -> Tensor:
    """The training images that `smallvit train --per-class COUNT --val none` takes."""
    return make_split(images, DataSpec(per_class=count, val="none")).train


def other_200_per_class(images: ImageSet) -> Rows:
    """Subsets are nested: the 200 of each class are among the 400."""
    own, more = per_class(images, 200), per_class(images, 400)
    return Rows(own, more[~torch.isin(more, own)])


def as_split(images: ImageSet) -> Rows:
    return Rows(images.parts["train"], images.parts["test"])


def validation_part(images: ImageSet) -> Rows:
    return Rows(images.parts["train"], images.parts["val"])


def fifth_of_training(images: ImageSet) -> Rows:
    split = make_split(images, DataSpec(val=0.2))
    return Rows(split.train, split.val)


def first_30_next_20(images: ImageSet) -> Rows:
    rows = images.parts["train"]
    own = [rows[images.labels_N[rows] == klass] for klass in range(len(images.class_names))]
    return Rows(torch.cat([of_class[:30] for of_class in own]), torch.cat([of_class[30:] for of_class in own]))


SETS: dict[str, Contested] = {
    "cifar200": Contested(
        "cifar10_10k2k_32.npz", 32, lambda i: Rows(per_class(i, 200), i.parts["test"]), other_200_per_class
    ),
    "flowers": Contested(
        "flowers102_64", 64, lambda i: Rows(torch.cat([i.parts["train"], i.parts["val"]]), i.parts["test"]),
        validation_part,
    ),
    "clothing": Contested("clothing10_cc0_64", 64, as_split, validation_part),
    "svhn": Contested("svhn_1000_400_32.npz", 32, as_split, fifth_of_training),
    "first50": Contested("cifar10_first50_32.npz", 32, as_split, first_30_next_20),
    "cifar1000": Contested("cifar10_10k2k_32.npz", 32, as_split, fifth_of_training),
}  # fmt: skip
CONTEST = [name for name in SETS if name != "cifar1000"]  # that one is for the table of where attention pays


def prepared(name: str, data: Path, folder: Path, tuning: bool = False) -> Path:
    """The .npz file of a set, written at its first use."""
    path = folder / f"{name}-tuning.npz" if tuning else folder / f"{name}.npz"
    if not path.is_file():
        one = SETS[name]
        images = open_source(str(data / one.source)).load(one.side, "crop", 3)
        rows = (one.tuned if tuning else one.judged)(images)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, **arrays(images, rows))
    return path


def arrays(images: ImageSet, rows: Rows) -> dict[str, np.ndarray]:
    found = {"class_names": np.array(images.class_names)}
    for part, own in rows._asdict().items():
        found[f"x_{part}"] = images.images_NCSS[own].permute(0, 2, 3, 1).contiguous().numpy()
        found[f"y_{part}"] = images.labels_N[own].numpy()
    return found
