"""Where a run stands within its group: which arm it is, and which replicate of that arm.

An arm is a way to train. A replicate (seed, fold, another draw of the training images) is the same way once more. Replicates are summed up by their
mean, and arms are compared replicate by replicate. A stage is what an arm does before the run that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from smallvit.errors import RunError

REPLICATES = ("seed", "fold", "draw")
OfRun = TypeVar("OfRun")


class Place(NamedTuple):
    """A value on each axis that the group has; None on the others."""

    arm: str | None = None
    seed: int | None = None
    fold: int | None = None
    stage: str | None = None
    draw: int | None = None  # of the training images, where several are tried

    @property
    def axes(self) -> dict[str, str | int]:
        return {axis: value for axis, value in self._asdict().items() if value is not None}

    @property
    def replicate(self) -> Place:
        """The same place without arm and stage: what is paired when two arms are compared."""
        return Place(seed=self.seed, fold=self.fold, draw=self.draw)

    @property
    def method(self) -> Place:
        """The same place without seed, fold and draw: what replicates have in common."""
        return Place(arm=self.arm, stage=self.stage)

    @property
    def folder(self) -> str:
        """What the run's folder is called: seed-0, vit_nano, vit_nano-seed-0, vit_nano-seed-0-first."""
        return "-".join(_of_axis(axis, value, "-") for axis, value in self.axes.items())

    @property
    def words(self) -> str:
        return ", ".join(_of_axis(axis, value, " ") for axis, value in self.axes.items())


def _of_axis(axis: str, value: str | int, between: str) -> str:
    return f"{axis}{between}{value}" if axis in REPLICATES else str(value)


def place_from(axes: object, origin: str) -> Place:
    """The place that a group's file gives; `origin` is where it stands, for the error."""
    if not isinstance(axes, Mapping) or not axes:
        raise RunError(f"{origin}: {axes!r} is no place on the axes of a group")
    for axis, value in axes.items():
        if axis not in Place._fields:
            raise RunError(f"{origin}: {axis!r} is no axis of a group: {', '.join(Place._fields)}")
        if type(value) is not (int if axis in REPLICATES else str):
            raise RunError(f"{origin}: {value!r} is no {axis}")
    return Place(**axes)


def place_named(folder: str) -> Place | None:
    """The replicate that a folder's name alone tells: of seed-3 the seed 3."""
    match = re.fullmatch(r"(?:seed-(\d+))?-?(?:fold-(\d+))?", folder)
    if match is None:
        return None
    seed, fold = (None if digits is None else int(digits) for digits in match.groups())
    place = Place(seed=seed, fold=fold)
    return place if place.axes and place.folder == folder else None


def once_for_its_images(values: Mapping[Place, OfRun]) -> tuple[list[list[OfRun]], str]:
    """What an interval may count, and its word: runs on one fold, or one draw of the training images, are together.

    They share the images that train and those that judge, so they are not independent. Where all have the same images, each
    run counts for itself.
    """
    by_images: dict[Place, list[OfRun]] = {}
    for place, value in values.items():
        by_images.setdefault(Place(fold=place.fold, draw=place.draw), []).append(value)
    if len(by_images) < 2:
        return [[value] for value in values.values()], "seed"
    return list(by_images.values()), replicate_word(by_images)


def means_over_images(values: Mapping[Place, float]) -> tuple[list[float], str]:
    """The value of each run; or, where there are several folds or draws, the mean of each."""
    together, word = once_for_its_images(values)
    return [sum(own) / len(own) for own in together], word


# ---- in words ----------------------------------------------------------------------------------------


def replicate_word(places: Iterable[Place]) -> str:
    """What a mean is over: seed, fold, or run where both differ."""
    used = {axis for place in places for axis in place.replicate.axes}
    return used.pop() if len(used) == 1 else "run"


def listed(places: Sequence[Place]) -> str:
    """seed 4; seeds 0, 1, 2; or, with both axes, seed 0 fold 1, seed 0 fold 2."""
    word = replicate_word(places)
    if word == "run":
        return ", ".join(place.words.replace(",", "") for place in in_order(places))
    numbers = [str(place._asdict()[word]) for place in in_order(places)]
    return f"{word}{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def in_order(places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda place: [(value is not None, value) for value in place])
