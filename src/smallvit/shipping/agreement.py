"""Is what was written still the same model? Both answer for real images, one by one and seven at a time.

N images, C channels, S side, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smallvit.data.images import Unreadable, many_reads
from smallvit.data.preparation import Preparation
from smallvit.data.sources import image_files
from smallvit.errors import DataError, RunError
from smallvit.evaluation.ensemble import Ensemble
from smallvit.evaluation.predictor import Predictor
from smallvit.planning.plan import read_plan
from smallvit.runs.folder import RunFolder
from smallvit.shipping.formats import Ask

TOLERANCE = 1e-4  # of a probability
MOST_IMAGES = 200
BATCHES = (1, 7)
# No image of the first two was trained on; of several runs, the first says which images they are.
PARTS = {"test": "test images", "left_out": "left-out images", "val": "validation images", "train": "training images"}


class Squares(NamedTuple):
    """Real images as the answer takes them, and what they are in words."""

    pixels_NCSS: Tensor
    words: str


class Agreement(NamedTuple):
    difference: float  # the largest of any probability
    images: int
    words: str  # what the images are

    @property
    def sentence(self) -> str:
        sizes = " and ".join(map(str, BATCHES))
        return (
            f"on {self.images:,} {self.words}, in batches of {sizes}, no probability differs from the run's by more than "
            f"{self.difference:.1e}"
        )


def own_squares(run: RunFolder) -> Squares:
    """Of the run's test part, or of what else it has; evenly spread over it, so that all classes come."""
    try:
        plan = read_plan(run)
    except RunError as error:
        raise RunError(f"{error}; to compare the export on other images give --images FOLDER") from None
    part = next(name for name in PARTS if len(plan.split.parts.get(name, ())))
    rows = plan.split.parts[part]
    return Squares(plan.images.images_NCSS[rows[torch.tensor(_spread(len(rows)))]], PARTS[part])


def squares_of(path: Path, preparation: Preparation) -> Squares:
    """Of image files below a folder, or of one; those that cannot be read are left out."""
    files = image_files(path) if path.is_dir() else [path]
    squares = []
    with many_reads():
        for file in [files[place] for place in _spread(len(files))]:
            try:
                squares.append(preparation.square(file))
            except Unreadable as error:
                problem = f"{file}: {error}"
    if not squares:
        raise DataError(problem if files else f"no images below {path}")
    return Squares(torch.stack(squares), f"images of {path.name}")


def _spread(count: int) -> list[int]:
    """As many places as are wanted, evenly over all."""
    return [round(place) for place in np.linspace(0, count - 1, min(count, MOST_IMAGES)).tolist()]


def compare(predictor: Predictor | Ensemble, ask: Ask, squares: Squares, advance: Callable[..., None]) -> Agreement:
    """`advance` is told of every image that was answered."""
    expected_NK = predictor.probabilities(squares.pixels_NCSS).numpy()
    differences = []
    for size in BATCHES:
        for place, some in enumerate(squares.pixels_NCSS.split(size)):
            found_NK = ask(some.numpy())
            differences.append(np.abs(found_NK - expected_NK[place * size : place * size + len(some)]).max())
            advance(len(some), note=f"comparing, batches of {size}")
    return Agreement(float(np.max(differences)), len(squares.pixels_NCSS), squares.words)


def refuse_other(agreement: Agreement, format: str) -> None:
    if not agreement.difference <= TOLERANCE:  # not a number is refused, too
        raise RunError(
            f"the export as {format} is not the same model: on {agreement.images:,} {agreement.words} its probabilities differ "
            f"from the run's by up to {agreement.difference:.1e}, more than {TOLERANCE:g}. Nothing was written; another format may do"
        )
