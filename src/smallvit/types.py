"""The types that pass between the parts. B images, C channels, H by W grid, D width."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Features(NamedTuple):
    """What a backbone returns: one vector per image, and the grids of its stages (the last stage last).

    Grids are as the stages leave them; `Backbone.normed` gives the last one as the model's final norm leaves it.
    """

    pooled_BD: Tensor
    grids: tuple[Tensor, ...]  # each B D H W


class View(NamedTuple):
    """A kind of crop that an objective asks for. Views of equal size share one forward pass."""

    copies: int
    size: int
    scale: tuple[float, float] | None = None  # None: the scale of the augmentation recipe
    of: int | None = None  # the side at which it is cut, before it is made smaller; None: it is cut at `size`


class Batch(NamedTuple):
    """One training batch: a tensor of `copies * B` images per view kind, view-major."""

    views: tuple[Tensor, ...]
    labels_B: Tensor
    index_B: Tensor  # row of each image in its ImageSet; self-supervised objectives use it as the instance


class Context(NamedTuple):
    """Where training stands, and the only sources of randomness an objective may draw from."""

    epoch: int
    step: int
    progress: float  # 0 at the first step, 1 at the last
    generator: torch.Generator
    epochs: int  # of the whole run, as it was planned
    key: int = 0  # of the epoch, for `randomness.uniform`: what each image draws by its row, whatever batch it is in


class Seen(NamedTuple):
    """What an objective really used: A images as they went through the backbone, and what came out of it.

    Of several crops of each image all A are here, crop by crop. An image keeps the share `share_A` of itself, the rest
    comes from row `partner_A`; both are None where nothing was mixed.
    """

    images_ACHW: Tensor
    labels_A: Tensor
    index_A: Tensor  # row of each image in its ImageSet
    features: Features
    partner_A: Tensor | None = None
    share_A: Tensor | None = None

    @classmethod
    def of(
        cls, batch: Batch, images_ACHW: Tensor, features: Features, partner_A: Tensor | None = None,
        share_A: Tensor | None = None,
    ) -> Seen:  # fmt: skip
        """Labels and rows come from the batch, repeated for every crop of an image."""
        crops = len(images_ACHW) // len(batch.labels_B)
        labels_A, index_A = (rows.repeat(crops) if crops > 1 else rows for rows in (batch.labels_B, batch.index_B))
        return cls(images_ACHW, labels_A, index_A, features, partner_A, share_A)


class Loss(NamedTuple):
    """`total` is what is minimised; `parts` are logged; `seen` is what auxiliary losses look at."""

    total: Tensor
    parts: dict[str, Tensor]
    seen: Seen


class World(NamedTuple):
    """The processes that train one model together, and which of them this is.

    Nothing random is keyed by the rank: what a sample draws depends on its place in the whole batch.
    """

    rank: int = 0
    size: int = 1

    @property
    def writes(self) -> bool:
        """One process writes the run folder; the others would write the same."""
        return self.rank == 0


ALONE = World()


class Neighbour(NamedTuple):
    """A training image that a model holds for like another image."""

    file: str  # what the data set calls it
    row: int  # in the data set
    label: str
    similarity: float  # cosine of their features: 1 is the same
    path: str | None = None  # where it can be opened, if it is a file of its own and still there


class Prediction(NamedTuple):
    """What a model says of one image."""

    file: str  # where it is no file: which of the images it is
    label: str | None  # None: the file could not be read
    probability: float | None  # of the label
    problem: str = ""
    probabilities: dict[str, float] | None = None  # of every class by its name
    rejected: bool = False  # the model is not sure enough to answer: the label is `unknown`
    nearest: tuple[Neighbour, ...] = ()  # training images, where they were asked for

    @property
    def likeliest(self) -> str | None:
        """The label that it has, or would have."""
        return self.top(1)[0][0] if self.rejected else self.label

    def top(self, count: int) -> list[tuple[str, float]]:
        """The likeliest classes and their probabilities, the label first."""
        of_class = (self.probabilities or {}).items()
        return sorted(of_class, key=lambda entry: (-entry[1], entry[0] != self.label))[:count]


class Embedding(NamedTuple):
    """The features of one image."""

    file: str  # where it is no file: which of the images it is
    vector: np.ndarray | None  # (D,); None: the file could not be read
    problem: str = ""
