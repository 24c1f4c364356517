"""Which rows train, validate and test: stratified, seeded, and stored in the run.

The order is fixed so that shares mean the same everywhere: test first, then validation from what is left,
then the subset (`per_class`, `fraction`) of what remains for training. Subsets are nested: the 20 images per
class of one run are among the 50 of another. The test part never selects anything.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from smallvit.data.imageset import ImageSet
from smallvit.errors import DataError, UsageError
from smallvit.randomness import generator
from smallvit.recipe import DataSpec

TEST_SHARE = 0.2
VAL_SHARE = 0.15


class Split(NamedTuple):
    train: Tensor
    val: Tensor  # empty: nothing is held out for selection
    test: Tensor
    how: dict[str, str]  # what each part is, in words


def make_split(images: ImageSet, spec: DataSpec) -> Split:
    check_classes(images)
    labels = images.labels_N
    parts, how = dict(images.parts), {}
    rest = parts.get("train", torch.arange(len(images)))
    none = torch.zeros(0, dtype=torch.int64)

    test, how["test"] = none, "none"
    if spec.test == "none":
        pass
    elif isinstance(spec.test, float):
        rest, test, how["test"] = _take(labels, rest, spec.test, spec, "test", images)
    elif spec.test != "auto" or "test" in parts:
        test, how["test"] = _part(parts, "test" if spec.test == "auto" else spec.test, "--test")
    elif not parts:
        rest, test, how["test"] = _take(labels, rest, TEST_SHARE, spec, "test", images)

    official_val = parts.get("val")
    if spec.train_on == "train+val":
        if official_val is None:
            raise UsageError(f"--train-on train+val: {images.source} has no validation part")
        rest = torch.cat([rest, official_val])
    val, how["val"] = none, "none"
    if isinstance(spec.val, float):
        rest, val, how["val"] = _take(labels, rest, spec.val, spec, "val", images)
    elif spec.val == "auto":
        if spec.train_on == "train" and official_val is not None:
            val, how["val"] = official_val, "the part val of the source"
        elif spec.train_on == "train":
            rest, val, how["val"] = _take(labels, rest, VAL_SHARE, spec, "val", images)
    elif spec.val != "none":
        if spec.val == "test":
            raise UsageError("--val test: the test part never selects anything; give another part, a share or none")
        if spec.train_on == "train+val" and spec.val == "val":
            raise UsageError("--val val: with --train-on train+val these images are trained on")
        val, how["val"] = _part(parts, spec.val, "--val")

    train = _subset(labels, rest, spec, images)
    how["train"] = "the rest" if len(train) == len(rest) else f"{len(train):,} of {len(rest):,} images"
    _check_training(images, train)
    return Split(train, val, test, how)


def check_classes(images: ImageSet) -> None:
    counts = torch.bincount(images.labels_N, minlength=len(images.class_names))
    if int((counts > 0).sum()) < 2:
        raise DataError(f"{images.source} has one class only ({images.class_names[0]}): there is nothing to tell apart")


def _part(parts: dict[str, Tensor], name: str, flag: str) -> tuple[Tensor, str]:
    if name not in parts:
        has = f"it has {', '.join(parts)}" if parts else "it has no parts"
        raise UsageError(f"{flag} {name}: the source has no such part ({has}); a share such as 0.15 or none will do")
    return parts[name], f"the part {name} of the source"


def _shuffled(labels: Tensor, rows: Tensor, klass: int, seed: int, purpose: str) -> Tensor:
    own = rows[labels[rows] == klass]
    return own[torch.randperm(len(own), generator=generator(seed, purpose, klass))]


def _take(
    labels: Tensor, rows: Tensor, share: float, spec: DataSpec, part: str, images: ImageSet
) -> tuple[Tensor, Tensor, str]:
    """Rows left and rows taken: the share of every class, at least one image, never the last one."""
    left, taken = [], []
    for klass in labels[rows].unique().tolist():
        own = _shuffled(labels, rows, klass, spec.split_seed, part)
        if len(own) < 2:
            raise DataError(
                f"class {images.class_names[klass]!r} of {images.source} has too few images to hold out a {part} part: "
                f"add images, leave the class out, or give --{part} none"
            )
        count = min(max(1, round(share * len(own))), len(own) - 1)
        taken.append(own[:count])
        left.append(own[count:])
    return (
        torch.cat(left).sort().values,
        torch.cat(taken).sort().values,
        f"{share:.0%} of each class, seed {spec.split_seed}",
    )


def _subset(labels: Tensor, rows: Tensor, spec: DataSpec, images: ImageSet) -> Tensor:
    if spec.per_class and spec.fraction:
        raise UsageError("--per-class and --fraction exclude each other: give one of them")
    if not spec.per_class and spec.fraction in (None, 1.0):
        return rows
    kept = []
    for klass in labels[rows].unique().tolist():
        own = _shuffled(labels, rows, klass, spec.split_seed, "subset")
        count = spec.per_class or max(1, round((spec.fraction or 1.0) * len(own)))
        if count > len(own):
            raise UsageError(
                f"--per-class {count}: class {images.class_names[klass]!r} has {len(own)} images left for training"
            )
        kept.append(own[:count])
    return torch.cat(kept).sort().values


def _check_training(images: ImageSet, train: Tensor) -> None:
    missing = set(range(len(images.class_names))) - set(images.labels_N[train].unique().tolist())
    if missing:
        names = ", ".join(repr(images.class_names[klass]) for klass in sorted(missing)[:5])
        raise DataError(f"{images.source}: no training images for class {names}")
