"""Reading one image file, within bounds, and fitting it to a square. C channels, S side.

16 bits become 8 by a stated white: what is as bright as that, or brighter, becomes 255. One white for a whole
set, so that its images stay comparable; a set of 12 bits in 16-bit files (white 4095) keeps all 256 levels.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile
from torch import Tensor

from smallvit.console import several
from smallvit.data.contents import Contents
from smallvit.data.rasters import TIFF_STARTS, open_raster, open_tiff
from smallvit.data.rasters import Unreadable as Unreadable

Fit = Literal["crop", "squash", "pad"]
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
WIDE_MODES = frozenset({"I", "I;16", "I;16B", "I;16L"})  # 16 bits a pixel; TIFF may hold 32 in "I"
GREY_MODES = frozenset({"1", "L", "LA", "F", *WIDE_MODES})
FULL_WHITE = 0xFFFF
TIFF_BITS = 258  # the tag that has the bits of each channel
LUMA = (0.299, 0.587, 0.114)


@contextmanager
def many_reads() -> Iterator[None]:
    """Around reading many files: Pillow warns of large images, which `open_image` refuses anyway, and of damaged EXIF data.

    Outside of the threads that read: Python's list of warning filters is not theirs to change.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def open_image(path: Path, contents: Contents | None = None) -> Image.Image:
    """The opened, not yet decoded image. Pillow's limit on pixel counts stays on, as an error."""
    try:
        if path.stat().st_size == 0:
            raise Unreadable("the file is empty")
        file = contents.open(path) if contents else path
    except OSError as error:
        raise Unreadable(_reason(error)) from None
    return _opened(file)


def open_sent(content: bytes) -> Image.Image:
    """The same of what was sent and never was a file here."""
    if not content:
        raise Unreadable("the file is empty")
    return _opened(io.BytesIO(content))


def _opened(file: Path | io.BytesIO) -> Image.Image:
    most = Image.MAX_IMAGE_PIXELS or 1 << 30
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        raise Unreadable(f"not a readable image (formats: {', '.join(FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable(f"more than {most:,} pixels") from None
    except Exception as error:  # Pillow's readers raise nearly anything on a damaged header
        raise Unreadable(_reason(error)) from None
    if image.width * image.height > most:  # up to twice the limit Pillow only warns
        image.close()
        raise Unreadable(f"more than {most:,} pixels")
    return image


def _reason(error: Exception) -> str:
    """What went wrong, without the path that an OSError repeats."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


class Header(NamedTuple):
    """What a file says of itself without being decoded."""

    side: int  # the shorter one
    channels: int  # 1 for grey, 3 for every other ordinary picture
    wide: bool  # 16 bits, to be scaled by a white


def read_header(path: Path, contents: Contents | None = None) -> Header:
    with _one_reason():
        if raster := open_raster(path):
            return Header(min(raster.height, raster.width), raster.channels, raster.wide)
        with open_image(path, contents) as image:
            return Header(min(image.size), 1 if image.mode in GREY_MODES else 3, image.mode in WIDE_MODES)


def read_image(
    path: Path, size: int, fit: Fit, channels: int, white: int = FULL_WHITE, contents: Contents | None = None
) -> Tensor:
    """uint8 (C, S, S). Any damage found while decoding is `Unreadable`."""
    with _one_reason():
        if raster := open_raster(path):
            return square_of_array(raster.read(), size, fit, channels, white)
        return _square_of_opened(open_image(path, contents), size, fit, channels, white)


def read_sent(content: bytes, size: int, fit: Fit, channels: int, white: int = FULL_WHITE) -> Tensor:
    """uint8 (C, S, S) of the bytes of an image file, as `read_image` gives it for the file; not of `.npy`."""
    with _one_reason():
        if content.startswith(TIFF_STARTS) and (raster := open_tiff(content)):
            return square_of_array(raster.read(), size, fit, channels, white)
        return _square_of_opened(open_sent(content), size, fit, channels, white)


def _square_of_opened(image: Image.Image, size: int, fit: Fit, channels: int, white: int) -> Tensor:
    with image:
        # JPEG can decode at a half, a quarter, an eighth: still at least twice the size we need.
        image.draft(None, (2 * size, 2 * size))
        ImageOps.exif_transpose(image, in_place=True)  # nobody else has this picture: no copy of it
        return _square_of_upright(image, size, fit, channels, white)


def square_of_picture(image: Image.Image, size: int, fit: Fit, channels: int, white: int = FULL_WHITE) -> Tensor:
    """uint8 (C, S, S) of an opened picture, which may not be decoded yet."""
    with _one_reason():
        if white != FULL_WHITE and _cut_to_bytes(image):
            raise Unreadable(f"it has 16 bits a colour, of which Pillow keeps 8, and white is {white}: give the file")
        return _square_of_upright(ImageOps.exif_transpose(image), size, fit, channels, white)


def _square_of_upright(image: Image.Image, size: int, fit: Fit, channels: int, white: int) -> Tensor:
    if image.mode in WIDE_MODES:  # Pillow's own conversion clips at 255
        pixels_CHW = torch.from_numpy(to_bytes(_wide_pixels(image), white))[None]
        return fit_square(convert(pixels_CHW, channels), size, fit)
    return square_of_array(_pixels(image, channels), size, fit, channels)


def _cut_to_bytes(image: Image.Image) -> bool:
    """Whether Pillow keeps the upper 8 of 16 bits of every colour, as it does in TIFF."""
    bits = image.tag_v2.get(TIFF_BITS, ()) if isinstance(image, TiffImageFile) else ()
    return len(bits) > 1 and max(bits) > 8


def pixels_of_picture(image: Image.Image) -> np.ndarray:
    """uint8 H x W x C at its own size, with one channel where it is grey and three where it is not."""
    with _one_reason():
        if image.mode in WIDE_MODES or _cut_to_bytes(image):
            raise Unreadable("it has 16 bits, and nothing says what is white; give 8 bits, or files")
        return _pixels(ImageOps.exif_transpose(image), 1 if image.mode in GREY_MODES else 3)


def square_of_array(pixels_HWC: np.ndarray, size: int, fit: Fit, channels: int, white: int = FULL_WHITE) -> Tensor:
    """uint8 (C, S, S) of pixels with 8 or 16 bits."""
    bytes_HWC = to_bytes(pixels_HWC, white)
    if bytes_HWC.shape == (size, size, channels):
        # As it is wanted; NumPy turns small arrays in a third of torch's time.
        return torch.from_numpy(np.ascontiguousarray(bytes_HWC.transpose(2, 0, 1)))
    return fit_square(convert(torch.from_numpy(bytes_HWC).permute(2, 0, 1), channels), size, fit)


def read_peak(path: Path, contents: Contents | None = None) -> int:
    """The largest value of a file with 16 bits."""
    with _one_reason():
        if raster := open_raster(path):
            return int(raster.read().max())
        with open_image(path, contents) as image:
            return int(_wide_pixels(image).max())


@contextmanager
def _one_reason() -> Iterator[None]:
    """Whatever a decoder raises on a damaged file becomes `Unreadable`."""
    try:
        yield
    except Unreadable:
        raise
    except FileNotFoundError as error:
        raise Unreadable(_reason(error)) from None
    except Exception as error:
        raise Unreadable(f"damaged: {_reason(error)}") from None


def _pixels(image: Image.Image, channels: int) -> np.ndarray:
    """H x W x C with 8 bits, one channel or three."""
    if image.mode == "F":
        raise Unreadable("its pixels are fractions, and nothing says what is white; save it with 8 or 16 bits")
    if image.has_transparency_data:
        # The colours below transparent pixels are leftovers, often black below black drawings: show paper instead.
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if channels not in (1, 3):
        has = 1 if image.mode in GREY_MODES else 3
        raise Unreadable(f"it has {several(has, 'channel')}, {channels} are asked for")
    wanted = "L" if channels == 1 else "RGB"
    array = np.array(image if image.mode == wanted else image.convert(wanted))
    return array if array.ndim == 3 else array[:, :, None]


def _wide_pixels(image: Image.Image) -> np.ndarray:
    wide = np.asarray(image).astype(np.int64)
    if wide.min() < 0 or wide.max() > FULL_WHITE:
        raise Unreadable("its pixels need more than 16 bits; save it with 8 or 16")
    return wide.astype(np.uint16)


def to_bytes(pixels: np.ndarray, white: int) -> np.ndarray:
    """16 bits to 8, `white` and above to 255; 8 bits stay as they are."""
    return pixels if pixels.dtype == np.uint8 else _levels(white)[pixels]


@cache
def _levels(white: int) -> np.ndarray:
    """The byte of each of 65,536 values."""
    return np.rint(np.minimum(np.arange(1 << 16), white) * (255 / white)).astype(np.uint8)


def convertible(has: int, wanted: int) -> bool:
    """Grey and RGB become each other; nothing else does."""
    return has == wanted or {has, wanted} == {1, 3}


def cannot_convert(name: str, has: int, wanted: int) -> str:
    return (
        f"--in-chans {wanted}: the images of {name} have {several(has, 'channel')}; leave it out "
        "(only grey and RGB, 1 and 3, become each other)"
    )


def convert(image_CHW: Tensor, channels: int) -> Tensor:
    """Grey repeated, or RGB's luma as Pillow rounds it."""
    has = len(image_CHW)
    if has == channels:
        return image_CHW
    if not convertible(has, channels):
        raise Unreadable(f"it has {several(has, 'channel')}, {channels} are asked for")
    if channels == 3:
        return image_CHW.repeat(3, 1, 1)
    return torch.einsum("chw,c->hw", image_CHW.float(), torch.tensor(LUMA)).round().byte()[None]


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
