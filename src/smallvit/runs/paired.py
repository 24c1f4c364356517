"""What two runs said of the same images, from their folders alone. N images, K classes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvit.errors import UsageError
from smallvit.evaluation.measures import Measured, measures
from smallvit.runs.folder import RunFolder
from smallvit.runs.stored_answers import read_answers

SAME_IMAGES = "train both on the same data with the same --test, --val and --folds"


class Said(NamedTuple):
    """What one run said, by rows of the image set."""

    rows_N: NDArray[np.int64]
    labels_N: NDArray[np.int64]
    probabilities_NK: NDArray[np.float32]


class Pair(NamedTuple):
    labels_N: NDArray[np.int64]
    first_NK: NDArray[np.float32]
    second_NK: NDArray[np.float32]

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
    sources = [Path(run.recipe.data.source).name for run in (first, second)]
    if sources[0] != sources[1]:
        raise UsageError(
            f"{first.path} and {second.path} were judged on other images: {' and '.join(sources)}; {SAME_IMAGES}"
        )
    shared = np.intersect1d(said.rows_N, other.rows_N)
    if len(shared) < max(len(said.rows_N), len(other.rows_N)):
        raise UsageError(
            f"{first.path} and {second.path} were judged on other images: they share {len(shared):,} of "
            f"{len(said.rows_N):,} and {len(other.rows_N):,}; {SAME_IMAGES}"
        )
    if (said.labels_N != other.labels_N).any():
        raise UsageError(f"{first.path} and {second.path} give the same images other classes")
    return Pair(said.labels_N, said.probabilities_NK, other.probabilities_NK)


def read_said(run: RunFolder) -> Said:
    """In the order of the rows."""
    _, rows_N, labels_N, probabilities_NK = read_answers(run.path)
    order = np.argsort(rows_N, kind="stable")
    return Said(rows_N[order], labels_N[order], probabilities_NK[order])
