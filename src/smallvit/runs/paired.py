"""What two runs said of the same images, from their folders alone. N images, K classes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvit.errors import UsageError
from smallvit.evaluation.measures import Measured, measures
from smallvit.report.collect import read_images
from smallvit.runs.folder import RunFolder
from smallvit.runs.stored_answers import read_answers

SAME_IMAGES = "train both on the same data with the same --test, --val and --folds"
# A picture differs from itself, saved with losses, by less than this share of how two pictures differ.
SAVED_ANEW = 0.25
NONE = np.zeros((0, 0, 0, 0), np.uint8)


class Said(NamedTuple):
    """What one run said, by rows of the image set."""

    rows_N: NDArray[np.int64]
    labels_N: NDArray[np.int64]
    probabilities_NK: NDArray[np.float32]
    groups_N: NDArray[np.int64] | None


class Pair(NamedTuple):
    labels_N: NDArray[np.int64]
    first_NK: NDArray[np.float32]
    second_NK: NDArray[np.float32]
    groups_N: NDArray[np.int64] | None  # that the images come in, where one of the runs says it

    @property
    def right(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(N,) of each run: which images it labels correctly."""
        return self.first_NK.argmax(1) == self.labels_N, self.second_NK.argmax(1) == self.labels_N

    @property
    def measured(self) -> dict[str, tuple[Measured, Measured]]:
        """What counts every class the same, of each run."""
        first, second = (measures(said_NK, self.labels_N) for said_NK in (self.first_NK, self.second_NK))
        return {name: (first[name], second[name]) for name in first}


def same_images(first: RunFolder, second: RunFolder) -> Pair:
    """What both said of the images that both were judged on; an error where these are not the same."""
    said, other = read_said(first), read_said(second)
    judges = [run.results.get("judged_by", "classifier") for run in (first, second)]
    if judges[0] != judges[1]:
        raise UsageError(
            f"{first.path} was judged by its {judges[0]} and {second.path} by its {judges[1]}: train from the pretrained "
            "one with --init and compare that, or compare both by `smallvit probe`"
        )
    if others := _other_sets(first, second):
        raise UsageError(f"{first.path} and {second.path} were judged on other images: {others}; {SAME_IMAGES}")
    shared = np.intersect1d(said.rows_N, other.rows_N)
    if len(shared) < max(len(said.rows_N), len(other.rows_N)):
        raise UsageError(
            f"{first.path} and {second.path} were judged on other images: they share {len(shared):,} of "
            f"{len(said.rows_N):,} and {len(other.rows_N):,}; {SAME_IMAGES}"
        )
    if (said.labels_N != other.labels_N).any():
        raise UsageError(f"{first.path} and {second.path} give the same images other classes")
    groups_N = said.groups_N if said.groups_N is not None else other.groups_N
    if groups_N is not None and len(np.unique(groups_N)) == len(groups_N):
        groups_N = None  # each image is one of its own
    return Pair(said.labels_N, said.probabilities_NK, other.probabilities_NK, groups_N)


def _other_sets(first: RunFolder, second: RunFolder) -> str:
    """What shows that two runs have other image sets, in words; empty where nothing does.

    The fingerprint tells where both took their images alike: the same pixels and labels, wherever they lie; files that were
    saved anew with losses have another, and look the same. Else it is the name of the set, its classes and how many images
    each has; a path says nothing, for sets are moved and copied.
    """
    one, other = first.recipe.data, second.recipe.data
    taken = [(data.cache_size, data.fit, data.in_chans, data.white) for data in (one, other)]
    if one.fingerprint and other.fingerprint and taken[0] == taken[1]:
        if one.fingerprint == other.fingerprint or _look_alike(first, second):
            return ""
        digests = " and ".join(data.fingerprint[:8] for data in (one, other))
        return f"{one.source} and {other.source} hold other pixels (fingerprints {digests})"
    names = [Path(data.source).name for data in (one, other)]
    if names[0] != names[1]:
        return " and ".join(names)
    splits = [run.read("split.json") if (run.path / "split.json").is_file() else {} for run in (first, second)]
    for key, words in (("class_names", "other classes"), ("counts", "other numbers of images in their classes")):
        if all(key in split for split in splits) and splits[0][key] != splits[1][key]:
            return f"{one.source} and {other.source} have {words}"
    return ""


def _look_alike(first: RunFolder, second: RunFolder) -> bool:
    """Whether the pictures that both stored of the same training rows are nearly the same, measured by how other ones differ."""
    if not all((run.path / "split.json").is_file() for run in (first, second)):
        return False
    splits = [run.read("split.json", "class_names", "parts") for run in (first, second)]
    trained = [(split["class_names"], split["parts"]["train"]["rows"]) for split in splits]
    own_NCSS, other_NCSS = (read_images(run.path).get("examples", NONE).astype(np.float32) for run in (first, second))
    if trained[0] != trained[1] or own_NCSS.shape != other_NCSS.shape or len(own_NCSS) < 2:
        return False
    between = np.abs(own_NCSS - np.roll(other_NCSS, 1, axis=0)).mean()
    return bool(np.abs(own_NCSS - other_NCSS).mean() < SAVED_ANEW * between)


def read_said(run: RunFolder) -> Said:
    """In the order of the rows."""
    _, rows_N, labels_N, probabilities_NK, groups_N = read_answers(run.path)
    order = np.argsort(rows_N, kind="stable")
    return Said(rows_N[order], labels_N[order], probabilities_NK[order], None if groups_N is None else groups_N[order])
