"""Images with any number of channels, as plain arrays: .npy files, and TIFF files that are no photos.

H by W pixels, C channels; uint8 or uint16. Nothing is unpickled, and nothing larger than `most_values` is read.
"""

from __future__ import annotations

import io
import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from smallvit.data.listed import RASTER_SUFFIXES

MOST_CHANNELS = 64
TIFF_COMPRESSIONS = frozenset(["NONE", "ADOBE_DEFLATE", "DEFLATE", "PACKBITS", "LZW"])
TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # little and big end first, and the same for large files
DEFLATE_RATIO = 1032  # the most that it can unpack to


class Unreadable(Exception):
    """The file is not an image that we accept; the message says why, without the path."""


@dataclass(frozen=True)
class Raster:
    """What the header says; `read` gives the pixels, H x W x C."""

    height: int
    width: int
    channels: int
    wide: bool  # 16 bits, not 8
    read: Callable[[], np.ndarray]


def open_raster(path: Path) -> Raster | None:
    """None: an ordinary picture, which Pillow reads."""
    suffix = path.suffix.lower()
    if suffix not in RASTER_SUFFIXES:
        return None
    if path.stat().st_size == 0:  # pipes too: opening one would wait for ever
        raise Unreadable("the file is empty")
    return open_npy(path) if suffix == ".npy" else open_tiff(path)


def most_values() -> int:
    """Pixels times channels: as much as an RGB picture at Pillow's own limit."""
    return 3 * (Image.MAX_IMAGE_PIXELS or 1 << 30)


def looks_channels_first(shape: tuple[int, ...]) -> bool:
    """5 x 64 x 64 is hardly an image 5 pixels high with 64 channels."""
    first, second, last = shape
    return last > 4 and first < min(second, last)


def _raster(shape: tuple[int, int, int], dtype: Any, read: Callable[[], np.ndarray]) -> Raster:
    height, width, channels = shape
    if min(shape) < 1:
        raise Unreadable(f"it is empty: {height} x {width} x {channels}")
    if channels > MOST_CHANNELS:
        raise Unreadable(f"{channels} channels, more than {MOST_CHANNELS}")
    if height * width * channels > most_values():
        raise Unreadable(f"{height} x {width} x {channels} is more than {most_values():,} values")
    if dtype not in (np.uint8, np.uint16):
        raise Unreadable(f"its pixels are {dtype}, and nothing says what is white; save it as uint8 or uint16")
    return Raster(height, width, channels, dtype == np.uint16, read)


# ---- .npy --------------------------------------------------------------------------------------------


def open_npy(path: Path) -> Raster:
    """H x W or H x W x C."""
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in readers:
                raise Unreadable(f"version {version[0]}.{version[1]} of .npy holds no images")
            shape, _, dtype = readers[version](file)
    except Unreadable:
        raise
    except Exception as error:  # a header of any bytes makes NumPy fail in any way
        says = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise Unreadable(f"not a readable .npy file: {says[:200]}") from None
    if len(shape) not in (2, 3):
        raise Unreadable(f"its shape is {shape}; it must be H x W or H x W x C")
    if len(shape) == 3 and looks_channels_first(shape):
        raise Unreadable(f"its shape {shape} looks like C x H x W; save it as H x W x C")
    height, width, channels = (*shape, 1)[:3]
    return _raster((height, width, channels), dtype.newbyteorder("="), lambda: _read_npy(path, channels))


def _read_npy(path: Path, channels: int) -> np.ndarray:
    with path.open("rb") as file:  # not mapped: a file that shrinks under a map kills the process
        pixels = np.lib.format.read_array(file, allow_pickle=False)
    return pixels.reshape(*pixels.shape[:2], channels).astype(pixels.dtype.newbyteorder("="))


# ---- TIFF --------------------------------------------------------------------------------------------


def open_tiff(file: Path | bytes) -> Raster | None:
    """One image of several channels: last (YXS), planar (SYX), or one grey page for each. None: for Pillow."""
    try:
        with _opened(file) as tiff:
            series = tiff.series[0]
            shape, axes, dtype, ordinary = series.shape, series.axes, series.dtype, _is_ordinary(series)
            compression = series.keyframe.compression.name
    except Exception:  # tifffile raises nearly anything on a damaged file; Pillow then says what is wrong with it
        return None
    if ordinary:
        return None
    if compression not in TIFF_COMPRESSIONS:
        raise Unreadable(f"its compression is {compression} (accepted: {', '.join(sorted(TIFF_COMPRESSIONS))})")
    others = [axis for axis, size in zip(axes, shape, strict=True) if size > 1 and axis not in "YX"]
    sizes = dict(zip(axes, shape, strict=True))
    if len(others) != 1 or len(sizes) != len(axes) or not {"Y", "X"} <= {*sizes}:
        raise Unreadable(f"a stack of images ({axes}, {' x '.join(map(str, shape))}); save one image a file")
    return _raster((sizes["Y"], sizes["X"], sizes[others[0]]), dtype, lambda: _read_tiff(file, others[0]))


def _is_ordinary(series: Any) -> bool:
    """Whether Pillow reads all of it: grey, palette, RGB with 8 bits, alpha; also the first of several RGB pages."""
    page = series.keyframe
    several = [axis for axis, size in zip(series.axes, series.shape, strict=True) if axis not in "YX" and size > 1]
    if not several or page.bitspersample < 8 or page.photometric.name not in {"MINISBLACK", "MINISWHITE", "RGB"}:
        return True
    colours = 3 if page.photometric.name == "RGB" else 1
    has_alpha = [extra.name for extra in page.extrasamples] in (["ASSOCALPHA"], ["UNASSALPHA"])
    is_picture = page.samplesperpixel == colours + has_alpha and "S" in several
    return is_picture and (page.bitspersample == 8 or has_alpha)


def _read_tiff(file: Path | bytes, channel_axis: str) -> np.ndarray:
    with _opened(file) as tiff:
        series = tiff.series[0]
        _check_segments(tiff, series)
        keep = tuple(place for place, axis in enumerate(series.axes) if axis in f"YX{channel_axis}")
        axes = "".join(series.axes[place] for place in keep)
        pixels = series.asarray(maxworkers=1).reshape([series.shape[place] for place in keep])
    return np.ascontiguousarray(pixels.transpose([axes.index(axis) for axis in f"YX{channel_axis}"]))


def _check_segments(tiff: Any, series: Any) -> None:
    """tifffile unpacks a strip or tile to whatever it holds, not to what the header says: look before, within bounds."""
    most = 2 * most_values()
    for page in series.pages:
        if page is None or "DEFLATE" not in series.keyframe.compression.name:
            continue
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            if count * DEFLATE_RATIO > most:
                tiff.filehandle.seek(offset)
                if len(zlib.decompressobj().decompress(tiff.filehandle.read(count), most + 1)) > most:
                    raise Unreadable(f"it unpacks to more than {most:,} bytes")


def _opened(file: Path | bytes) -> Any:
    import tifffile

    # What it has to say about a damaged file is said by us, with the file's name.
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    return tifffile.TiffFile(io.BytesIO(file) if isinstance(file, bytes) else file)
