"""RandAugment and TrivialAugment: what is drawn, how often, and that layers happen one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from timm.data import auto_augment as timm_ops
from torch import Tensor

from smallvit.data.augment import Augmenter, policy_of
from smallvit.data.draws import draw_steps
from smallvit.data.policy import NOTHING, OPERATIONS, Drawn, Policy
from smallvit.recipe import AugmentSpec

MANY = 40_000
FILL = (110, 130, 90)


def drawn(policy: Policy, count: int = MANY, key: int = 3) -> Drawn:
    return policy.draw(draw_steps(key, torch.arange(count))["policy"])


def images(count: int, channels: int = 3, size: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, channels, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1)
    return (smooth * 255).to(torch.uint8)


# ---- draws -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_operations_are_equally_likely_and_happen_half_the_time(layers: int) -> None:
    kind, _, _ = drawn(Policy(layers, 0.5, 9.0, 0.5))
    assert kind.shape == (layers, MANY)
    for layer in kind:
        counts = layer.bincount(minlength=NOTHING + 1).numpy()
        assert stats.binomtest(int(counts[NOTHING]), MANY, 0.5).pvalue > 1e-4
        assert stats.chisquare(counts[:NOTHING]).pvalue > 1e-4


def test_layers_are_independent() -> None:
    kind, level, signed = drawn(Policy(2, 1.0, 5.0, 1.0))
    table = np.zeros((NOTHING, NOTHING))
    np.add.at(table, (kind[0].numpy(), kind[1].numpy()), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-4
    for a, b in ((level[0], level[1]), (signed[0], signed[1]), (level[0], kind[0]), (signed[0].sign(), level[0])):
        assert abs(np.corrcoef(a.numpy(), b.numpy())[0, 1]) < 4.5 / MANY**0.5


def test_levels_are_normal_around_the_magnitude_and_end_at_10() -> None:
    _, level, signed = drawn(Policy(1, 0.5, 9.0, 0.5))
    inside = level[level < 10].numpy()
    assert stats.binomtest(len(inside), MANY, stats.norm.cdf(2)).pvalue > 1e-4
    assert stats.kstest(inside, stats.truncnorm(-18, 2, 9, 0.5).cdf).pvalue > 1e-4
    assert level.max() == 10
    assert torch.equal(signed.abs(), level)
    assert stats.binomtest(int((signed < 0).sum()), MANY, 0.5).pvalue > 1e-4


def test_without_deviation_every_level_is_the_magnitude() -> None:
    assert drawn(Policy(2, 0.5, 7.0, 0.0)).level_LB.unique().tolist() == [7.0]


def test_trivial_draws_one_operation_or_none_of_any_level() -> None:
    policy = policy_of(AugmentSpec(trivial=True))
    assert policy is not None
    kind, level, _ = drawn(policy)
    assert kind.shape[0] == 1
    assert stats.chisquare(kind[0].bincount(minlength=NOTHING + 1).numpy()).pvalue > 1e-4
    assert stats.kstest(level[0].numpy() / 10, "uniform").pvalue > 1e-4


def test_the_recipe_decides_the_policy() -> None:
    assert policy_of(AugmentSpec()) is None
    assert policy_of(AugmentSpec(randaugment=2, randaugment_prob=0.0)) is None
    assert policy_of(AugmentSpec(randaugment=2)) == Policy(2, 0.5, 9.0, 0.5)
    spec = AugmentSpec(randaugment=3, randaugment_magnitude=4, randaugment_std=1.5, randaugment_prob=1.0)
    assert policy_of(spec) == Policy(3, 1.0, 4.0, 1.5)


# ---- what happens to the images ------------------------------------------------------------------------


def factor(signed: float) -> float:
    return max(0.1, 1 + 0.09 * signed)


BILINEAR = {"fillcolor": FILL, "resample": Image.Resampling.BILINEAR}
PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "AutoContrast": lambda p, level: ImageOps.autocontrast(p),
    "Equalize": lambda p, level: ImageOps.equalize(p),
    "Invert": lambda p, level: ImageOps.invert(p),
    "Posterize": lambda p, level: ImageOps.posterize(p, max(1, 4 - int(abs(level) * 0.4))),
    "Solarize": lambda p, level: ImageOps.solarize(p, 256 - int(abs(level) * 25.6)),
    "SolarizeAdd": lambda p, level: timm_ops.solarize_add(p, int(abs(level) * 11)),
    "Color": lambda p, level: ImageEnhance.Color(p).enhance(factor(level)),
    "Contrast": lambda p, level: ImageEnhance.Contrast(p).enhance(factor(level)),
    "Brightness": lambda p, level: ImageEnhance.Brightness(p).enhance(factor(level)),
    "Sharpness": lambda p, level: ImageEnhance.Sharpness(p).enhance(factor(level)),
    "Rotate": lambda p, level: timm_ops.rotate(p, level * 3, **BILINEAR),
    "ShearX": lambda p, level: timm_ops.shear_x(p, level * 0.03, **BILINEAR),
    "ShearY": lambda p, level: timm_ops.shear_y(p, level * 0.03, **BILINEAR),
    "TranslateX": lambda p, level: timm_ops.translate_x_rel(p, level * 0.045, **BILINEAR),
    "TranslateY": lambda p, level: timm_ops.translate_y_rel(p, level * 0.045, **BILINEAR),
}


def one_by_one(pixels: Tensor, draws: Drawn) -> Tensor:
    changed = []
    for row, image in enumerate(pixels.permute(0, 2, 3, 1).contiguous().numpy()):
        picture = Image.fromarray(image)
        for kind, signed in zip(draws.kind_LB[:, row].tolist(), draws.signed_LB[:, row].tolist(), strict=True):
            if kind != NOTHING:
                picture = PILLOW[OPERATIONS[kind]](picture, signed)
        changed.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
    return torch.stack(changed)


@pytest.mark.parametrize("policy", [Policy(2, 0.5, 9.0, 0.5), Policy(1, 1.0, None), Policy(4, 0.7, 5.0, 2.0)])
def test_a_batch_agrees_with_pillow_one_image_at_a_time(policy: Policy) -> None:
    count = 600
    pixels = images(count)
    steps = draw_steps(5, torch.arange(count))["policy"]
    draws = policy.draw(steps)
    before = pixels.clone()
    ours = policy(pixels, steps, torch.tensor(FILL, dtype=torch.float32))
    assert torch.equal(pixels, before)
    difference = (ours.int() - one_by_one(pixels, draws).int()).abs().float()
    first_map = OPERATIONS.index("Rotate")
    is_map = (draws.kind_LB >= first_map) & (draws.kind_LB < NOTHING)
    without_maps = ~is_map.any(0)
    assert without_maps.sum() > count / 10
    assert (difference[without_maps] > 1).float().mean() < 1e-3
    # After a map, which may round to the neighbouring value, an operation can make more of the difference.
    assert difference.mean() < 0.8
    assert difference.mean((1, 2, 3)).median() <= 0.6


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("spec", [{"randaugment": 2}, {"trivial": True}, {"randaugment": 4, "randaugment_prob": 1.0}])
def test_any_channel_count(channels: int, spec: dict[str, int]) -> None:
    augment = Augmenter(AugmentSpec(crop="none", flip=0.0, **spec), [0.0] * channels, [1.0] * channels)
    pixels = images(200, channels)
    views = augment(pixels, 32, 1, torch.arange(200))
    assert views.shape == pixels.shape
    assert views.min() >= 0
    assert views.max() <= 1
    assert (views * 255 - (views * 255).round()).abs().max() < 1e-3  # still whole grey values
    changed = (views * 255 - pixels).abs().amax((1, 2, 3)) > 0.5
    assert 0.4 < changed.float().mean() <= 1


@pytest.mark.parametrize("channels", [1, 5])
def test_color_is_left_out_where_there_is_none(channels: int) -> None:
    pixels = images(64, channels)
    # Draws that choose Color for every sample: the middle of its share.
    steps = torch.full((12, 64), (OPERATIONS.index("Color") + 0.5) / NOTHING)
    assert torch.equal(Policy(1, 1.0, 9.0, 0.0)(pixels, steps, torch.zeros(channels)), pixels)


def test_channels_are_treated_alike() -> None:
    """An image of equal channels keeps them equal, whatever happens to it."""
    pixels = images(400, 1).expand(-1, 5, -1, -1).contiguous()
    views = Policy(3, 0.8, 8.0, 1.0)(pixels, draw_steps(1, torch.arange(400))["policy"], torch.full((5,), 99.0))
    assert torch.equal(views, views[:, :1].expand_as(views))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_tiny_images(size: int) -> None:
    augment = Augmenter(AugmentSpec(crop="none", flip=0.5, randaugment=4, randaugment_prob=1.0), [0.0] * 3, [1.0] * 3)
    views = augment(images(300, 3, size), size, 1, torch.arange(300))
    assert torch.isfinite(views).all()


def test_large_images_go_through_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    augment = Augmenter(AugmentSpec(crop="resized", flip=0.5, randaugment=2, erase=0.25), [0.4] * 3, [0.25] * 3)
    pixels, positions = images(30, 3, 40), torch.arange(30)
    whole = augment(pixels, 32, 2, positions)
    for at_once in (1, 10_000, 23_000):
        monkeypatch.setattr("smallvit.data.geometry._IN_CACHE", at_once)
        assert torch.equal(augment(pixels, 32, 2, positions), whole)
