"""Which rows train, validate and test: stratified, seeded, and stored in the run.

The order is fixed so that shares mean the same everywhere: test first, then what a fold leaves out, then validation from
what is left, then the subset (`per_class`, `fraction`) of what remains for training. Subsets are nested: the 20 images
per class of one run are among the 50 of another. Neither the test part nor what a fold leaves out selects anything.

Groups stay whole: none has images in two of the parts that are made here. A subset may take some images of a group.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from smallvit.console import several
from smallvit.data.dealing import deal_groups, deal_images, places_of_classes, shuffled_classes
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import PART_NAMES
from smallvit.errors import DataError, UsageError
from smallvit.recipe import DataSpec

TEST_SHARE = 0.2
VAL_SHARE = 0.15
USUAL_FOLDS = 5
PART_ADJECTIVES = {"train": "training", "val": "validation", "test": "test", "left_out": "left-out"}  # ... images
NONE = torch.zeros(0, dtype=torch.int64)


class Split(NamedTuple):
    train: Tensor
    val: Tensor  # empty: nothing is held out for selection
    test: Tensor
    how: dict[str, str]  # what each part is, in words
    left_out: Tensor = NONE  # what a fold is judged by; empty where there are no folds

    @property
    def parts(self) -> dict[str, Tensor]:
        """By name; what a fold leaves out where there are folds."""
        usual = {"train": self.train, "val": self.val, "test": self.test}
        return usual | ({"left_out": self.left_out} if len(self.left_out) else {})

    @property
    def judged(self) -> dict[str, Tensor]:
        """The parts that a finished model is judged by, where they hold images: the first one is the one that counts."""
        parts = {"left_out": self.left_out, "test": self.test, "val": self.val}
        return {name: rows for name, rows in parts.items() if len(rows)}


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
    left_out = NONE
    if spec.folds:
        rest, left_out, how["left_out"] = _leave_out(images, spec, rest, spec.folds)
    rest, val, how["val"] = _hold_out_val(images, spec, rest)
    train = _subset(images.labels_N, rest, spec, images)
    how["train"] = "the rest" if len(train) == len(rest) else several(len(train), "image", len(rest))
    _check_training(images, train)
    if spec.sealed:
        test, how["test"] = NONE, f"{several(len(test), 'image')}, sealed"
    return Split(train, val, test, how, left_out)


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


def _hold_out_test(images: ImageSet, spec: DataSpec, rest: Tensor) -> Held:
    return _hold_out(images, spec, rest, "test", auto_test(images, spec) if spec.test == "auto" else spec.test)


def _hold_out_val(images: ImageSet, spec: DataSpec, rest: Tensor) -> Held:
    return _hold_out(images, spec, rest, "val", auto_val(images, spec) if spec.val == "auto" else spec.val)


def _hold_out(images: ImageSet, spec: DataSpec, rest: Tensor, part: str, what: float | str) -> Held:
    if isinstance(what, float):
        return _take(images, rest, what, spec, part)
    if what == "none":
        return rest, NONE, "none"
    return rest, *_part(images.parts, what, f"--{part}")


def auto_test(images: ImageSet, spec: DataSpec) -> float | str:
    """The source's own part, or a share; none where folds judge every image anyway."""
    if not images.parts:
        return "none" if spec.folds and not spec.sealed else TEST_SHARE
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


def _take(images: ImageSet, rows: Tensor, share: float, spec: DataSpec, part: str) -> Held:
    """The share of every class, at least one image, never the last one."""
    if images.groups:
        return _take_groups(images, rows, share, spec, part)
    labels = images.labels_N
    counts = torch.bincount(labels[rows], minlength=len(images.class_names))
    if lonely := [images.class_names[klass] for klass in (counts == 1).nonzero()[:, 0].tolist()]:
        names = ", ".join(map(repr, lonely[:5])) + (f" and {len(lonely) - 5} more" if len(lonely) > 5 else "")
        raise DataError(
            f"{images.source}: one image only is left of class {names}, too few to hold out a {part} part: "
            f"add images, leave the class out, or give --{part} none"
        )
    left, taken = [], []
    for places in shuffled_classes(labels[rows], spec.split_seed, part).values():
        count = min(max(1, round(share * len(places))), len(places) - 1)
        taken.append(rows[places[:count]])
        left.append(rows[places[count:]])
    how = f"{100 * share:.3g} % of each class, seed {spec.split_seed}"
    return torch.cat(left).sort().values, torch.cat(taken).sort().values, how


def _take_groups(images: ImageSet, rows: Tensor, share: float, spec: DataSpec, part: str) -> Held:
    """The same in whole groups: at least one of every class, never the last one."""
    _check_groups(images, rows, f"a {part} part", f"give --{part} none")
    part_R = deal_groups(images.labels_N[rows], _groups(images, rows), (share, 1 - share), spec.split_seed, part)
    left, taken = rows[part_R == 1], rows[part_R == 0]
    n, of = len(set(_groups(images, taken))), len(set(_groups(images, rows)))
    how = f"{n:,} of {of:,} groups, as near as can be to {100 * share:.3g} % of each class, seed {spec.split_seed}"
    return left, taken, how


def _leave_out(images: ImageSet, spec: DataSpec, rows: Tensor, folds: int) -> Held:
    """Every image is left out by one fold, and every fold has its share of each class."""
    labels, fold = images.labels_N[rows], spec.fold or 0
    if images.groups:
        groups = _groups(images, rows)
        _check_groups(images, rows, "a fold", "leave the class out")
        fold_R = deal_groups(labels, groups, [1 / folds] * folds, spec.split_seed, "fold")
        if (held := len(fold_R.unique())) < folds:
            n = len(set(groups))
            raise UsageError(
                f"--folds {folds}: {images.source} has {several(n, 'group')}, and each stays whole: give --folds {held}"
            )
    else:
        _check_rarest(images, labels, folds)
        fold_R = deal_images(labels, folds, spec.split_seed, "fold")
    how = f"fold {fold} of {folds}, stratified{', in whole groups' * bool(images.groups)}, seed {spec.split_seed}"
    return rows[fold_R != fold], rows[fold_R == fold], how


def possible_folds(images: ImageSet, split: Split) -> int:
    """As many as are usual, or as the rarest class has images; groups stay whole, and no class may be one of them. 0 where none can be."""
    rows = torch.cat([split.train, split.val, split.test])
    labels = images.labels_N[rows]
    places = places_of_classes(labels).values()
    rarest = min(map(len, places))
    if images.groups:
        groups = _groups(images, rows)
        of_class = [{groups[place] for place in own.tolist()} for own in places]
        rarest = len(set(groups)) if min(map(len, of_class)) > 1 else 0
    return min(USUAL_FOLDS, rarest) if rarest > 1 else 0


def _groups(images: ImageSet, rows: Tensor) -> list[str]:
    return [images.groups[row] for row in rows.tolist()]


def _check_rarest(images: ImageSet, labels: Tensor, folds: int) -> None:
    counts = {klass: len(places) for klass, places in places_of_classes(labels).items()}
    rarest = min(counts, key=lambda klass: counts[klass])
    if (least := counts[rarest]) < folds:
        fewer = f"give --folds {least}, " if least > 1 else ""
        raise UsageError(
            f"--folds {folds}: class {images.class_names[rarest]!r} of {images.source} has {several(least, 'image')}, "
            f"and every fold leaves out one of each class: {fewer}add images, or leave the class out"
        )


def _check_groups(images: ImageSet, rows: Tensor, what: str, otherwise: str) -> None:
    """Of a class that is one group no part can be held out."""
    of_class: dict[int, set[str]] = {}
    for klass, group in zip(images.labels_N[rows].tolist(), _groups(images, rows), strict=True):
        of_class.setdefault(klass, set()).add(group)
    if whole := [images.class_names[klass] for klass, groups in sorted(of_class.items()) if len(groups) == 1]:
        raise DataError(
            f"{images.source}: all images of class {', '.join(map(repr, whole[:5]))} are in one group, which stays whole: too "
            f"few groups to hold out {what}; add images of another group, or {otherwise}"
        )


def _subset(labels: Tensor, rows: Tensor, spec: DataSpec, images: ImageSet) -> Tensor:
    if not spec.per_class and spec.fraction in (None, 1.0):
        return rows
    kept = []
    draw = spec.split_seed if spec.subset_seed is None else spec.subset_seed
    for klass, places in shuffled_classes(labels[rows], draw, "subset").items():
        count = spec.per_class or max(1, round((spec.fraction or 1.0) * len(places)))
        if count > (has := len(places)):
            raise UsageError(
                f"--per-class {count}: class {images.class_names[klass]!r} has {several(has, 'image')} left for training"
            )
        kept.append(rows[places[:count]])
    return torch.cat(kept).sort().values


def _check_training(images: ImageSet, train: Tensor) -> None:
    missing = set(range(len(images.class_names))) - set(images.labels_N[train].unique().tolist())
    if missing:
        names = ", ".join(repr(images.class_names[klass]) for klass in sorted(missing)[:5])
        raise DataError(f"{images.source}: no training images for class {names}")
