"""Street View House Numbers, the cropped digits, from MATLAB files."""

from __future__ import annotations

from pathlib import Path

from smallvit.data.listed import Arrays
from smallvit.data.named.declared import Layout, Remote, named
from smallvit.errors import DataError

HOME = "http://ufldl.stanford.edu/housenumbers"
DIGESTS = {
    "train": (182.0, "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
    "test": (64.3, "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
}
FILES = tuple(f"{part}_32x32.mat" for part in DIGESTS)


@named(
    "svhn",
    images={"train": 73_257, "test": 26_032},
    classes=10,
    layouts=(Layout("svhn", FILES), Layout("", FILES)),
    remotes=tuple(
        Remote(f"{HOME}/{part}_32x32.mat", digest, megabytes, f"svhn/{part}_32x32.mat", "svhn")
        for part, (megabytes, digest) in DIGESTS.items()
    ),
    size="250 MB",
)
def svhn(root: Path) -> Arrays:
    """SVHN (Netzer et al. 2011): digits of house numbers, 32 px; without the extra images."""
    import numpy as np

    from smallvit.data.named.reading import mat_of

    images, labels, parts, start = [], [], {}, 0
    for part in DIGESTS:
        path = root / f"{part}_32x32.mat"
        pixels_HWCN, label_N = mat_of(path, "X", "y")
        label_N = np.atleast_1d(label_N)
        if pixels_HWCN.dtype != np.uint8 or pixels_HWCN.shape != (32, 32, 3, len(label_N)):
            raise DataError(f"{path}: X is {pixels_HWCN.dtype} {pixels_HWCN.shape} for {len(label_N)} labels")
        if label_N.min() < 1 or label_N.max() > 10:
            raise DataError(f"{path}: labels from {label_N.min()} to {label_N.max()}; they should be 1 to 10")
        images.append(np.ascontiguousarray(pixels_HWCN.transpose(3, 0, 1, 2)))
        labels.append(label_N.astype(np.int64) % 10)  # they call the zero 10
        parts[part] = np.arange(start, start := start + len(label_N))
    return Arrays(np.concatenate(images), np.concatenate(labels), tuple("0123456789"), parts, mirrors=False)
