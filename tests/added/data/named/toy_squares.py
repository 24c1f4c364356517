"""Toy squares: dark and bright ones, made on the spot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smallvit.data.listed import Arrays
from smallvit.data.named.declared import named


@named("toy-squares", images={"train": 16, "test": 8}, classes=2)
def toy_squares(_root: Path) -> Arrays:
    """Squares that are dark or bright."""
    labels = np.arange(24) % 2
    images = np.broadcast_to(labels[:, None, None, None] * 200, (24, 8, 8, 1)).astype(np.uint8)
    return Arrays(images, labels, ("dark", "bright"), {"train": np.arange(16), "test": np.arange(16, 24)})
