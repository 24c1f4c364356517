"""Images of one part that are, pixel for pixel, in another: found by a line of each, and told by a digest of the whole."""

from __future__ import annotations

import hashlib

from torch import Tensor

from smallvit.data.imageset import Images


def twins(images_NCSS: Images, rows: Tensor, others: Tensor) -> dict[int, int]:
    """Row -> the first of the others with the same pixels. An image of a single colour is a copy of nothing.

    Where images are decoded when asked for, none is found: that would read all files once more.
    """
    if not isinstance(images_NCSS, Tensor):
        return {}
    lines, other_lines = _middle_lines(images_NCSS, rows), _middle_lines(images_NCSS, others)
    shared = {*lines.values()} & {*other_lines.values()}
    first: dict[bytes, int] = {}
    for row, line in other_lines.items():
        if line in shared and (digest := _digest(images_NCSS[row])):
            first.setdefault(digest, row)
    digests = {row: _digest(images_NCSS[row]) for row, line in lines.items() if line in shared}
    return {row: first[digest] for row, digest in digests.items() if digest in first}


def _middle_lines(images_NCSS: Tensor, rows: Tensor) -> dict[int, bytes]:
    """Of a mapped file hardly more than these are read."""
    lines_NCS = images_NCSS[:, :, images_NCSS.shape[-2] // 2][rows].contiguous().numpy()
    return dict(zip(rows.tolist(), map(bytes, lines_NCS), strict=True))


def _digest(image_CSS: Tensor) -> bytes:
    """Empty for a single colour."""
    if bool((image_CSS == image_CSS[:, :1, :1]).all()):
        return b""
    return hashlib.blake2b(image_CSS.numpy().tobytes(), digest_size=16).digest()
