"""Draws are a pure function of (key, position, column), and look like independent uniform numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from smallvit.randomness import generator, key_of, uniform

KEYS = [0, 1, 12345, (1 << 63) - 1, key_of(0, "crop"), key_of(7, "flip", 3)]
POSITIONS = torch.arange(50_000)


def test_keys_depend_on_every_part_and_fit_in_63_bits() -> None:
    keys = {key_of(seed, purpose, epoch) for seed in range(20) for purpose in ("a", "b") for epoch in range(20)}
    assert len(keys) == 20 * 2 * 20
    assert all(0 <= key < 1 << 63 for key in keys)
    assert key_of(0, "order", 3) == key_of(0, "order", 3)


def test_generator_starts_from_its_purpose() -> None:
    assert torch.equal(torch.rand(5, generator=generator(1, "x")), torch.rand(5, generator=generator(1, "x")))
    assert not torch.equal(torch.rand(5, generator=generator(1, "x")), torch.rand(5, generator=generator(1, "y")))


def test_a_draw_depends_on_key_and_position_only() -> None:
    whole = uniform(99, POSITIONS[:1000], 4)
    order = torch.randperm(1000)
    assert torch.equal(uniform(99, order, 4), whole[order])
    assert torch.equal(torch.cat([uniform(99, POSITIONS[:300], 4), uniform(99, POSITIONS[300:1000], 4)]), whole)
    assert torch.equal(uniform(99, POSITIONS[:1000].to(torch.int32), 4), whole)
    state = torch.get_rng_state()
    uniform(99, POSITIONS, 1)
    assert torch.equal(torch.get_rng_state(), state), "torch's global stream was touched"


@pytest.mark.parametrize("key", KEYS)
def test_draws_are_uniform(key: int) -> None:
    draws = uniform(key, POSITIONS, 4)
    assert draws.dtype == torch.float32
    assert draws.min() >= 0
    assert draws.max() < 1
    values = draws.double().flatten().numpy()
    assert abs(values.mean() - 1 / 2) < 4 * np.sqrt(1 / 12 / len(values))
    assert abs(values.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / len(values))
    for column in draws.T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("key", KEYS)
def test_draws_are_not_correlated(key: int) -> None:
    draws = uniform(key, POSITIONS, 4).double()
    # Far apart keys are the ordinary case; neighbours must not show either.
    others = [uniform(other, POSITIONS, 4).double() for other in (key ^ 1, key ^ (1 << 40), key_of(key, "sub"))]
    pairs = [(draws[:, i], draws[:, j]) for i in range(4) for j in range(i)]
    pairs += [(draws[:-lag, i], draws[lag:, i]) for lag in (1, 2, 32) for i in range(4)]
    pairs += [(draws[:, i], other[:, i]) for other in others for i in range(4)]
    for a, b in pairs:
        correlation = torch.corrcoef(torch.stack([a, b]))[0, 1]
        assert abs(correlation) < 4.5 / len(a) ** 0.5


def test_low_bits_and_pairs_fill_the_square_evenly() -> None:
    draws = uniform(5, POSITIONS, 2)
    cells = ((draws * 16).long() * torch.tensor([16, 1])).sum(1)
    assert stats.chisquare(cells.bincount(minlength=256).numpy()).pvalue > 1e-4
    low = (draws[:, 0] * (1 << 24)).long() % 64
    assert stats.chisquare(low.bincount(minlength=64).numpy()).pvalue > 1e-4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_on_every_device() -> None:
    assert torch.equal(uniform(3, POSITIONS, 3), uniform(3, POSITIONS.cuda(), 3).cpu())
