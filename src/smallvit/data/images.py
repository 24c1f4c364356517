"""Reading one image file, within bounds, and fitting it to a square. C channels, S side."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

Fit = Literal["crop", "squash", "pad"]
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"])
WIDE_MODES = frozenset({"I", "I;16", "I;16B", "I;16L"})  # 16 bits a pixel; TIFF may hold 32 in "I"
GREY_MODES = frozenset({"1", "L", "LA", "F", *WIDE_MODES})


class Unreadable(Exception):
    """The file is not an image that we accept; the message says why, without the path."""


@contextmanager
def many_reads() -> Iterator[None]:
    """Around reading many files: Pillow warns of large images, which `open_image` refuses anyway.

    Outside of the threads that read: Python's list of warning filters is not theirs to change.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def open_image(path: Path) -> Image.Image:
    """The opened, not yet decoded image. Pillow's limit on pixel counts stays on, as an error."""
    most = Image.MAX_IMAGE_PIXELS or 1 << 30
    try:
        if path.stat().st_size == 0:
            raise Unreadable("the file is empty")
        image = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise Unreadable(f"not a readable image (formats: {', '.join(FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable(f"more than {most:,} pixels") from None
    except Unreadable:
        raise
    except Exception as error:  # Pillow's readers raise nearly anything on a damaged header
        raise Unreadable(_reason(error)) from None
    if image.width * image.height > most:  # up to twice the limit Pillow only warns
        image.close()
        raise Unreadable(f"more than {most:,} pixels")
    return image


def _reason(error: Exception) -> str:
    """What went wrong, without the path that an OSError repeats."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def read_header(path: Path) -> tuple[int, bool]:
    """Shorter side and whether the file is grey, without decoding it."""
    with open_image(path) as image:
        return min(image.size), image.mode in GREY_MODES


def read_image(path: Path, size: int, fit: Fit, channels: int) -> Tensor:
    """uint8 (C, S, S). Any damage found while decoding is `Unreadable`."""
    try:
        with open_image(path) as image:
            # JPEG can decode at a half, a quarter, an eighth: still at least twice the size we need.
            image.draft(None, (2 * size, 2 * size))
            return fit_square(_to_tensor(ImageOps.exif_transpose(image), channels), size, fit)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"damaged: {_reason(error)}") from None


def _to_tensor(image: Image.Image, channels: int) -> Tensor:
    if image.mode in WIDE_MODES:
        wide = np.asarray(image).astype(np.int64)
        if wide.min() < 0 or wide.max() > 0xFFFF:
            raise Unreadable("its pixels need more than 16 bits; save it with 8 or 16")
        # Pillow's own conversion clips 16 bits at 255; keep the upper byte instead.
        return torch.from_numpy((wide >> 8).astype(np.uint8))[None].repeat(channels, 1, 1)
    if image.mode == "F":
        raise Unreadable("its pixels are fractions, and nothing says what is white; save it with 8 or 16 bits")
    if image.has_transparency_data:
        # The colours below transparent pixels are leftovers, often black below black drawings: show paper instead.
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    array = np.array(image.convert("L" if channels == 1 else "RGB"))
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1)


def fit_square(image_CHW: Tensor, size: int, fit: Fit) -> Tensor:
    """Crop the middle, squash, or pad with black; resized with antialiasing. uint8 in, uint8 out."""
    _, height, width = image_CHW.shape
    if fit == "crop":
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        return _resize(image_CHW[:, top : top + side, left : left + side], size, size)
    if fit == "squash":
        return _resize(image_CHW, size, size)
    # Resized before it is padded: a long strip padded to a square first would not fit in memory.
    side = max(height, width)
    rows, columns = max(1, round(height * size / side)), max(1, round(width * size / side))
    top, left = (size - rows) // 2, (size - columns) // 2
    return F.pad(_resize(image_CHW, rows, columns), (left, size - columns - left, top, size - rows - top))


def _resize(image_CHW: Tensor, height: int, width: int) -> Tensor:
    if image_CHW.shape[1:] == (height, width):
        return image_CHW.contiguous()
    return F.interpolate(image_CHW[None], (height, width), mode="bilinear", antialias=True)[0].contiguous()
