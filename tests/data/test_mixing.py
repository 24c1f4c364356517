"""Mixup and CutMix: the numbers of the authors' code, the distributions, what a mixed image consists of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from smallvit.data.mixing import Mixed, _beta, cutmix_box, mix

# From IDMM's CutMix (np.random.seed 0..3, then randint(112) for x and for y): lam, (x1, y1, x2, y2), kept.
GOLDEN = [
    (0.5, (5, 8, 83, 86), 0.514987),
    (0.75, (9, 79, 65, 112), 0.852679),
    (0.9, (23, 0, 57, 32), 0.913265),
    (0.999, (105, 23, 107, 25), 0.999681),
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(count: int, height: int = 16, width: int = 16) -> Tensor:
    """Image i is i everywhere, so a mixed pixel tells where it comes from."""
    return torch.arange(count, dtype=torch.float32)[:, None, None, None].expand(count, 2, height, width)


def expected_share(mixed: Mixed) -> Tensor:
    """The kept share that each image shows, from its mean (needs a partner with another number)."""
    own, partner = torch.arange(len(mixed.lam_B)).float(), mixed.partner_B.float()
    return (mixed.images_BCHW.mean((1, 2, 3)) - partner) / (own - partner)


@pytest.mark.parametrize(("seed", "golden"), list(enumerate(GOLDEN)))
def test_boxes_are_those_of_the_authors_code(seed: int, golden: tuple[float, tuple[int, ...], float]) -> None:
    lam, box, kept = golden
    legacy = np.random.RandomState(seed)
    x, y = (torch.tensor([float(legacy.randint(112))]) for _ in range(2))
    ours = cutmix_box(y, x, torch.tensor([lam]), 112, 112)
    assert (ours.left.item(), ours.top.item(), ours.right.item(), ours.bottom.item()) == box
    assert ours.lam.item() == pytest.approx(kept, abs=1e-6)


def test_boxes_of_oblong_images_and_extremes() -> None:
    box = cutmix_box(torch.tensor([5.0, 0.0]), torch.tensor([10.0, 0.0]), torch.tensor([0.75, 1.0]), 10, 20)
    assert [side[0].item() for side in box[:4]] == [3, 7, 5, 15]
    assert box.lam.tolist() == pytest.approx([1 - 40 / 200, 1.0])


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 1.0, 3.0])
def test_beta_has_its_distribution(alpha: float) -> None:
    draws = _beta(alpha, 40_000, seeded(), torch.device("cpu")).double().numpy()
    cdf = stats.beta(alpha, alpha).cdf
    assert stats.binomtest(int((draws < 0.5).sum()), len(draws), 0.5).pvalue > 1e-4
    # In halves, because a float cannot come as near to 1 as to 0, and small alphas live near both.
    assert stats.kstest(draws[draws < 0.5], lambda x: 2 * cdf(x)).pvalue > 1e-4
    upper = draws[(draws >= 0.5) & (draws < 0.999)]
    assert stats.kstest(upper, lambda x: (cdf(x) - 0.5) / (cdf(0.999) - 0.5)).pvalue > 1e-4
    assert stats.binomtest(int((draws >= 0.999).sum()), len(draws), 1 - cdf(0.999)).pvalue > 1e-4


def test_beta_survives_tiny_alpha() -> None:
    draws = _beta(1e-3, 20_000, seeded(), torch.device("cpu"))
    assert ((draws >= 0) & (draws <= 1)).all()
    assert float(draws.mean()) == pytest.approx(0.5, abs=0.02)


def test_mean_of_the_larger_share_is_that_of_the_authors_code() -> None:
    draws = _beta(0.5, 200_000, seeded(), torch.device("cpu"))
    assert float(torch.maximum(draws, 1 - draws).mean()) == pytest.approx(0.81842, abs=2e-3)


@pytest.mark.parametrize("per", ["batch", "element"])
@pytest.mark.parametrize("alphas", [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_lam_is_the_share_that_was_kept(per: Any, alphas: tuple[float, float]) -> None:
    for seed in range(20):
        mixed = mix(numbered(32), seeded(seed), mixup=alphas[0], cutmix=alphas[1], per=per)
        assert mixed.images_BCHW.shape == (32, 2, 16, 16)
        assert sorted(mixed.partner_B.tolist()) == list(range(32))
        other = mixed.partner_B != torch.arange(32)
        torch.testing.assert_close(expected_share(mixed)[other], mixed.lam_B[other], atol=1e-4, rtol=0)
        if per == "batch":
            assert len(mixed.lam_B.unique()) == 1
        else:
            assert len(mixed.lam_B.unique()) > 5


def test_cutmix_copies_pixels_and_mixup_blends_them() -> None:
    images = torch.rand(16, 3, 12, 20, generator=seeded(9))
    cut = mix(images, seeded(), mixup=0, cutmix=1.0, per="element")
    partner = images[cut.partner_B]
    from_own, from_partner = cut.images_BCHW == images, cut.images_BCHW == partner
    assert (from_own | from_partner).all()
    share = (~from_own).all(1).float().mean((1, 2))
    other = cut.partner_B != torch.arange(16)
    torch.testing.assert_close(1 - share[other], cut.lam_B[other])
    blend = mix(images, seeded(), mixup=1.0, cutmix=0, per="element")
    lam = blend.lam_B[:, None, None, None]
    torch.testing.assert_close(blend.images_BCHW, lam * images + (1 - lam) * images[blend.partner_B])


def test_cutmix_boxes_differ_within_a_batch_only_per_element() -> None:
    for per, most in (("batch", 1), ("element", 40)):
        mixed = mix(numbered(40), seeded(2), mixup=0, cutmix=1.0, per=per)  # type: ignore[arg-type]
        own = torch.arange(40.0)[:, None, None, None]
        changed = (mixed.images_BCHW != own)[mixed.partner_B != torch.arange(40)]
        shapes = len(changed.flatten(1).unique(dim=0))
        assert shapes == 1 if most == 1 else shapes > 20


def test_probabilities() -> None:
    mixed = mix(numbered(6000, 8, 8), seeded(), mixup=1.0, cutmix=1.0, prob=0.6, switch=0.3, per="element")
    blends = (mixed.images_BCHW[:, 0].amax((1, 2)) - mixed.images_BCHW[:, 0].amin((1, 2))) < 1e-3
    touched_by_mixup = blends & (mixed.lam_B < 1)
    assert stats.binomtest(int(touched_by_mixup.sum()), 6000, 0.6 * 0.7).pvalue > 1e-4
    # A cut of small share can round to no pixel at all; with 8 pixels that is lam > 1 - (2/8)^2.
    cuts = (~blends).sum() / 6000
    assert 0.6 * 0.3 * 0.85 < cuts < 0.6 * 0.3 * 1.05
    untouched = mixed.lam_B == 1
    assert torch.equal(mixed.images_BCHW[untouched], numbered(6000, 8, 8)[untouched])


def test_per_batch_probabilities() -> None:
    lam = [mix(numbered(4), seeded(s), mixup=1.0, cutmix=0, prob=0.5).lam_B[0].item() for s in range(600)]
    assert stats.binomtest(sum(value < 1 for value in lam), 600, 0.5).pvalue > 1e-4


@pytest.mark.parametrize("alphas", [(0.5, 0.0), (0.0, 0.5)])
def test_keep_larger(alphas: tuple[float, float]) -> None:
    mixed = mix(numbered(500), seeded(), mixup=alphas[0], cutmix=alphas[1], per="element", keep_larger=True)
    assert mixed.lam_B.min() >= 0.5


def test_partners_are_uniform() -> None:
    partners = torch.stack([mix(numbered(6), seeded(s), mixup=1, cutmix=0).partner_B for s in range(1200)])
    for column in partners.T:
        assert stats.chisquare(column.bincount(minlength=6).numpy()).pvalue > 1e-4


def test_off_changes_nothing() -> None:
    images = numbered(4)
    for off in ({"mixup": 0.0, "cutmix": 0.0}, {"mixup": 1.0, "cutmix": 1.0, "prob": 0.0}):
        mixed = mix(images, seeded(), **off)  # type: ignore[arg-type]
        assert mixed.images_BCHW is images
        assert (mixed.lam_B == 1).all()


def test_only_the_generator_decides() -> None:
    images = torch.rand(8, 3, 8, 8)
    state = torch.get_rng_state()
    first, again = (mix(images, seeded(4), mixup=0.8, cutmix=1.0, per="element") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(mix(images, seeded(5), mixup=0.8, cutmix=1.0).images_BCHW, first.images_BCHW)


def test_gradients_and_half_precision_pass_through() -> None:
    images = torch.rand(4, 3, 8, 8, dtype=torch.bfloat16, requires_grad=True)
    mixed = mix(images, seeded(), mixup=0.8, cutmix=1.0)
    assert mixed.images_BCHW.dtype == torch.bfloat16
    assert mixed.lam_B.dtype == torch.float32
    mixed.images_BCHW.sum().backward()
    assert images.grad is not None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mixup": -1}, "0 \\(off\\) or more"),
        ({"prob": 1.5}, "probabilities"),
        ({"switch": -0.1}, "probabilities"),
        ({"per": "pair"}, "batch, element"),
    ],
)
def test_mistakes_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mix(numbered(4), seeded(), **{"mixup": 1.0, "cutmix": 1.0, **wrong})
