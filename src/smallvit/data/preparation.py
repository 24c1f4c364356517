"""How an image becomes what a model takes: one way for training, validation and prediction.

A file, picture or array becomes a uint8 square, as the files of a set do when they are decoded; the centre of a square
is normalised. B images, C channels, H by W pixels, S side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from smallvit.data.augment import Augmenter
from smallvit.data.images import FULL_WHITE, Fit, convertible, read_image, square_of_array, square_of_picture
from smallvit.data.rasters import Unreadable, looks_channels_first
from smallvit.recipe import AugmentSpec

Picture = str | Path | Image.Image | np.ndarray | Tensor  # one image: a file, or pixels


@dataclass(frozen=True)
class Preparation:
    """The keys of a recipe's `data` section, and of a model file's header, that prediction needs."""

    img_size: int
    cache_size: int  # the side of the squares, of which the model sees the centre
    in_chans: int
    fit: Fit
    mean: tuple[float, ...]
    std: tuple[float, ...]
    white: int = FULL_WHITE
    flips: bool = False  # the answer is the mean of those for the image and for its mirror image
    shifts: int = 0  # pixels: and for the image moved so far towards two of its corners
    few_looks: bool = False  # with both: for the image as it is and for its moved mirror images, half as many looks

    @classmethod
    def of(cls, named: Mapping[str, Any]) -> Preparation:
        """From a header, or a recipe's section as a dictionary; other keys are left alone."""
        values = {key.name: named[key.name] for key in fields(cls) if key.name in named or key.default is MISSING}
        return cls(**values | {"mean": tuple(values["mean"]), "std": tuple(values["std"])})

    @cached_property
    def augmenter(self) -> Augmenter:
        return Augmenter(AugmentSpec(crop="none", flip=0.0), self.mean, self.std)

    def __call__(self, picture: Picture) -> Tensor:
        """(C, S, S): one image as the model takes it. Where the answer is a mean over several looks, this is the first."""
        return self.normalised(self.square(picture)[None])[0]

    def normalised(self, squares_BCSS: Tensor) -> Tensor:
        return self.augmenter.prepare(squares_BCSS, self.img_size)

    def timm_config(self) -> dict[str, Any]:
        """The same in timm's words, as far as it has them: it resizes the shorter side, then cuts out the centre."""
        crop = self.img_size / self.cache_size
        if math.floor(self.img_size / crop) != self.cache_size:  # so timm finds the size before the cut, rounded down
            crop = math.nextafter(crop, 0.0)
        return {
            "input_size": (self.in_chans, self.img_size, self.img_size),
            "mean": self.mean,
            "std": self.std,
            "interpolation": "bilinear",
            "crop_pct": crop,
            "crop_mode": {"crop": "center", "squash": "squash", "pad": "border"}[self.fit],
        }

    def pixels(self, normalised_BCSS: Tensor) -> Tensor:
        """The other way round: uint8, as it is shown; the same pixels where nothing was changed."""
        mean_C11, std_C11 = (normalised_BCSS.new_tensor(numbers)[:, None, None] for numbers in (self.mean, self.std))
        return (255 * (normalised_BCSS * std_C11 + mean_C11)).round().clamp(0, 255).to(torch.uint8)

    def looks(self, images_BCSS: Tensor) -> list[Tensor]:
        """The images as they are, and the other ways in which the model looks at them; the mean of its answers counts."""
        looks, (height, width) = [images_BCSS], images_BCSS.shape[-2:]
        if far := self.shifts:
            padded = F.pad(images_BCSS, (far, far, far, far), mode="replicate")
            looks += [padded[..., edge : edge + height, edge : edge + width] for edge in (0, 2 * far)]
        if not self.flips:
            return looks
        mirrored = [look.flip(3) for look in looks]
        return looks[:1] + mirrored[1:] if far and self.few_looks else looks + mirrored

    def looks_in_words(self) -> str:
        """What the answer is the mean over; empty where it is the image as it is, and nothing else."""
        moved = f"moved by {self.shifts} px to two of its corners"
        if not self.flips:
            return f"the image as it is and {moved}" if self.shifts else ""
        if self.shifts and self.few_looks:
            return f"the image and its mirror image {moved}"
        return "the image and its mirror image" + (f", each as it is and {moved}" if self.shifts else "")

    @property
    def wanted(self) -> tuple[int, Fit, int, int]:
        """What a square is: models that agree in it take the same."""
        return self.cache_size, self.fit, self.in_chans, self.white

    def are_squares(self, images: Tensor) -> bool:
        """Whether they are many squares already, which `square` would leave as they are."""
        return images.dtype == torch.uint8 and images.shape[1:] == (self.in_chans, self.cache_size, self.cache_size)

    def square(self, picture: Picture) -> Tensor:
        """uint8 (C, S, S). What cannot be read or converted is `Unreadable`."""
        if isinstance(picture, str):
            picture = Path(picture)
        if isinstance(picture, Path):
            return read_image(picture, *self.wanted)
        if isinstance(picture, Image.Image):
            return square_of_picture(picture, *self.wanted)
        return square_of_array(self._pixels(picture), *self.wanted)

    def _pixels(self, given: np.ndarray | Tensor) -> np.ndarray:
        """H x W x C. Arrays have their channels last, tensors first, or last where only that can be meant."""
        is_tensor = isinstance(given, Tensor)
        pixels = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
        shape = tuple(pixels.shape)
        if pixels.ndim not in (2, 3) or 0 in shape:
            layout = "C x H x W" if is_tensor else "H x W x C"
            raise Unreadable(f"its shape is {shape}; it must be H x W or {layout}")
        if pixels.dtype not in (np.uint8, np.uint16):
            raise Unreadable(f"its pixels are {pixels.dtype}, and nothing says what is white; give uint8 or uint16")
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        elif is_tensor and (convertible(shape[0], self.in_chans) or not convertible(shape[2], self.in_chans)):
            pixels = pixels.transpose(1, 2, 0)
        elif not is_tensor and looks_channels_first(shape):
            raise Unreadable(f"its shape {shape} looks like C x H x W; an array must be H x W x C")
        # In memory as decoded files are: resizing may round otherwise where channels lie apart.
        return np.require(pixels, requirements=["C", "W"])
