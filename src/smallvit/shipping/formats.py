"""What a format is given, and what it gives back to be tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from smallvit.evaluation.ensemble import Ensemble
from smallvit.evaluation.predictor import Predictor

# uint8 squares (N, C, S, S) to probabilities (N, K), computed by what was written.
Ask = Callable[[np.ndarray], np.ndarray]


class Shipment(NamedTuple):
    """A trained model, or several that answer as one, and how timm builds it."""

    predictor: Predictor | Ensemble
    architecture: str
    arguments: dict[str, Any]
