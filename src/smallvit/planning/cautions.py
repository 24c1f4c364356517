"""What should be said before the start, because it will spoil the result: too little of something, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from smallvit.console import are, several
from smallvit.data.imageset import ImageSet
from smallvit.data.split import PART_ADJECTIVES, Split, possible_folds
from smallvit.data.twins import twins
from smallvit.objectives.base import objectives
from smallvit.planning.stages import stages_of
from smallvit.recipe import Recipe, resolved
from smallvit.training.selection import LOOKS, standard_error

FEW_EPOCHS = 10
FEW_TEST_IMAGES = 50
FEW_TEST_GROUPS = 10
COPIES = 0.005  # of the images that judge: fewer move an accuracy by less than it is known to
FEW_TO_SELECT = 200  # their accuracy is known to within three points or so
IDLE_SHARE = 0.1  # of what trains: a validation part of fewer images would add little to it
FEW_TRAINING_IMAGES = 1000  # below, none can be spared, and folds cost minutes


def cautions(recipe: Recipe, images: ImageSet, split: Split) -> Iterator[str]:
    """One sentence for each."""
    if (epochs := resolved(recipe.epochs)) < FEW_EPOCHS and recipe.budget:
        yield (
            f"the budget is enough for {several(epochs, 'epoch')}, and under {FEW_EPOCHS} little is learned: give more time, a smaller "
            "--img-size or fewer images"
        )
    if (warmup := recipe.schedule.warmup_epochs) != "auto" and warmup >= epochs:
        yield (
            f"schedule.warmup_epochs = {warmup:g} is the whole run of {several(epochs, 'epoch')}: the learning rate rises to the end and "
            "never falls; train longer, or --set schedule.warmup_epochs=auto"
        )
    if len(images.class_names) == 1:
        return
    if recipe.select == "best" and len(split.val) < FEW_TO_SELECT:
        yield (
            f"select = best looks at {several(len(split.val), 'validation image')}, and under {FEW_TO_SELECT} is too few to choose by: of weights "
            f"whose accuracies (means of {LOOKS} looks) are within chance, here about {100 * standard_error(0.5, len(split.val)):.0f} "
            "points, the latest are kept; hold out more (--val 0.3), or --set select=last"
        )
    if _may_train_on_val(recipe, split):
        yield (
            f"the {several(len(split.val), 'validation image')} do not train, and select nothing: `smallvit train --train-on train+val` trains on "
            f"them, too, which is {100 * len(split.val) / len(split.train):.0f}% more, and the test part judges as before"
        )
    counts_K = torch.bincount(images.labels_N[split.train], minlength=len(images.class_names))
    if lonely := [images.class_names[klass] for klass in (counts_K == 1).nonzero()[:, 0].tolist()]:
        more = f" and {len(lonely) - 3} more" if len(lonely) > 3 else ""
        yield (
            f"{', '.join(lonely[:3])}{more}: one training image; a class is learned from several: add images, or leave the "
            "class out"
        )
    if torn := torn_groups(images, split):
        yield "; ".join(torn)
    yield from _copies(images, split)
    folds = possible_folds(images, split) if _may_fold(recipe) else 0
    if len(split.train) < FEW_TRAINING_IMAGES and folds:
        yield (
            f"{several(len(split.train), 'training image')}: under {FEW_TRAINING_IMAGES:,} or so, `smallvit train --folds {folds}` judges all of them, "
            "each by a model that has not seen it and was trained on the other folds, and finds labels that are probably wrong"
        )
    yield from _few_that_judge(images, split, folds)


def _few_that_judge(images: ImageSet, split: Split, folds: int) -> Iterator[str]:
    if images.groups and 0 < (judging := len(_groups_of(images, split.test))) < FEW_TEST_GROUPS:
        yield (
            f"the {several(len(split.test), 'test image')} are of {several(judging, 'group')}, and images of one group are right or wrong "
            "together: the accuracy will be known as badly as by so few cases; hold out more (--test 0.3)"
            + (f", or `smallvit train --folds {folds}`, by which every group judges once" if folds else "")
        )
    elif 0 < len(split.test) < FEW_TEST_IMAGES:
        yield (
            f"{several(len(split.test), 'test image')}: the accuracy will be known to within about "
            f"{100 / len(split.test) ** 0.5:.0f} points; hold out more (--test 0.3), or train several seeds"
        )


def _may_train_on_val(recipe: Recipe, split: Split) -> bool:
    """The source has it as a part, beside one that judges, and it is large enough to be missed."""
    own = recipe.data.val == "val" and recipe.select != "best" and len(split.test) > 0 and _classifies(recipe)
    whole = not (recipe.data.folds or recipe.data.per_class or recipe.data.fraction)
    return own and whole and len(split.val) >= IDLE_SHARE * len(split.train)


def _may_fold(recipe: Recipe) -> bool:
    """It does not yet, all images that there are train (who takes some of many has a reason), and nothing is trained before it."""
    data = recipe.data
    simple = not (data.folds or data.per_class or data.fraction or recipe.continued.file or stages_of(recipe))
    return simple and _classifies(recipe)


def _classifies(recipe: Recipe) -> bool:
    return objectives()[recipe.objective.name].classifies


def _groups_of(images: ImageSet, rows: Tensor) -> set[str]:
    return {images.groups[row] for row in rows.tolist()}


def torn_groups(images: ImageSet, split: Split) -> tuple[str, str] | None:
    """What is the matter, and what to do: what we hold out never tears a group apart, the parts that a source comes with may."""
    if not images.groups:
        return None
    trained = _groups_of(images, split.train)
    for part, rows in split.judged.items():
        if torn := _groups_of(images, rows) & trained:
            return (
                f"{len(torn):,} of the groups in the {part} part have training images, too, as {min(torn)}: the accuracy will be too good",
                "put each into one part, or leave the division to smallvit",
            )
    return None


def _copies(images: ImageSet, split: Split) -> Iterator[str]:
    """Of the part that counts, images that were learnt by heart; `check` finds those that are nearly the same, too."""
    part, rows = next(iter(split.judged.items()), ("", split.test))
    found = twins(images.images_NCSS, rows, split.train)
    if found and len(found) >= COPIES * len(rows):
        (row, twin), *_ = found.items()
        yield (
            f"{are(len(found), f'{PART_ADJECTIVES[part]} image', len(rows))} also among those that train, pixel for pixel, as "
            f"{images.files[row]} and {images.files[twin]}: the accuracy will be too good; `smallvit check` lists them all"
        )
