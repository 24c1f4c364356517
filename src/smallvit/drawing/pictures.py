"""Arrays of small images to PNG data URIs, within a budget of bytes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGEST_SIDE = 128  # shown at about 110 px; more only makes the page heavy


class Picture(NamedTuple):
    uri: str
    width: int
    height: int
    about: dict[str, Any]  # the record that results.json keeps beside the image

    @property
    def small(self) -> bool:
        """Shown larger than it is: single pixels should stay visible."""
        return max(self.width, self.height) <= 64


class Gallery(NamedTuple):
    pictures: list[Picture]
    dropped: int  # images left out to keep the page small


def gallery(images_NCHW: NDArray[np.uint8], about: Sequence[dict[str, Any]], budget: int) -> Gallery:
    """The first images whose data URIs fit into `budget` bytes, with what is known of each."""
    pictures: list[Picture] = []
    pairs = list(zip(images_NCHW, about, strict=False))
    for image_CHW, record in pairs:
        picture = _picture(image_CHW, record)
        budget -= len(picture.uri)
        if budget < 0:
            break
        pictures.append(picture)
    return Gallery(pictures, dropped=len(pairs) - len(pictures))


def _picture(image_CHW: NDArray[np.uint8], record: dict[str, Any]) -> Picture:
    from PIL import Image

    pixels_HWC = np.moveaxis(image_CHW, 0, -1)
    if pixels_HWC.shape[-1] != 3:  # grey, or channels that are no colours: their mean
        pixels_HWC = pixels_HWC.mean(-1).round().astype(np.uint8)
    image = Image.fromarray(pixels_HWC)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Picture(f"data:image/png;base64,{encoded}", image.width, image.height, record)
