"""ImageSet: images of one size with labels, and where each came from. N images, C channels, S side."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from smallvit.console import bar

DIGITS = {
    word: str(digit)
    for digit, word in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
}
SIDES = {"left": "right", "right": "left", "clockwise": "counterclockwise", "counterclockwise": "clockwise"}
SIDED = re.compile(rf"(?<![^\W_])({'|'.join(SIDES)})(?![^\W_])", re.IGNORECASE)  # as a word of a name: turn_left
MOST_VALUES = 2**24  # of images that become floating point beside each other: 128 MB in double precision


class Images(Protocol):
    """uint8 images by row: a tensor in memory or on disk, or files that are decoded when asked for."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor, /) -> Tensor: ...

    def numel(self) -> int: ...


def mirrored_pair(class_names: Iterable[str]) -> tuple[str, str] | None:
    """Two classes of which a mirror makes one of the other, by their names: turn_left and turn_right."""
    names = set(class_names)
    for name in sorted(names):
        if (other := SIDED.sub(_other_side, name)) != name and other in names:
            return name, other
    return None


def _other_side(word: re.Match[str]) -> str:
    one = word[0]
    other = SIDES[one.lower()]
    return other.upper() if one.isupper() else other.capitalize() if one[0].isupper() else other


def may_mirror(class_names: Iterable[str]) -> bool:
    """Whether a mirrored image keeps its class: not where all classes are single digits or letters, or two are left and right.

    Fewer than ten that count from 0 on, or fewer than nine from 1 on, are numbers for something else: 0 and 1 for no and yes, 1 to 5
    for grades.
    """
    if mirrored_pair(class_names := tuple(class_names)):
        return False
    names = {_sign(name) for name in class_names}
    counted = any(
        len(names) < 10 - first and names == {str(number + first) for number in range(len(names))} for first in (0, 1)
    )
    return counted or not all(len(name) == 1 and name.isalnum() for name in names)


def _sign(name: str) -> str:
    """07, seven and `7 - seven`, as torchvision calls it in MNIST, are 7."""
    head = name.split(" - ")[0].strip()
    head = DIGITS.get(head.lower(), head)
    return head.lstrip("0") or "0" if head.isdecimal() else name


class Skipped(NamedTuple):
    file: str
    why: str


@dataclass(frozen=True)
class ImageSet:
    images_NCSS: Images  # memory-mapped when it comes from the cache, streamed when it is too large for it
    labels_N: Tensor  # int64
    class_names: tuple[str, ...]
    parts: dict[str, Tensor]  # rows of train, val, test where the source has them; else empty
    files: tuple[str, ...]  # what to call each image
    source: str
    fingerprint: str
    skipped: tuple[Skipped, ...] = field(default=())
    groups: tuple[str, ...] = field(default=())  # of each image; no part may tear one apart. Empty: there are none

    def __len__(self) -> int:
        return len(self.labels_N)


class PixelDigest:
    """Of images that come one after the other; the same for the same pixels, however they are stored."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, images: np.ndarray) -> None:
        self._digest.update(np.ascontiguousarray(images).data)

    def close(self, shape: tuple[int, ...]) -> str:
        self._digest.update(repr(tuple(map(int, shape))).encode())
        return self._digest.hexdigest()


def pixel_digest(images: np.ndarray) -> str:
    digest = PixelDigest()
    for start in range(0, len(images), 4096):
        digest.add(images[start : start + 4096])
    return digest.close(images.shape)


def fingerprint(pixels: str, labels: np.ndarray) -> str:
    """Of pixels and labels together: two sets with the same one train the same model."""
    return hashlib.sha256(pixels.encode() + labels.astype(np.int64).tobytes()).hexdigest()[:32]


def at_once(images_NCSS: Images) -> int:
    """How many images may become floating point beside each other: as many as are small, and few of large ones."""
    return max(1, min(1024, MOST_VALUES // math.prod(images_NCSS.shape[1:])))


def channel_statistics(images_NCSS: Images, rows: Tensor, most: int = 20_000) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel in 0..1, over at most `most` evenly spaced rows."""
    rows = rows[:: max(1, len(rows) // most)]
    total = torch.zeros(images_NCSS.shape[1], dtype=torch.float64)
    squares, count = torch.zeros_like(total), 0
    with bar("measuring the channels", len(rows)) as advance:
        for chunk in rows.split(at_once(images_NCSS)):
            pixels = images_NCSS[chunk].to(torch.float64) / 255
            total += pixels.sum((0, 2, 3))
            squares += pixels.square().sum((0, 2, 3))
            count += pixels[:, 0].numel()
            advance(len(chunk))
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt()
    # A constant channel would divide by zero; it carries nothing, so any scale does.
    std = torch.where(std < 1e-3, torch.ones_like(std), std)
    return [round(float(m), 6) for m in mean], [round(float(s), 6) for s in std]
