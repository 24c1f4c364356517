"""Augmentation of batches: what each operation does, how often, and that a sample does not see its batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms import functional as tvf

from smallvit.data.augment import Augmenter
from smallvit.data.colour import jitter
from smallvit.data.geometry import Window, cut, draw_window, resample
from smallvit.errors import RunError
from smallvit.randomness import uniform
from smallvit.recipe import AugmentSpec

COLOUR = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
RECIPES: dict[str, dict[str, Any]] = {
    "pad": {"crop": "pad", "flip": 0.5},
    "none": {"crop": "none", "flip": 0.5},
    "resized": {"crop": "resized", "flip": 0.5},
    "all": {"crop": "resized", "flip": 0.5, "erase": 0.5, **COLOUR},
    "randaugment": {"crop": "pad", "flip": 0.5, "randaugment": 2, "erase": 0.25},
    "trivial": {"crop": "resized", "trivial": True},
    "steps": {"rotate": 20, "shear": 5, "translate": 0.1, "gray": 0.2, "blur": 0.5, "solarize": 0.2},
}


def make(channels: int = 3, plain: bool = True, **spec: Any) -> Augmenter:
    """With `plain`, views are the pixels themselves in 0..1."""
    mean, std = (0.0, 1.0) if plain else (0.4, 0.25)
    spec = {"crop": "none", "flip": 0.0, **spec}
    return Augmenter(AugmentSpec(**spec), [mean] * channels, [std] * channels)


def images(count: int = 16, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    shape = (count, channels, height, width)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def boxes(*rows: tuple[int, int, int, int]) -> Window:
    return Window(*torch.tensor(rows, dtype=torch.float32).T)


# ---- draws -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_sample_does_not_depend_on_its_batch(name: str) -> None:
    augment, pixels, positions = make(plain=False, **RECIPES[name]), images(24), torch.arange(100, 124)
    whole = augment(pixels, 32, 7, positions)
    order = torch.randperm(24)
    halves = [augment(pixels[part], 32, 7, positions[part]) for part in (slice(0, 5), slice(5, 24))]
    tolerance: dict[str, Any] = {"atol": 1e-6, "rtol": 1e-6}
    torch.testing.assert_close(torch.cat(halves), whole, **tolerance)
    torch.testing.assert_close(augment(pixels[order], 32, 7, positions[order]), whole[order], **tolerance)
    assert torch.equal(augment(pixels, 32, 7, positions), whole)
    assert whole.is_contiguous()
    assert whole.dtype == torch.float32


@pytest.mark.parametrize("name", RECIPES)
def test_positions_and_keys_change_the_draws_and_the_global_stream_does_not(name: str) -> None:
    augment, pixels = make(**RECIPES[name]), images(1).expand(16, -1, -1, -1)
    first = augment(pixels, 32, 7, torch.arange(16))
    assert len(first.flatten(1).unique(dim=0)) > (1 if name == "none" else 10)
    assert not torch.equal(augment(pixels, 32, 8, torch.arange(16)), first)
    assert not torch.equal(augment(pixels, 32, 7, torch.arange(16, 32)), first)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert torch.equal(augment(pixels, 32, 7, torch.arange(16)), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_flip_does_not_tell_where_the_crop_lies() -> None:
    ramp = torch.arange(32, dtype=torch.uint8).expand(4000, 1, 32, 32)
    row = make(1, crop="pad", flip=0.5)(ramp, 24, 3, torch.arange(4000))[:, 0, 12] * 255
    flipped = row[:, 12] < row[:, 11]
    left = torch.minimum(row[:, 11], row[:, 12]).round().long() - 11
    table = [(left[side] + 3).bincount(minlength=15).numpy() for side in (flipped, ~flipped)]
    assert stats.chi2_contingency(np.stack(table)).pvalue > 1e-4


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_windows_are_identical_whatever_the_batch(chunk: int) -> None:
    def draw(positions: Tensor) -> Tensor:
        return torch.stack(draw_window(uniform(3, positions, 4).T, (0.1, 1.0), (0.75, 4 / 3), 32, 32))

    positions = torch.arange(2000)
    assert torch.equal(torch.cat([draw(part) for part in positions.split(chunk)], 1), draw(positions))


# ---- geometry ----------------------------------------------------------------------------------------


def test_unscaled_cut_copies_exactly_and_is_black_outside() -> None:
    pixels = images(4, 2, 10, 12)
    top, left = torch.tensor([0, -3, 5, 9]), torch.tensor([4, 2, -6, 11])
    flip = torch.tensor([False, True, False, True])
    padded = torch.nn.functional.pad(pixels, (20, 20, 20, 20))
    for row, view in enumerate(cut(pixels, top, left, 8, flip)):
        y, x = int(top[row]) + 20, int(left[row]) + 20
        expected = padded[row, :, y : y + 8, x : x + 8]
        assert torch.equal(view, expected.flip(-1) if flip[row] else expected)


@pytest.mark.parametrize("size", [7, 16, 32, 48])
def test_resample_is_crop_then_antialiased_bilinear_resize(size: int) -> None:
    pixels = images(5, 3, 40, 33)
    window = boxes((0, 0, 40, 33), (3, 5, 20, 11), (10, 30, 1, 3), (39, 0, 1, 33), (4, 1, 32, 32))
    flip = torch.tensor([False, True, False, True, False])
    views = resample(pixels, window, size, flip) / 255
    for row in range(5):
        y, x, h, w = (int(side[row]) for side in window)
        box = pixels[row : row + 1, :, y : y + h, x : x + w].float() / 255
        expected = interpolate(box, (size, size), mode="bilinear", antialias=True, align_corners=False)[0]
        torch.testing.assert_close(views[row], expected.flip(-1) if flip[row] else expected, atol=1e-5, rtol=0)


def test_resample_agrees_with_torch_at_larger_sizes() -> None:
    pixels = images(2, 1, 256, 256)
    views = resample(pixels, boxes((3, 7, 201, 180), (0, 0, 256, 256)), 224) / 255
    box = pixels[:1, :, 3:204, 7:187].float() / 255
    for view, source in zip(views, (box, pixels[1:].float() / 255), strict=True):
        expected = interpolate(source, (224, 224), mode="bilinear", antialias=True)[0]
        torch.testing.assert_close(view, expected, atol=3e-5, rtol=0)


@pytest.mark.parametrize("count", [0, 1, 7, 131, 260])
def test_resample_of_any_number_of_images_is_that_of_each(count: int) -> None:
    pixels, flip = images(count, 3, 36, 36), torch.arange(count) % 3 == 0
    window = draw_window(uniform(3, torch.arange(count), 4).T, (0.1, 1.0), (0.75, 4 / 3), 36, 36)
    views = resample(pixels, window, 32, flip)
    assert views.shape == (count, 3, 32, 32)
    for row in range(0, count, 13):
        one = slice(row, row + 1)
        assert torch.equal(resample(pixels[one], Window(*(side[one] for side in window)), 32, flip[one]), views[one])


def test_resample_looks_only_inside_the_window() -> None:
    pixels = torch.full((1, 1, 32, 32), 255, dtype=torch.uint8)
    pixels[:, :, 8:20, 6:21] = 0
    assert resample(pixels, boxes((8, 6, 12, 15)), 48).abs().max() == 0


def test_resample_without_scaling_is_the_same_as_cut() -> None:
    pixels, flip = images(3), torch.tensor([True, False, True])
    window = boxes((0, 4, 24, 24), (8, 8, 24, 24), (3, 0, 24, 24))
    expected = cut(pixels, window.top_B.long(), window.left_B.long(), 24, flip)
    assert torch.equal(resample(pixels, window, 24, flip), expected.float())


def padded_offsets(count: int, side: int, size: int, flip: float = 0.0) -> tuple[Tensor, Tensor]:
    """Where padded crops began, read from images whose pixels hold their own row and column."""
    place = torch.arange(1, side + 1, dtype=torch.uint8)
    pixels = torch.stack([place[:, None].expand(side, side), place.expand(side, side)])
    views = make(2, crop="pad", flip=flip, padding=0.125)(
        pixels.expand(count, -1, -1, -1), size, 11, torch.arange(count)
    )
    middle = (views[:, :, size // 2, size // 2] * 255).round().long() - 1 - size // 2
    return middle[:, 0], middle[:, 1]


@pytest.mark.parametrize(("side", "size"), [(32, 32), (36, 32)])
def test_padded_crop_offsets_are_uniform(side: int, size: int) -> None:
    reach = size // 8
    choices = side - size + 2 * reach + 1
    for offset in padded_offsets(9000, side, size):
        assert offset.min() == -reach
        assert offset.max() == side - size + reach
        assert stats.chisquare((offset + reach).bincount(minlength=choices).numpy()).pvalue > 1e-4
    y, x = padded_offsets(9000, side, size)
    assert abs(np.corrcoef(y, x)[0, 1]) < 4.5 / 9000**0.5


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.2, 1.0])
@pytest.mark.parametrize("crop", ["none", "resized"])
def test_flip_rate(rate: float, crop: str) -> None:
    pixels = torch.zeros(4000, 1, 8, 8, dtype=torch.uint8)
    pixels[..., :4] = 200
    views = make(1, crop=crop, flip=rate, scale=(1.0, 1.0), ratio=(1.0, 1.0))(pixels, 8, 5, torch.arange(4000))
    flipped = (views[..., -1] > views[..., 0]).all(-1).flatten()
    torch.testing.assert_close(views[flipped].flip(-1) * 255, pixels[flipped].float())
    torch.testing.assert_close(views[~flipped] * 255, pixels[~flipped].float())
    assert stats.binomtest(int(flipped.sum()), 4000, rate).pvalue > 1e-4


def test_resized_windows_have_the_asked_areas_aspects_and_places() -> None:
    window = draw_window(uniform(3, torch.arange(20_000), 4).T, (0.2, 0.5), (0.75, 4 / 3), 1000, 1000)
    share = (window.height_B * window.width_B / 1000**2).numpy()
    aspect = (window.width_B / window.height_B).numpy()
    assert stats.kstest(share, stats.uniform(0.2, 0.3).cdf).pvalue > 1e-4
    assert stats.kstest(aspect, stats.loguniform(0.75, 4 / 3).cdf).pvalue > 1e-4
    for start, length in ((window.top_B, window.height_B), (window.left_B, window.width_B)):
        assert ((start >= 0) & (start + length <= 1000)).all()
        place = (start + 0.5) / (1000 - length + 1)
        assert stats.kstest(place.numpy(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("share", [(0.9, 1.0), (1.0, 1.0), (1e-4, 1e-3)])
def test_windows_stay_inside_small_and_oblong_images(share: tuple[float, float]) -> None:
    window = draw_window(uniform(3, torch.arange(5000), 4).T, share, (0.3, 3.3), 9, 16)
    assert window.height_B.min() >= 1
    assert window.width_B.min() >= 1
    assert (window.top_B + window.height_B).max() <= 9
    assert (window.left_B + window.width_B).max() <= 16
    assert min(window.top_B.min(), window.left_B.min()) == 0


def test_a_views_scale_forces_a_resized_crop() -> None:
    pixels, positions = images(8), torch.arange(8)
    padded, resized = make(crop="pad"), make(crop="resized", scale=(0.1, 0.3))
    assert torch.equal(padded(pixels, 16, 2, positions, (0.1, 0.3)), resized(pixels, 16, 2, positions))
    assert padded(pixels, 48, 2, positions, (0.1, 0.3)).shape == (8, 3, 48, 48)


def test_crop_none_and_prepare_are_the_centre() -> None:
    pixels = images(4, 3, 36, 40)
    centre = pixels[:, :, 2:34, 4:36].float() / 255
    torch.testing.assert_close(make()(pixels, 32, 0, torch.arange(4)), centre, atol=1e-6, rtol=0)
    torch.testing.assert_close(make().prepare(pixels, 32), centre, atol=1e-6, rtol=0)
    normalised = make(plain=False, **RECIPES["all"]).prepare(pixels, 32)
    torch.testing.assert_close(normalised, (centre - 0.4) / 0.25, atol=1e-5, rtol=0)
    assert normalised.is_contiguous()


# ---- colour ------------------------------------------------------------------------------------------


def middle_tones() -> Tensor:
    """Colours far enough from black and white that no change below cuts them off."""
    return torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * 60 + 90


def test_jitter_agrees_with_torchvision() -> None:
    pixels = middle_tones()
    amount = torch.tensor([0.3, -0.3, 0.1, 0.0])
    for index, adjust in enumerate((tvf.adjust_brightness, tvf.adjust_contrast, tvf.adjust_saturation)):
        changes: list[Tensor | None] = [None] * 4
        changes[index] = amount
        ours = jitter(pixels, *changes) / 255
        theirs = torch.stack([adjust(p / 255, 1 + float(a)) for p, a in zip(pixels, amount, strict=True)])
        # torchvision's grey uses .2989 .587 .114, which sums to .9999
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_combined_jitter_is_one_change_after_the_other() -> None:
    pixels = middle_tones()
    changes = [torch.tensor(row) for row in ((0.1, -0.1, 0.2, 0.0), (-0.2, 0.1, 0.0, 0.2))]
    changes += [torch.tensor([0.2, 0.3, -0.3, 0.0]), torch.tensor([0.05, -0.1, 0.1, 0.0])]
    step = pixels
    for index, change in enumerate(changes):
        step = jitter(step, *[change if i == index else None for i in range(4)])
    torch.testing.assert_close(jitter(pixels, *changes), step, atol=1e-3, rtol=0)


def test_hue_keeps_luma_and_grey_and_turns_colours() -> None:
    pixels, luma = middle_tones(), torch.tensor([0.299, 0.587, 0.114])
    turned = jitter(pixels, hue_B=torch.full((4,), 0.2))
    torch.testing.assert_close(
        torch.einsum("bchw,c->bhw", turned - pixels, luma).abs().max(), torch.tensor(0.0), atol=1e-3, rtol=0
    )
    grey = pixels[:, :1].expand(-1, 3, -1, -1)
    torch.testing.assert_close(jitter(grey, hue_B=torch.full((4,), 0.3)), grey, atol=1e-3, rtol=0)
    back = jitter(turned, hue_B=torch.full((4,), -0.2))
    torch.testing.assert_close(back, pixels, atol=1e-3, rtol=0)
    red = torch.tensor([150.0, 100, 100])[None, :, None, None]
    angles = [np.angle(complex(*_chroma_plane(jitter(red, hue_B=torch.tensor([h]))))) for h in (0.0, 0.25)]
    assert abs(angles[1] - angles[0]) == pytest.approx(np.pi / 2, abs=1e-3)


def _chroma_plane(pixel: Tensor) -> tuple[float, float]:
    r, g, b = pixel.flatten().tolist()
    return 0.595716 * r - 0.274453 * g - 0.321263 * b, 0.211456 * r - 0.522591 * g + 0.311135 * b


def test_colour_happens_with_its_probability_and_within_its_strength() -> None:
    pixels = torch.full((4000, 1, 2, 2), 100, dtype=torch.uint8)
    views = make(1, brightness=0.4, color_prob=0.7)(pixels, 2, 9, torch.arange(4000))
    factor = views[:, 0, 0, 0] * 2.55
    changed = (factor - 1).abs() > 1e-5
    assert stats.binomtest(int(changed.sum()), 4000, 0.7).pvalue > 1e-4
    assert stats.kstest(factor[changed].numpy(), stats.uniform(0.6, 0.8).cdf).pvalue > 1e-4


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_any_channel_count_and_values_in_0_to_1(channels: int) -> None:
    strong: dict[str, Any] = {
        "brightness": 1.0,
        "contrast": 1.0,
        "saturation": 1.0,
        "hue": 0.5,
        "color_prob": 1.0,
    }
    for crop in ("pad", "resized", "none"):
        views = make(channels, crop=crop, flip=0.5, **strong)(images(32, channels), 28, 1, torch.arange(32))
        assert views.shape == (32, channels, 28, 28)
        assert views.min() >= 0
        assert views.max() <= 1 + 1e-6


def test_saturation_and_hue_leave_other_channel_counts_alone() -> None:
    pixels = images(4, 5)
    views = make(5, saturation=1.0, hue=0.5, color_prob=1.0)(pixels, 32, 1, torch.arange(4))
    torch.testing.assert_close(views, pixels / 255, atol=1e-6, rtol=0)


def test_contrast_of_grey_images_keeps_their_mean() -> None:
    pixels = (images(8, 1) // 4 + 96).to(torch.uint8)
    views = make(1, contrast=0.5, color_prob=1.0)(pixels, 32, 2, torch.arange(8))
    torch.testing.assert_close(views.mean((1, 2, 3)), (pixels / 255).mean((1, 2, 3)), atol=1e-5, rtol=0)
    assert (views.std((1, 2, 3)) - (pixels / 255).std((1, 2, 3))).abs().min() > 1e-4


# ---- erasing -----------------------------------------------------------------------------------------


def test_erasing_fills_boxes_of_the_right_size_with_normal_noise() -> None:
    pixels = torch.zeros(3000, 2, 32, 32, dtype=torch.uint8)
    views = make(2, erase=0.3, erase_area=(0.05, 0.2))(pixels, 32, 4, torch.arange(3000))
    filled = views != 0
    assert torch.equal(filled[:, 0], filled[:, 1])
    share = filled[:, 0].float().mean((1, 2))
    erased = share > 0
    assert stats.binomtest(int(erased.sum()), 3000, 0.3).pvalue > 1e-4
    assert share[erased].min() > 0.04
    assert share[erased].max() < 0.22
    assert float(share[erased].mean()) == pytest.approx(0.125, abs=0.01)
    for mask in filled[erased][:50, 0]:  # a full rectangle: rows by columns
        assert mask.sum() == mask.any(0).sum() * mask.any(1).sum()
    noise = views[filled].numpy()[:40_000]
    assert stats.kstest(noise, "norm").pvalue > 1e-4
    pairs = views.permute(0, 2, 3, 1)[filled[:, 0]].numpy()
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 4.5 / len(pairs) ** 0.5
    assert abs(np.corrcoef(pairs[:-1, 0], pairs[1:, 0])[0, 1]) < 4.5 / len(pairs) ** 0.5


def test_erasing_nothing_and_everything() -> None:
    pixels, positions = images(6), torch.arange(6)
    untouched = make(erase=1e-9)(pixels, 32, 4, positions)
    torch.testing.assert_close(untouched, pixels / 255, atol=1e-6, rtol=0)
    everything = make(erase=1.0, erase_area=(1.0, 1.0))(pixels, 32, 4, positions)
    assert torch.isfinite(everything).all()
    assert (everything < 0).any((1, 2, 3)).all()


# ---- mistakes ----------------------------------------------------------------------------------------


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="2 channels and std 1"):
        Augmenter(AugmentSpec(crop="none", flip=0.0), [0.5, 0.5], [0.2])
    with pytest.raises(ValueError, match="positive"):
        Augmenter(AugmentSpec(crop="none", flip=0.0), [0.5], [0.0])
    with pytest.raises(RunError, match="not resolved"):
        Augmenter(AugmentSpec(), [0.5], [0.2])
    augment = make()
    with pytest.raises(ValueError, match="does not fit in images of 32 x 32"):
        augment.prepare(images(), 33)
    with pytest.raises(ValueError, match="1 channels, mean and std 3"):
        augment(images(channels=1), 32, 0, torch.arange(16))
    with pytest.raises(ValueError, match="uint8"):
        augment.prepare(images().float(), 32)
