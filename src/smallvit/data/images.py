"""Reading one image file, within bounds, and fitting it to a square. C channels, S side."""

from __future__ import annotations

import warnings
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
GREY_MODES = frozenset({"1", "L", "I", "F", "I;16", "I;16B", "I;16L"})


class Unreadable(Exception):
    """The file is not an image that we accept; the message says why, without the path."""


def open_image(path: Path) -> Image.Image:
    """The opened, not yet decoded image. Pillow's limit on pixel counts stays on, as an error."""
    try:
        if path.stat().st_size == 0:
            raise Unreadable("the file is empty")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise Unreadable(f"not a readable image (formats: {', '.join(FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable(f"more than {Image.MAX_IMAGE_PIXELS:,} pixels") from None
    except Unreadable:
        raise
    except Exception as error:  # Pillow's readers raise nearly anything on a damaged header
        raise Unreadable(str(error) or type(error).__name__) from None


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
        raise Unreadable(f"damaged: {error}") from None


def _to_tensor(image: Image.Image, channels: int) -> Tensor:
    if image.mode in {"I", "I;16", "I;16B", "I;16L"}:
        # Pillow's own conversion clips 16 bits at 255; keep the upper byte instead.
        grey = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        return torch.from_numpy(grey)[None].repeat(channels, 1, 1)
    array = np.array(image.convert("L" if channels == 1 else "RGB"))
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1)


def fit_square(image_CHW: Tensor, size: int, fit: Fit) -> Tensor:
    """Crop the middle, squash, or pad with black; then resize with antialiasing. uint8 in, uint8 out."""
    _, height, width = image_CHW.shape
    if fit == "crop":
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        image_CHW = image_CHW[:, top : top + side, left : left + side]
    elif fit == "pad":
        side = max(height, width)
        top, left = (side - height) // 2, (side - width) // 2
        image_CHW = F.pad(image_CHW, (left, side - width - left, top, side - height - top))
    if image_CHW.shape[1:] == (size, size):
        return image_CHW.contiguous()
    return F.interpolate(image_CHW[None], (size, size), mode="bilinear", antialias=True)[0].contiguous()
