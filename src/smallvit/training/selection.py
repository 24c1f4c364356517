"""Which look at the validation part is kept where `select = best`.

The accuracy on a few validation images moves by chance, and among many looks the luckiest has the highest. So a look
counts as the mean of its own accuracy and those of the two looks before it, and the latest look is kept that is within one
standard error of the highest, given the number of images. Where they cannot tell two looks apart, the one that has
learned longer wins, and a model that has hardly learned cannot win by luck.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from smallvit.evaluation.metrics import Score

LOOKS = 3  # that are averaged


class Best(NamedTuple):
    """The look that is kept so far, and what the next one is compared with."""

    epoch: int = -1  # -1: nothing is kept
    accuracy: float = -1.0  # of that look, smoothed
    highest: float = -1.0  # smoothed accuracy of all looks
    recent: tuple[float, ...] = ()  # accuracies of the last looks, as they were

    def after(self, score: Score | None, epoch: int, images: int) -> Best:
        """With one more look at so many images. One that has no accuracy, or is of a broken model, changes nothing."""
        if score is None or score.accuracy is None or not score.is_finite:
            return self
        recent = (*self.recent, score.accuracy)[-LOOKS:]
        smooth = sum(recent) / len(recent)
        highest = max(self.highest, smooth)
        if smooth < highest - standard_error(highest, images):
            return self._replace(recent=recent)
        return Best(epoch, smooth, highest, recent)

    @classmethod
    def stored(cls, best: Mapping[str, Any] | Sequence[Any]) -> Best:
        """From the header of a state. Version 0.1 stored accuracy, loss and epoch of the best look."""
        if isinstance(best, Mapping):
            return cls(**{**best, "recent": tuple(best["recent"])})
        accuracy, _, epoch = best
        return cls(epoch, accuracy, accuracy, (accuracy,)) if epoch >= 0 else cls()


def standard_error(accuracy: float, images: int) -> float:
    """Of a share of right answers; a share of 0 or 1 is no certainty, so it is softened by an image on either side."""
    soft = (accuracy * images + 1) / (images + 2)
    return math.sqrt(soft * (1 - soft) / images)
