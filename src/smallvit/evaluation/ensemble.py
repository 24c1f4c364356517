"""Several models that answer as one: the mean of their probabilities. N images, K classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from smallvit.errors import UsageError
from smallvit.evaluation.predictor import BATCH, Given, Predictor

SMALLEST = 1e-12  # a probability of 0 has no logarithm


class Ensemble:
    """Predictors of the same classes that take images of the same size: folds or seeds of one way to train."""

    def __init__(self, members: Sequence[Predictor]) -> None:
        if not members:
            raise UsageError("an ensemble needs at least one model")
        if len({(member.class_names, member.preparation.wanted) for member in members}) > 1:
            raise UsageError(
                "the models differ in their classes or in the images that they take: they cannot answer as one"
            )
        self.members = tuple(members)
        self.class_names = members[0].class_names
        self.preparation = members[0].preparation  # how files become squares; each member normalises as it was trained

    @property
    def temperatures(self) -> tuple[float, ...]:
        return tuple(temperature for member in self.members for temperature in member.temperatures)

    @property
    def calibrated(self) -> bool:
        return any(member.calibrated for member in self.members)

    def probabilities(
        self, images: Given, rows: Tensor | None = None, *, calibrated: bool | None = None, batch_size: int = BATCH
    ) -> Tensor:
        """(N, K): the mean over the members, each at its own temperature as `Predictor.probabilities` says.

        A member that has none answers as trained beside others that have one.
        """
        each = [
            member.probabilities(images, rows, calibrated=self._asked_of(member, calibrated), batch_size=batch_size)
            for member in self.members
        ]
        return torch.stack(each).mean(0)

    def _asked_of(self, member: Predictor, calibrated: bool | None) -> bool | None:
        return False if calibrated and self.temperatures and member.temperature is None else calibrated

    def logits(self, images: Given, rows: Tensor | None = None, *, batch_size: int = BATCH) -> Tensor:
        """(N, K), whose softmax are the probabilities."""
        return log_of(self.probabilities(images, rows, batch_size=batch_size))


def log_of(probabilities_NK: Tensor) -> Tensor:
    return probabilities_NK.clamp_min(SMALLEST).log()
