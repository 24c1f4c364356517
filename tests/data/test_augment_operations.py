"""Each operation of RandAugment beside Pillow's or timm's, on one image after the other and with fixed arguments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from timm.data import auto_augment as timm_ops
from torch import Tensor

from smallvit.data import operations as op
from smallvit.data.geometry import to_bytes, warp
from smallvit.data.policy import OPERATIONS, Drawn, _known_tables, arguments

FILL = (125, 120, 110)
BILINEAR = {"fillcolor": FILL, "resample": Image.Resampling.BILINEAR}


def images(channels: int = 3, height: int = 40, width: int = 33) -> Tensor:
    """Smooth, noisy, dark, pale, flat, two-valued and one-value-per-channel images."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(4, channels, 5, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    smooth = smooth * torch.tensor([1.0, 0.3, 0.5, 0.05])[:, None, None, None]
    smooth[2:] += torch.tensor([0.4, 0.9])[:, None, None, None]
    noisy = torch.rand(4, channels, height, width, generator=generator)
    two = (noisy[:1] < 0.1).float() * 0.5
    flat = torch.linspace(0, 1, 3 * channels).view(3, channels, 1, 1).expand(-1, -1, height, width)
    return (torch.cat([smooth, noisy, two, flat]) * 255).to(torch.uint8)


def pictures(pixels: Tensor) -> list[Image.Image]:
    return [Image.fromarray(image.squeeze(-1).numpy()) for image in pixels.permute(0, 2, 3, 1).contiguous()]


def each(pixels: Tensor, change: Callable[[Image.Image, float], Image.Image], arguments_B: Tensor) -> Tensor:
    changed = [change(p, a) for p, a in zip(pictures(pixels), arguments_B.tolist(), strict=True)]
    return torch.stack([torch.from_numpy(np.array(p).reshape(*pixels.shape[2:], -1)).permute(2, 0, 1) for p in changed])


def spread(low: float, high: float, count: int) -> Tensor:
    return torch.linspace(low, high, count)


def looked_up(pixels: Tensor, tables: Tensor) -> Tensor:
    return op.lookup(pixels, tables.expand(-1, pixels.shape[1], -1).contiguous())


@pytest.mark.parametrize("channels", [1, 3])
def test_autocontrast_and_equalize_are_exactly_pillows(channels: int) -> None:
    pixels = images(channels)
    nothing = torch.zeros(len(pixels))
    stretched = each(pixels, lambda p, _: ImageOps.autocontrast(p), nothing)
    assert torch.equal(looked_up(pixels, op.stretched(pixels)), stretched)
    equalized = each(pixels, lambda p, _: ImageOps.equalize(p), nothing)
    assert torch.equal(looked_up(pixels, op.equalized(pixels)), equalized)


@pytest.mark.parametrize("side", [1, 2, 7, 100])
def test_equalize_of_few_and_of_many_pixels(side: int) -> None:
    pixels = images(3, side, side)
    expected = each(pixels, lambda p, _: ImageOps.equalize(p), torch.zeros(len(pixels)))
    assert torch.equal(looked_up(pixels, op.equalized(pixels)), expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_tables_with_an_argument_are_exactly_pillows(channels: int) -> None:
    pixels = images(channels)
    n = len(pixels)
    thresholds, bits, amounts = spread(0, 256, n).floor(), spread(1, 8, n).floor(), spread(0, 110, n).floor()
    expected = each(pixels, lambda p, t: ImageOps.solarize(p, int(t)), thresholds)
    assert torch.equal(looked_up(pixels, op.solarized(thresholds)), expected)
    expected = each(pixels, lambda p, b: ImageOps.posterize(p, int(b)), bits)
    assert torch.equal(looked_up(pixels, op.posterized(bits)), expected)
    expected = each(pixels, lambda p, a: timm_ops.solarize_add(p, int(a)), amounts)
    assert torch.equal(looked_up(pixels, op.lifted(amounts)), expected)
    expected = each(pixels, lambda p, _: ImageOps.invert(p), bits)
    assert torch.equal(looked_up(pixels, op.solarized(torch.zeros(n))), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["Brightness", "Contrast", "Color", "Sharpness"])
def test_enhancements_agree_with_pillow(name: str, channels: int) -> None:
    pixels = images(channels)
    factor = spread(0.1, 1.9, len(pixels))
    ours = {
        "Brightness": lambda: looked_up(pixels, op.brightened(factor)),
        "Contrast": lambda: looked_up(pixels, op.contrasted(pixels, factor)),
        "Color": lambda: op.saturated(pixels, factor),
        "Sharpness": lambda: op.sharpened(pixels, factor),
    }[name]()
    theirs = each(pixels, lambda p, f: getattr(ImageEnhance, name)(p).enhance(f), factor)
    difference = (ours.int() - theirs.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.01  # a factor has 24 bits there and here, but not the same sums


def test_sharpness_of_tiny_images_does_nothing() -> None:
    for height, width in ((1, 5), (2, 2), (3, 3)):
        pixels = images(3, height, width)
        expected = each(pixels, lambda p, f: ImageEnhance.Sharpness(p).enhance(f), torch.full((len(pixels),), 1.9))
        assert (op.sharpened(pixels, torch.full((len(pixels),), 1.9)).int() - expected.int()).abs().max() <= 1


# ---- levels ------------------------------------------------------------------------------------------


MAPS: dict[str, Callable[..., Image.Image]] = {
    "Rotate": timm_ops.rotate,
    "ShearX": timm_ops.shear_x,
    "ShearY": timm_ops.shear_y,
    "TranslateX": timm_ops.translate_x_rel,
    "TranslateY": timm_ops.translate_y_rel,
}


def drawn(name: str, signed: Tensor) -> Drawn:
    kind = torch.full((1, len(signed)), OPERATIONS.index(name))
    return Drawn(kind, signed.abs()[None], signed[None])


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("shape", [(32, 32), (40, 33)])
def test_maps_agree_with_timm(name: str, shape: tuple[int, int]) -> None:
    pixels = images(3, *shape)
    signed = spread(-10, 10, len(pixels))
    largest = {"Rotate": 30, "ShearX": 0.3, "ShearY": 0.3}.get(name, 0.45)
    grid = arguments(drawn(name, signed), *shape).grid_B23[0]
    ours = to_bytes(warp(pixels, grid, torch.tensor(FILL, dtype=torch.float32)))
    theirs = each(pixels, lambda p, level: MAPS[name](p, level / 10 * largest, **BILINEAR), signed)
    difference = (ours.int() - theirs.int()).abs()
    # Pillow rounds down. On the very border of an image the last bit decides whether a pixel is inside.
    assert (difference.amax(1) > 1).float().mean() < 0.001
    assert (ours.float() - theirs.float()).mean().abs() < 0.5


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("Posterize", lambda level: max(1, timm_ops._posterize_increasing_level_to_arg(level, None)[0])),
        ("Solarize", lambda level: timm_ops._solarize_increasing_level_to_arg(level, None)[0]),
        ("SolarizeAdd", lambda level: timm_ops._solarize_add_level_to_arg(level, None)[0]),
    ],
)
def test_levels_pick_timms_arguments(name: str, theirs: Callable[[float], float]) -> None:
    levels = torch.cat([spread(0.03, 9.97, 400), torch.tensor([0.0, 9.0, 10.0])])
    make = {"Posterize": op.posterized, "Solarize": op.solarized, "SolarizeAdd": op.lifted}[name]
    tables = _known_tables(torch.device("cpu"))[arguments(drawn(name, levels), 32, 32).table_B[0]]
    assert torch.equal(tables, make(torch.tensor([float(theirs(level)) for level in levels.tolist()])))


def test_levels_give_timms_factors() -> None:
    signed = spread(-10, 10, 401)
    ours = arguments(drawn("Contrast", signed), 32, 32).factor_B[0]
    theirs = torch.tensor([max(0.1, 1 + level * 0.09) for level in signed.tolist()])
    torch.testing.assert_close(ours, theirs)
    assert timm_ops._enhance_increasing_level_to_arg(9.0, None)[0] in (pytest.approx(0.19), pytest.approx(1.81))


def test_the_operations_are_timms() -> None:
    theirs = {name.removesuffix("Increasing").removesuffix("Rel") for name in timm_ops._RAND_INCREASING_TRANSFORMS}
    assert set(OPERATIONS) == theirs
    assert len(OPERATIONS) == len(theirs) == 15


def test_a_map_of_nothing_keeps_every_pixel() -> None:
    pixels = images(5, 17, 23)
    grid = arguments(drawn("Rotate", torch.zeros(len(pixels))), 17, 23).grid_B23[0]
    assert torch.equal(to_bytes(warp(pixels, grid, torch.zeros(5))), pixels)
