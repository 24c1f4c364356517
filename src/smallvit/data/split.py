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
from smallvit.data.sources import PART_NAMES
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


def make_split(images: ImageSet, spec: DataSpec, needs_labels: bool = True) -> Split:
    # A folder may be called validation or testing; its part is val or test.
    spec = spec.model_copy(update={"val": _plain(spec.val), "test": _plain(spec.test)})
    if needs_labels:
        check_classes(images)
    check_asked(images, spec)
    how: dict[str, str] = {}
    rest = images.parts.get("train", torch.arange(len(images)))
    rest, test, how["test"] = _hold_out_test(images, spec, rest)
    if spec.train_on == "train+val":
        rest = torch.cat([rest, images.parts["val"]])
    rest, val, how["val"] = _hold_out_val(images, spec, rest)
    train = _subset(images.labels_N, rest, spec, images)
    how["train"] = "the rest" if len(train) == len(rest) else f"{len(train):,} of {len(rest):,} images"
    _check_training(images, train)
    if spec.sealed:
        test, how["test"] = NONE, f"{len(test):,} images, sealed"
    return Split(train, val, test, how)


def _plain(part: float | str) -> float | str:
    return PART_NAMES.get(part.lower(), part) if isinstance(part, str) else part


def check_classes(images: ImageSet) -> None:
    classes = images.labels_N.unique().tolist()
    if len(classes) < 2:
        name = images.class_names[classes[0]]
        raise DataError(f"{images.source} has one class only ({name}): there is nothing to tell apart")


def check_asked(images: ImageSet, spec: DataSpec) -> None:
    """No image may be in two parts, and the test part never selects anything."""
    if spec.per_class and spec.fraction:
        raise UsageError("--per-class and --fraction exclude each other: give one of them")
    if spec.val == "test":
        raise UsageError("--val test: the test part never selects anything; give another part, a share or none")
    for flag, part in (("--val", spec.val), ("--test", spec.test)):
        if part == "train":
            raise UsageError(f"{flag} train: these images are trained on; give another part, a share or none")
    if spec.test == "val" and spec.val == "val":
        raise UsageError("--test val and --val val: the test part never selects anything; give two parts")
    if spec.train_on == "train+val":
        if "val" not in images.parts:
            raise UsageError(f"--train-on train+val: {images.source} has no validation part")
        for flag, part in (("--val", spec.val), ("--test", spec.test)):
            if part == "val":
                raise UsageError(f"{flag} val: with --train-on train+val these images are trained on")


Held = tuple[Tensor, Tensor, str]  # the rows that are left, the rows held out, and what they are in words
NONE = torch.zeros(0, dtype=torch.int64)


def _hold_out_test(images: ImageSet, spec: DataSpec, rest: Tensor) -> Held:
    return _hold_out(images, spec, rest, "test", auto_test(images) if spec.test == "auto" else spec.test)


def _hold_out_val(images: ImageSet, spec: DataSpec, rest: Tensor) -> Held:
    return _hold_out(images, spec, rest, "val", auto_val(images, spec) if spec.val == "auto" else spec.val)


def _hold_out(images: ImageSet, spec: DataSpec, rest: Tensor, part: str, what: float | str) -> Held:
    if isinstance(what, float):
        return _take(images, rest, what, spec, part)
    if what == "none":
        return rest, NONE, "none"
    return rest, *_part(images.parts, what, f"--{part}")


def auto_test(images: ImageSet) -> float | str:
    if not images.parts:
        return TEST_SHARE
    return "test" if "test" in images.parts else "none"


def auto_val(images: ImageSet, spec: DataSpec, otherwise: float | str = "none") -> float | str:
    """The source's own part; `otherwise` where it has none."""
    if spec.train_on == "train+val":
        return "none"
    return "val" if "val" in images.parts and _plain(spec.test) != "val" else otherwise


def _part(parts: dict[str, Tensor], name: str, flag: str) -> tuple[Tensor, str]:
    if name not in parts:
        has = f"it has {', '.join(parts)}" if parts else "it has no parts"
        raise UsageError(f"{flag} {name}: the source has no such part ({has}); a share such as 0.15 or none will do")
    return parts[name], f"the part {name} of the source"


def _shuffled(labels: Tensor, rows: Tensor, klass: int, seed: int, purpose: str) -> Tensor:
    own = rows[labels[rows] == klass]
    return own[torch.randperm(len(own), generator=generator(seed, purpose, klass))]


def _take(images: ImageSet, rows: Tensor, share: float, spec: DataSpec, part: str) -> Held:
    """The share of every class, at least one image, never the last one."""
    labels = images.labels_N
    counts = torch.bincount(labels[rows], minlength=len(images.class_names))
    if lonely := [images.class_names[klass] for klass in (counts == 1).nonzero()[:, 0].tolist()]:
        names = ", ".join(map(repr, lonely[:5])) + (f" and {len(lonely) - 5} more" if len(lonely) > 5 else "")
        raise DataError(
            f"{images.source}: one image only is left of class {names}, too few to hold out a {part} part: "
            f"add images, leave the class out, or give --{part} none"
        )
    left, taken = [], []
    for klass in labels[rows].unique().tolist():
        own = _shuffled(labels, rows, klass, spec.split_seed, part)
        count = min(max(1, round(share * len(own))), len(own) - 1)
        taken.append(own[:count])
        left.append(own[count:])
    how = f"{100 * share:.3g} % of each class, seed {spec.split_seed}"
    return torch.cat(left).sort().values, torch.cat(taken).sort().values, how


def _subset(labels: Tensor, rows: Tensor, spec: DataSpec, images: ImageSet) -> Tensor:
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
