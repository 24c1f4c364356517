"""Pictures that are made on the spot, and what becomes of copies of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

SIDE = 48


def texture(seed: str, size: tuple[int, int] = (SIDE, SIDE)) -> Image.Image:
    """As in a photo: light and colour at every scale, less of it at the finer ones. `size` is width, height."""
    draw = np.random.default_rng(list(seed.encode()))
    pixels = np.full((size[1], size[0], 3), draw.integers(60, 190, 3), dtype=float)

    def field(cells: int, channels: int) -> np.ndarray:
        coarse = Image.fromarray(draw.integers(0, 256, (cells, cells, channels), dtype=np.uint8).squeeze())
        return (
            np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), dtype=float).reshape(*size[::-1], channels) - 128
        )

    for cells in (2, 4, 8, 16, 32):
        pixels += field(cells, 1) * 1.2 / cells**0.5 + field(cells, 3) * 0.6 / cells
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def jpeg(quality: int) -> Callable[[Image.Image], Image.Image]:
    def encode(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file).convert("RGB")

    return encode


def crop(left: float, top: float, right: float, bottom: float) -> Callable[[Image.Image], Image.Image]:
    """Shares of the side that are cut off."""

    def cut(image: Image.Image) -> Image.Image:
        width, height = image.size
        return image.crop(
            (round(width * left), round(height * top), round(width * (1 - right)), round(height * (1 - bottom)))
        )

    return cut


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "jpeg": jpeg(40),
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS),
    "larger": lambda image: image.resize((image.width * 2, image.height * 2), Image.Resampling.BICUBIC),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.6),
    "less contrast": lambda image: ImageEnhance.Contrast(image).enhance(0.6),
    "pale": lambda image: ImageEnhance.Color(image).enhance(0.3),
    "mirrored": ImageOps.mirror,
    "upside down": ImageOps.flip,
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(0.7)),
    "cropped": crop(0.05, 0.05, 0.05, 0.05),
    "cropped at a corner": crop(0.0, 0.1, 0.1, 0.0),
    "turned": lambda image: crop(0.06, 0.06, 0.06, 0.06)(image.rotate(3, Image.Resampling.BICUBIC)),
    "mirrored, cropped, jpeg": lambda image: jpeg(60)(crop(0.04, 0.06, 0.06, 0.02)(ImageOps.mirror(image))),
}


def fill(root: Path, classes: dict[str, int], size: tuple[int, int] = (32, 32), suffix: str = ".png") -> Path:
    for name, count in classes.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            texture(f"{name} {number}", size).save(root / name / f"{number:03d}{suffix}")
    return root
