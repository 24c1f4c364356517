"""Attention by plain products, in 16 bits on a CPU: the same answers, in every model, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from tiny_runs import training
from torch import Tensor

from smallvit.training import attention
from smallvit.training.loop import take_step
from smallvit.training.session import computing

FUSED = F.scaled_dot_product_attention
B, M, Q, K, E = 2, 3, 17, 11, 8


@pytest.fixture(autouse=True)
def without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "takes_amx", lambda: False)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.dtype]]:
    """Calls that torch's own kernel still gets."""
    calls: list[torch.dtype] = []

    def fused(query: Tensor, *rest: Any, **more: Any) -> Tensor:
        calls.append(query.dtype)
        return FUSED(query, *rest, **more)

    monkeypatch.setattr(attention, "FUSED", fused)
    monkeypatch.setattr(F, "scaled_dot_product_attention", fused)
    yield calls


def given(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, M, count, E, generator=draw, requires_grad=True) for count in (Q, K, K))  # type: ignore[return-value]


MASKS = {
    "none": None,
    "which keys": (torch.arange(K) % 3 > 0).expand(Q, K),
    "a bias": torch.linspace(-2, 2, M * Q * K).reshape(1, M, Q, K),
    "not itself": torch.zeros(Q, K).fill_diagonal_(float("-inf")),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", [None, 0.7])
def test_it_is_attention_up_to_the_digits_of_bf16(mask: str, scale: float | None, counted: list[torch.dtype]) -> None:
    """Answers and gradients, beside torch's in 32 bits."""
    query, key, value = given()
    expected = FUSED(query, key, value, MASKS[mask], scale=scale)
    wanted = torch.autograd.grad(expected.square().sum(), (query, key, value))
    with computing(1), torch.autocast("cpu", torch.bfloat16):
        found = F.scaled_dot_product_attention(query, key, value, MASKS[mask], scale=scale)
        gradients = torch.autograd.grad(found.float().square().sum(), (query, key, value))
    assert not counted and found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.03, rtol=0.03)
    for ours, theirs in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=0.06 * theirs.abs().max().item(), rtol=0.05)


def test_in_32_bits_it_is_torchs_own_to_the_last_bit() -> None:
    query, key, value = given()
    with computing(1):
        found = F.scaled_dot_product_attention(query, key, value)
    assert torch.equal(found, FUSED(query, key, value))


@pytest.mark.parametrize(
    "options", [{"is_causal": True}, {"enable_gqa": True}, {"scores": 1}], ids=lambda options: next(iter(options))
)
def test_what_it_does_not_know_or_what_is_very_long_is_left_to_torch(
    options: dict[str, Any], counted: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "scores" in options:
        monkeypatch.setattr(attention, "MOST_SCORES", B * M * Q * K - 1)
        options = {}
    with computing(1), torch.autocast("cpu", torch.bfloat16):
        F.scaled_dot_product_attention(*given(), **options)
    assert len(counted) == 1


def test_dropout_drops_what_is_looked_at() -> None:
    query, key, value = given()
    with computing(1), torch.autocast("cpu", torch.bfloat16):
        nothing = F.scaled_dot_product_attention(query, key, value, dropout_p=1.0)
        half = F.scaled_dot_product_attention(query, key, torch.ones_like(value), dropout_p=0.5)
    assert nothing.eq(0).all()
    assert half.std() > 0.1 and abs(half.mean() - 1) < 0.2, "1 on average"


@pytest.mark.parametrize("name", ["vit_pico", "dhvt_nano", "t2t_nano", "pvt_v2_b0", "spt_lsa_vit_32", "cait_xxs24_224"])
def test_every_model_comes_through_it_and_answers_the_same(name: str, counted: list[torch.dtype]) -> None:
    """timm's models and ours, whatever they call attention by."""
    size = {} if name in ("pvt_v2_b0", "spt_lsa_vit_32") else {"img_size": 32}
    model = timm.create_model(name, num_classes=5, **size).eval()
    images_BCHW = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), computing(1):
        expected = model(images_BCHW)
        in_32_bits = len(counted)
        with torch.autocast("cpu", torch.bfloat16):
            found = model(images_BCHW)
    assert len(counted) == in_32_bits > 0
    torch.testing.assert_close(found.float(), expected, atol=0.05 * expected.abs().max().item(), rtol=0.05)


def test_torch_is_as_it_was_afterwards_whatever_came_in_between() -> None:
    with pytest.raises(KeyboardInterrupt), computing(1), computing(1):
        assert F.scaled_dot_product_attention is attention.attention
        raise KeyboardInterrupt
    assert F.scaled_dot_product_attention is FUSED
    with ThreadPoolExecutor(4) as pool:  # the page that shows a model answers in threads
        list(pool.map(_compute_a_little, range(40)))
    assert F.scaled_dot_product_attention is FUSED


def _compute_a_little(seed: int) -> None:
    with attention.quick_attention(), torch.autocast("cpu", torch.bfloat16):
        F.scaled_dot_product_attention(*given(seed))


def test_units_for_tiles_have_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the kernel was not seen to be slow."""
    monkeypatch.setattr(attention, "takes_amx", lambda: True)
    with computing(1):
        assert F.scaled_dot_product_attention is FUSED


@pytest.mark.parametrize("again", [False, True])
def test_a_step_in_bf16_comes_through_it_forward_and_backward(again: bool, counted: list[torch.dtype]) -> None:
    """With gradient checkpointing every block is computed a second time, while gradients are: by the same attention, or it would fail."""
    t = training(model="vit_pico", precision="bf16", grad_checkpointing=again)
    counted.clear()
    with computing(1):
        losses = [take_step(t, 0, number, 1e-3)[0].total.item() for number in range(3)]
    assert not counted
    expected = training(model="vit_pico", precision="fp32")
    with computing(1):
        wanted = [take_step(expected, 0, number, 1e-3)[0].total.item() for number in range(3)]
    assert losses == pytest.approx(wanted, rel=0.02) and losses != wanted
