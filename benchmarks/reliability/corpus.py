"""A corpus of bad images: at least 300 small files, generated, each with what should become of it.

Truncations at many places of every format, wrong suffixes, bombs, strips, colour models, bit depths, palettes, animations,
EXIF orientations, broken profiles, TIFF compressions, .npy files that lie, pipes, links, and names that are hard to print.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 24
Writer = Callable[[Path], None]


def picture(mode: str = "RGB", width: int = SIDE, height: int = SIDE) -> Image.Image:
    """Not symmetric in any way, so that a wrong orientation shows."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([255 * x / max(1, width - 1), 255 * y / max(1, height - 1), 255 * ((x // 4 + y // 6) % 2)], -1)
    return Image.fromarray(rgb.astype(np.uint8)).convert(mode)


def ramp(shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """All over the range of 16 bits."""
    return np.linspace(0, 65535, int(np.prod(shape))).astype(np.uint16).reshape(shape)


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[274] = orientation
    return exif


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def photos(root: Path, each: int) -> Path:
    """Good images in two classes, no two alike."""
    for name, turned in (("a", 0), ("b", 180)):
        (root / name).mkdir(parents=True)
        for number in range(each):
            image = picture(width=SIDE + number % 5).rotate(turned + number % 180)
            (root / name / f"{number}.png").write_bytes(encoded(image, "PNG"))
    return root


def corpus(root: Path) -> Iterator[Path]:
    """Write all files below `root`, which has the folders a and b; yields each path."""
    for name, write in (*damaged(), *odd(), *rasters(), *named()):
        folder = root / ("a" if zlib.crc32(os.fsencode(name)) % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        try:
            write(path)
        except OSError:  # this file system has no such names, pipes or links
            continue
        yield path


def as_bytes(content: bytes) -> Writer:
    return lambda path: void(path.write_bytes(content))


def void(_: object) -> None:
    return None


# ---- damage ------------------------------------------------------------------------------------------

FORMATS = {
    "jpg": ("JPEG", "RGB", {}),
    "progressive.jpg": ("JPEG", "RGB", {"progressive": True}),
    "png": ("PNG", "RGB", {}),
    "gif": ("GIF", "P", {}),
    "bmp": ("BMP", "RGB", {}),
    "webp": ("WEBP", "RGB", {"lossless": True}),
    "ppm": ("PPM", "RGB", {}),
    "pgm": ("PPM", "L", {}),
    "tif": ("TIFF", "RGB", {}),
    "lzw.tif": ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    "grey.npy": ("NPY", "L", {}),
}


def whole(key: str) -> bytes:
    form, mode, options = FORMATS[key]
    if form == "NPY":
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(picture(mode)))
        return buffer.getvalue()
    return encoded(picture(mode), form, **options)


def damaged() -> Iterator[tuple[str, Writer]]:
    """Cut at the first bytes, at chunk boundaries, and at twelve places in between; bytes changed; nothing; noise."""
    for key in FORMATS:
        content, suffix = whole(key), key.rpartition(".")[2]
        places = {
            0,
            1,
            2,
            4,
            8,
            16,
            33,
            len(content) - 1,
            *(len(content) * k // 13 for k in range(1, 13)),
            *chunks(content),
        }
        for place in sorted(place for place in places if place < len(content)):
            yield f"cut-{key}-{place}.{suffix}", as_bytes(content[:place])
        for place in (5, 20, len(content) // 2, len(content) - 9):
            changed = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
            yield f"flipped-{key}-{place}.{suffix}", as_bytes(changed)
        yield f"noise-{key}.{suffix}", as_bytes(np.random.default_rng(len(key)).bytes(500))
        yield f"zeros-{key}.{suffix}", as_bytes(bytes(500))
        yield f"twice-{key}.{suffix}", as_bytes(content + content)


def chunks(content: bytes) -> set[int]:
    """Where chunks of a PNG or segments of a JPEG begin."""
    found: set[int] = set()
    if content.startswith(b"\x89PNG"):
        place = 8
        while place + 8 <= len(content):
            found |= {place, place + 8}
            place += 12 + int.from_bytes(content[place : place + 4], "big")
    elif content.startswith(b"\xff\xd8"):
        found = {place for place in range(len(content) - 1) if content[place] == 0xFF and content[place + 1] >= 0xC0}
    return found


# ---- odd but whole -----------------------------------------------------------------------------------


def odd() -> Iterator[tuple[str, Writer]]:
    for orientation in range(1, 9):
        for form, suffix in (("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp"), ("TIFF", "tif")):
            yield f"exif-{orientation}.{suffix}", as_bytes(encoded(picture(width=32), form, exif=turned(orientation)))
    for mode, form, suffix in (
        ("CMYK", "JPEG", "jpg"), ("CMYK", "TIFF", "tif"), ("LAB", "TIFF", "tif"), ("YCbCr", "JPEG", "jpg"),
        ("1", "PNG", "png"), ("1", "PPM", "pbm"), ("L", "PNG", "png"), ("LA", "PNG", "png"), ("P", "PNG", "png"),
        ("RGBA", "PNG", "png"), ("RGBA", "WEBP", "webp"), ("RGBA", "TIFF", "tif"), ("L", "JPEG", "jpg"), ("P", "BMP", "bmp"),
        ("1", "TIFF", "tif"), ("F", "TIFF", "tif"), ("I", "TIFF", "tif"), ("L", "GIF", "gif"), ("L", "BMP", "bmp"),
    ):  # fmt: skip
        yield f"mode-{mode}-{form}.{suffix}", as_bytes(encoded(in_mode(mode), form))
    for form in ("JPEG", "PNG", "GIF", "BMP", "WEBP"):
        for suffix in ("jpg", "png", "tif", "npy"):
            yield f"really-{form}.{suffix}", as_bytes(encoded(picture(), form))
    wide = Image.fromarray(ramp((SIDE, 32)))
    yield "sixteen.png", as_bytes(encoded(wide, "PNG"))
    yield "sixteen.tif", as_bytes(encoded(wide, "TIFF"))
    yield "sixteen-turned.png", as_bytes(encoded(wide, "PNG", exif=turned(6)))
    yield "sixteen-turned.tif", as_bytes(encoded(wide, "TIFF", exif=turned(8)))
    yield "sixteen.pgm", as_bytes(encoded(wide, "PPM"))
    palette = picture("P")
    palette.info["transparency"] = bytes(range(256))
    yield "palette-with-transparency.png", as_bytes(encoded(palette, "PNG", transparency=bytes(range(256))))
    yield "one-colour-transparent.png", as_bytes(encoded(picture(), "PNG", transparency=(0, 0, 0)))
    yield "profile.jpg", as_bytes(encoded(picture(), "JPEG", icc_profile=b"no profile at all" * 9))
    yield "profile.png", as_bytes(encoded(picture(), "PNG", icc_profile=b"\0" * 200))
    yield "exif-of-noise.jpg", as_bytes(encoded(picture(), "JPEG", exif=b"Exif\0\0" + b"\xff" * 300))
    frames = [picture(), picture().rotate(90), picture("L").convert("RGB")]
    for form, suffix in (("GIF", "gif"), ("PNG", "png"), ("WEBP", "webp"), ("TIFF", "tif")):
        yield f"moving.{suffix}", as_bytes(encoded(frames[0], form, save_all=True, append_images=frames[1:]))
    for width, height in ((1, 100_000), (100_000, 1), (1, 1), (3, 2000)):
        yield f"strip-{width}x{height}.png", as_bytes(encoded(picture("L", width, height), "PNG"))
    for compression in (
        "tiff_deflate",
        "tiff_adobe_deflate",
        "packbits",
        "jpeg",
        "group3",
        "group4",
        "tiff_ccitt",
        "lzma",
        "zstd",
        "webp",
    ):
        mode = "1" if compression in ("group3", "group4", "tiff_ccitt") else "RGB"
        try:
            yield f"tiff-{compression}.tif", as_bytes(encoded(picture(mode), "TIFF", compression=compression))
        except Exception:  # this Pillow has no such encoder
            continue
    for width, height in ((100_000, 100_000), (65_535, 65_535), (2**31 - 1, 1), (0, 5)):
        yield f"bomb-{width}x{height}.png", as_bytes(forged_png(width, height))
    yield "bomb-in-text.png", as_bytes(text_bomb())


def in_mode(mode: str) -> Image.Image:
    if mode == "LAB":
        return Image.merge("LAB", picture().split())
    return picture("L").convert(mode) if mode in ("F", "I") else picture(mode)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def forged_png(width: int, height: int) -> bytes:
    """A header that promises a huge image."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """A compressed comment of 200 MB."""
    content = encoded(picture("L"), "PNG")
    comment = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(200_000_000), 9))
    return content[:33] + comment + content[33:]


# ---- arrays ------------------------------------------------------------------------------------------


def npy(header: bytes, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    padded = header + b"\n"
    return b"\x93NUMPY" + version + len(padded).to_bytes(2, "little") + padded + content


def says(shape: str, dtype: str = "|u1", content: bytes = bytes(64)) -> bytes:
    return npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode(), content)


def rasters() -> Iterator[tuple[str, Writer]]:
    for number, array in enumerate(
        (
            np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIDE, SIDE), np.zeros((SIDE, SIDE, 3), np.uint8),
            np.zeros((SIDE, SIDE, 5), np.uint8), np.zeros((3, SIDE, SIDE), np.uint8), np.zeros((SIDE, SIDE), np.uint16),
            np.zeros((SIDE, SIDE), np.float32), np.zeros((SIDE, SIDE), bool), np.zeros(SIDE, np.uint8),
            np.zeros((2, 2, 2, 2), np.uint8), np.zeros((0, SIDE), np.uint8), np.zeros((SIDE, SIDE, 65), np.uint8),
            np.asfortranarray(np.arange(SIDE * 8, dtype=np.uint8).reshape(SIDE, 8)), np.zeros((SIDE, SIDE), ">u2"),
            np.array([{"a": 1}], dtype=object), np.array(["x"]), np.zeros((4, 4), [("r", "u1"), ("g", "u1")]),
            np.asarray(picture(width=32)), *(ramp((SIDE, 32, *last)).astype(kind) for last in ((), (1,), (3,)) for kind in ("<u2", ">u2")),
            np.asfortranarray(ramp((32, SIDE, 3))),
        )
    ):  # fmt: skip
        yield f"array-{number}.npy", lambda path, array=array: np.save(path, array, allow_pickle=True)
    for number, content in enumerate(
        (
            npy(b"[" * 9000), npy(b"(" * 9000), npy(b"-" * 9000), npy(b"{}"), npy(b"None"), npy(b"\xff" * 30), says("(8, 8"),
            says("(100000, 100000)"), says("(10**9,)"), says("(-1, 8)"), says("(9, 9)"), says("(8, 8)", "O"), says("(8, 8)", "<U9"),
            says("(8, 8)", "V2000000000"), says(f"({'9' * 400}, 8)"), npy(b"{}", version=b"\x09\x09"), b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff",
        )
    ):  # fmt: skip
        yield f"lying-{number}.npy", as_bytes(content)


# ---- names and kinds of files ------------------------------------------------------------------------

NAMES = (
    "line\nbreak.png", "carriage\rreturn.png", "tab\t.png", "quo\"te's.png", "<b>markup</b>.png", "&amp;.png", "a,b;c.png",
    "=cmd()|calc.png", "-dash.png", " blank .png", "%s%n{}.png", "\x1b[31mred.png", "back\\slash.png", "ünïcödé.png",
    "日本語.png", "عربى.png", "\u202egnp.png", "🦊.png", "e\u0301.png", f"{'x' * 251}.png", f"{'ü' * 125}.png", "CON.png", "..png", "UPPER.PNG",
)  # fmt: skip


def named() -> Iterator[tuple[str, Writer]]:
    """Good images under hard names, and files that are none."""
    content = encoded(picture(), "PNG")
    for name in NAMES:
        yield name, as_bytes(content)
    yield os.fsdecode(b"not-utf8-\xff\xfe.png"), as_bytes(content)
    yield "pipe.png", lambda path: os.mkfifo(path)
    yield "pipe.npy", lambda path: os.mkfifo(path)
    yield "folder.png", lambda path: path.mkdir()
    yield "nowhere.png", lambda path: path.symlink_to("does-not-exist.png")
    yield "circle.png", lambda path: path.symlink_to(path.name)
    yield "circle-folder", lambda path: path.symlink_to(path.parent, target_is_directory=True)
    yield "zero-device.png", lambda path: path.symlink_to("/dev/zero")
    yield "outside.png", lambda path: path.symlink_to(__file__)
    yield "locked.png", lambda path: (path.write_bytes(content), path.chmod(0))[1]
