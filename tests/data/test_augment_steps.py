"""Affine maps, grey, blur, solarize and noise beside torchvision; repeats; what a recipe may not ask for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tvf

from smallvit.data.augment import Augmenter
from smallvit.data.colour import blur, jitter, solarize
from smallvit.data.draws import STEPS, draw_steps, noise
from smallvit.data.geometry import affine, warp
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages, Loader
from smallvit.errors import UsageError
from smallvit.recipe import AugmentSpec, build_recipe
from smallvit.types import View


def make(channels: int = 3, **spec: Any) -> Augmenter:
    spec = {"crop": "none", "flip": 0.0, **spec}
    return Augmenter(AugmentSpec(**spec), [0.0] * channels, [1.0] * channels)


def images(count: int, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    coarse = torch.rand(count, channels, 6, 6, generator=torch.Generator().manual_seed(2))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    return (smooth * 255).to(torch.uint8)


def changed(views: Tensor, pixels: Tensor) -> Tensor:
    return (views * 255 - pixels).abs().amax((1, 2, 3)) > 0.01


# ---- affine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(32, 32), (24, 37)])
def test_affine_agrees_with_torchvision(shape: tuple[int, int]) -> None:
    pixels = images(6, 3, *shape)
    turn = torch.tensor([0.0, 30, -75, 10, 180, 0])
    shear = torch.tensor([[0.0, 0], [0, 0], [10, 0], [0, -20], [15, 5], [0, 0]])
    shift = torch.tensor([[0.0, 0], [0, 0], [3, 0], [0, -5], [2, 7], [-4, 6]])
    ours = warp(pixels, affine(turn.deg2rad(), shear.deg2rad(), shift, *shape), torch.tensor([10.0, 20, 30]))
    for row in range(6):
        theirs = tvf.affine(
            pixels[row].float(), float(turn[row]), shift[row].int().tolist(), 1.0, shear[row].tolist(),
            InterpolationMode.BILINEAR, fill=[10.0, 20, 30],
        )  # fmt: skip
        # torchvision mixes the last half pixel with the fill, Pillow and we do not.
        seen = tvf.affine(
            torch.ones(1, *shape), float(turn[row]), shift[row].int().tolist(), 1.0, shear[row].tolist(),
            InterpolationMode.BILINEAR,
        )  # fmt: skip
        inner = (seen[0] > 0.999) | (seen[0] < 0.001)
        assert inner.float().mean() > 0.7
        torch.testing.assert_close(ours[row][:, inner], theirs[:, inner], atol=0.05, rtol=0)


def test_affine_draws_reach_their_limits_and_no_further() -> None:
    count, size = 4000, 33
    pixels = torch.zeros(count, 1, size, size, dtype=torch.uint8)
    pixels[:, :, size // 2, size // 2] = 255  # a point in the middle moves by the shift alone
    views = make(1, translate=0.3, rotate=45)(pixels, size, 1, torch.arange(count))[:, 0]
    place = torch.arange(size) - size // 2
    x, y = ((views.sum(dim) * place).sum(1) / views.sum((1, 2)) for dim in (1, 2))
    for moved in (x, y):
        assert moved.abs().max() <= 0.3 * size + 0.5
        assert stats.kstest((moved / (0.6 * size) + 0.5).numpy(), "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(x, y)[0, 1]) < 4.5 / count**0.5


def test_affine_fills_with_the_mean_colour() -> None:
    augment = Augmenter(AugmentSpec(crop="none", flip=0.0, translate=1.0), [0.2, 0.4, 0.6], [0.5] * 3)
    views = augment(torch.full((200, 3, 16, 16), 255, dtype=torch.uint8), 16, 1, torch.arange(200))
    filled = (views - (1 - torch.tensor([0.2, 0.4, 0.6])[:, None, None]) / 0.5).abs().amax(1) > 0.5
    assert 0.5 < filled.float().mean() < 0.9
    assert views.permute(0, 2, 3, 1)[filled].abs().max() < 0.01  # 0 once normalised


# ---- grey, blur, solarize ------------------------------------------------------------------------------


def test_gray_agrees_with_torchvision_and_happens_with_its_probability() -> None:
    pixels = images(3000)
    views = make(gray=0.3)(pixels, 32, 1, torch.arange(3000))
    grey = changed(views, pixels)
    assert stats.binomtest(int(grey.sum()), 3000, 0.3).pvalue > 1e-4
    theirs = tvf.rgb_to_grayscale(pixels[grey].float() / 255, 3)
    torch.testing.assert_close(views[grey], theirs, atol=1e-3, rtol=0)


def test_gray_comes_after_the_jitter() -> None:
    pixels = images(500)
    colour = {"brightness": 0.3, "contrast": 0.3, "saturation": 0.5, "hue": 0.2, "color_prob": 1.0}
    views = make(gray=1.0, **colour)(pixels, 32, 1, torch.arange(500))
    assert (views - views[:, :1]).abs().max() < 1e-5
    assert changed(views, tvf.rgb_to_grayscale(pixels, 3)).float().mean() > 0.9


@pytest.mark.parametrize("channels", [1, 5])
def test_gray_needs_colour(channels: int) -> None:
    pixels = images(20, channels)
    assert not changed(make(channels, gray=1.0)(pixels, 32, 1, torch.arange(20)), pixels).any()


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_blur_agrees_with_torchvision(channels: int) -> None:
    pixels = images(4, channels, 30, 41).float()
    sigma = torch.tensor([0.1, 0.5, 1.3, 2.0])
    ours = blur(pixels, sigma, 6)
    for row in range(4):
        theirs = tvf.gaussian_blur(pixels[row], [13, 13], [float(sigma[row])] * 2)
        torch.testing.assert_close(ours[row], theirs, atol=0.01, rtol=0)


def test_blur_of_images_smaller_than_its_reach() -> None:
    assert torch.isfinite(blur(images(3, 3, 4, 4).float(), torch.full((3,), 2.0), 6)).all()
    flat = torch.full((2, 1, 1, 1), 80.0)
    torch.testing.assert_close(blur(flat, torch.ones(2), 6), flat)


def test_blur_happens_with_its_probability_and_with_its_widths() -> None:
    point = torch.zeros(2000, 1, 33, 33, dtype=torch.uint8)
    point[:, :, 16, 16] = 255
    views = make(1, blur=0.4, blur_sigma=(0.7, 2.0))(point, 33, 1, torch.arange(2000))[:, 0]
    blurred = views[:, 16, 16] < 0.99
    assert stats.binomtest(int(blurred.sum()), 2000, 0.4).pvalue > 1e-4
    # The height of a Gaussian's middle row, summed across, gives its width back.
    rows = views[blurred].sum(2)
    sigma = (rows * (torch.arange(33) - 16.0).square()).sum(1).sqrt()
    assert (
        stats.kstest((sigma.numpy() - 0.7) / 1.3, "uniform").statistic < 0.06
    )  # cut off at 6 pixels: a little narrower


def test_solarize_agrees_with_torchvision_and_happens_with_its_probability() -> None:
    pixels = images(2000)
    views = make(solarize=0.2)(pixels, 32, 1, torch.arange(2000))
    happened = changed(views, pixels)
    expected = torch.stack([tvf.solarize(image, 128) for image in pixels[happened]])
    torch.testing.assert_close(views[happened] * 255, expected.float(), atol=1e-3, rtol=0)
    light = pixels.amax((1, 2, 3)) >= 128
    assert light.float().mean() > 0.9
    assert stats.binomtest(int(happened[light].sum()), int(light.sum()), 0.2).pvalue > 1e-4
    floats = torch.tensor([0.0, 127.4, 127.6, 200.0, 255.0]).view(1, 1, 1, 5)
    assert solarize(floats, torch.tensor([True])).flatten().tolist() == pytest.approx(
        [0, 127.4, 127.4, 55, 0], abs=1e-4
    )


def test_the_steps_draw_independently() -> None:
    draws = draw_steps(9, torch.arange(20_000))
    assert {name: len(part) for name, part in draws.items()} == STEPS
    columns = torch.cat(list(draws.values())).numpy()
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < 5 / 20_000**0.5
    assert all(stats.kstest(column, "uniform").pvalue > 1e-5 for column in columns)


def test_switching_a_step_on_does_not_change_what_the_others_draw() -> None:
    pixels, positions = images(16), torch.arange(16)
    plain = make(crop="pad", flip=0.5, erase=0.5)(pixels, 32, 4, positions)
    solarized = make(crop="pad", flip=0.5, erase=0.5, solarize=1.0)(pixels, 32, 4, positions)
    # The same crop, flip and erased box with the same noise; only the rest of the image is solarized.
    erased = (plain < 0) | (plain > 1) | (solarized == plain)
    assert (erased | ((solarized - torch.minimum(plain, 1 - plain)).abs() < 1e-5)).all()
    assert 0.02 < ((plain < 0) | (plain > 1)).float().mean() < 0.3


# ---- noise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [0.0, 0.31, 0.5, 1 - 2**-24])
def test_noise_is_normal_and_has_no_pattern(draw: float) -> None:
    values = noise(torch.tensor(draw), torch.arange(300_000)).numpy().astype(np.float64)
    assert np.isfinite(values).all()
    assert stats.kstest(values, "norm").pvalue > 1e-4
    for lag in (1, 2, 3, 31, 32, 33, 224, 1024):
        assert abs(np.corrcoef(values[:-lag], values[lag:])[0, 1]) < 5 / 300_000**0.5
    power = np.abs(np.fft.rfft(values[: 2**18])[1:]) ** 2 / 2**18
    assert power.max() < math.log(2**17) + 8  # of white noise, this is exceeded once in 3,000 times
    neighbour = noise(torch.tensor(draw - 2**-20 if draw else 2**-20), torch.arange(300_000)).numpy()
    assert abs(np.corrcoef(values, neighbour)[0, 1]) < 5 / 300_000**0.5


# ---- the loader ----------------------------------------------------------------------------------------


def loader(count: int = 103, batch_size: int = 10, views: tuple[View, ...] = (View(1, 32),), **options: Any) -> Loader:
    labels = torch.arange(count)
    pictures = ImageSet(images(count), labels, ("a",), {}, (), "", "")
    augmenter = make(crop="pad", flip=0.5, randaugment=2, erase=0.25)
    return Loader(
        DeviceImages(pictures, augmenter, torch.device("cpu")), labels, lambda epoch: views, batch_size, 0, **options
    )


@pytest.mark.parametrize("repeats", [1, 2, 3, 7])
def test_repeats_take_fewer_images_several_times_in_an_epoch_of_the_same_length(repeats: int) -> None:
    repeated = loader(repeats=repeats)
    assert len(repeated) == 10
    order = repeated.order(4)
    assert len(order) == 103
    runs, lengths = order.unique_consecutive(return_counts=True)
    assert len(runs) == len(runs.unique()) == math.ceil(103 / repeats)
    assert (lengths[:-1] == repeats).all()
    assert torch.equal(runs, loader().order(4)[: len(runs)])
    assert not torch.equal(runs, repeated.order(5)[::repeats])


def test_each_repeat_draws_its_own_augmentation() -> None:
    batch = loader(repeats=5).batch(0, 1)
    assert batch.index_B.unique().numel() == 2
    assert len(batch.views[0].flatten(1).unique(dim=0)) == 10


def test_the_recipe_says_how_often() -> None:
    assert build_recipe(overrides={"augment.repeats": 3}).augment.repeats == 3
    assert build_recipe().augment.repeats == 1


@pytest.mark.parametrize("views", [(View(1, 32),), (View(2, 24, (0.4, 1.0)), View(3, 16, (0.1, 0.4)))])
def test_several_batches_at_a_time_are_the_same_batches(views: tuple[View, ...]) -> None:
    grouped, single = loader(views=views), loader(views=views, at_once=1)
    assert grouped.together(2) > 1 and single.together(2) == 1
    for number in (*range(10), 3, 0, 9):
        a, b = grouped.batch(2, number), single.batch(2, number)
        assert torch.equal(a.index_B, b.index_B)
        assert torch.equal(a.labels_B, b.labels_B)
        for x, y, view in zip(a.views, b.views, views, strict=True):
            assert x.shape == (10 * view.copies, 3, view.size, view.size)
            assert x.is_contiguous()
            assert torch.equal(x, y)
    assert not torch.equal(grouped.batch(3, 0).views[0], grouped.batch(2, 0).views[0])


def test_groups_are_small_where_images_are_large() -> None:
    assert loader(views=(View(1, 512),)).together(0) == 1
    assert loader(count=25).together(0) == 2  # no more than the epoch has


# ---- the recipe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"trivial": True, "randaugment": 2}, "augment.trivial = True: excludes randaugment = 2"),
        ({"blur_sigma": [2.0, 1.0]}, "augment.blur_sigma = .* rising order"),
        ({"blur_sigma": [0.0, 1.0]}, "augment.blur_sigma = .* positive"),
        ({"randaugment": 5}, "augment.randaugment = 5: should be at most 4"),
        ({"randaugment": 1.5}, "augment.randaugment = 1.5: should be a whole number"),
        ({"randaugment_magnitude": 11}, "augment.randaugment_magnitude = 11: should be at most 10"),
        ({"gray": 1.2}, "augment.gray = 1.2: should be at most 1"),
        ({"rotate": -5}, "augment.rotate = -5: should be at least 0"),
        ({"shear": 90}, "augment.shear = 90: should be at most 60"),
        ({"repeats": 0}, "augment.repeats = 0: should be at least 1"),
        ({"grey": 0.2}, "unknown key 'augment.grey': did you mean augment.gray"),
    ],
)
def test_what_a_recipe_may_not_ask_for(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_recipe(overrides={f"augment.{key}": value for key, value in asked.items()})


def test_everything_is_off_unless_asked_for() -> None:
    spec = AugmentSpec(crop="none", flip=0.0)
    pixels = images(8)
    views = Augmenter(spec, [0.0] * 3, [1.0] * 3)(pixels, 32, 1, torch.arange(8))
    torch.testing.assert_close(views, pixels / 255, atol=1e-6, rtol=0)


def test_views_can_be_kept_for_a_backward_pass() -> None:
    views = make(randaugment=2)(images(4), 32, 1, torch.arange(4))
    weight = torch.ones(3, requires_grad=True)
    (views * weight[:, None, None]).square().sum().backward()
    assert weight.grad is not None
    assert not views.is_inference()


def test_jitter_with_the_saturation_of_gray_is_gray() -> None:
    pixels = images(3).float()
    grey = jitter(pixels, saturation_B=torch.full((3,), -1.0))
    torch.testing.assert_close(grey / 255, tvf.rgb_to_grayscale(pixels / 255, 3), atol=1e-3, rtol=0)
