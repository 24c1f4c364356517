"""swin_nano: timm's Swin at laptop size, on images of every size."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn

import smallvit.models  # noqa: F401  (registers swin_nano with timm)


def build(img_size: int | tuple[int, int] = 32, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    model = timm.create_model("swin_nano", num_classes=3, in_chans=1, img_size=img_size, **kwargs)
    with torch.no_grad():  # a head that starts at zero would hide mistakes
        model.head.fc.weight.normal_()
    return model.eval()


def pictures(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("size", "grids", "windows"),
    [
        ((32, 32), [(16, 16), (8, 8), (4, 4)], [(4, 4), (4, 4), (4, 4)]),
        ((64, 64), [(32, 32), (16, 16), (8, 8)], [(4, 4), (4, 4), (4, 4)]),
        ((28, 28), [(14, 14), (7, 7), (4, 4)], [(4, 4), (4, 4), (4, 4)]),
        ((50, 50), [(25, 25), (13, 13), (7, 7)], [(4, 4), (4, 4), (4, 4)]),
        ((24, 40), [(12, 20), (6, 10), (3, 5)], [(4, 4), (4, 4), (3, 4)]),
        ((8, 16), [(4, 8), (2, 4), (1, 2)], [(4, 4), (2, 4), (1, 2)]),
    ],
)
def test_windows_fit_the_grids(size: tuple[int, int], grids: list[Any], windows: list[Any]) -> None:
    model = build(size)
    with torch.no_grad():
        final, found = model.forward_intermediates(pictures(1, 1, *size))
        assert [tuple(grid.shape[2:]) for grid in found] == grids
        assert model.forward_head(final).isfinite().all()
    for stage, grid, window in zip(model.layers, grids, windows, strict=True):
        for number, block in enumerate(stage.blocks):
            assert block.input_resolution == grid and block.window_size == window
            # Every other block looks across the edges of the windows, where there is more than one.
            shifted = tuple(2 if number % 2 and cells > side else 0 for cells, side in zip(grid, window, strict=True))
            assert block.shift_size == shifted
            assert block.attn.window_size == window


def test_where_grids_are_even_it_is_timms_model() -> None:
    """Only the plan for odd grids differs: the same weights give the same logits."""
    model = build(32)
    theirs = SwinTransformer(
        img_size=32, patch_size=2, window_size=4, in_chans=1, num_classes=3, embed_dim=24, depths=(2, 2, 2),
        num_heads=(2, 4, 8), mlp_ratio=2.0, drop_path_rate=0.0,
    ).eval()  # fmt: skip
    theirs.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(pictures(2, 1, 32, 32)), theirs(pictures(2, 1, 32, 32)))


def test_a_replanned_attention_keeps_its_rates_and_initial_weights() -> None:
    model = build(28, attn_drop_rate=0.3, proj_drop_rate=0.2, qkv_bias=False)
    block = model.layers[2].blocks[1]
    assert (block.attn.attn_drop.p, block.attn.proj_drop.p, block.attn.qkv.bias) == (0.3, 0.2, None)
    bound = (6 / (96 + 3 * 96)) ** 0.5  # Xavier's
    assert float(block.attn.qkv.weight.detach().abs().max()) == pytest.approx(bound, rel=0.3)


def test_nothing_is_dropped_unless_asked() -> None:
    model = build(16).train()
    assert torch.equal(model(pictures(2, 1, 16, 16)), model(pictures(2, 1, 16, 16)))


def test_every_parameter_gets_a_gradient_in_bfloat16_too() -> None:
    model = build(28).train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(pictures(2, 1, 28, 28)).float().square().sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_it_is_small_and_learns() -> None:
    torch.manual_seed(0)
    model = timm.create_model("swin_nano", num_classes=4, in_chans=1, img_size=16)
    assert 0.1e6 < sum(p.numel() for p in model.parameters()) < 0.4e6
    images, labels = pictures(16, 1, 16, 16), torch.arange(16) % 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(25):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.3


def test_timm_builds_and_cuts_it() -> None:
    features = timm.create_model("swin_nano", features_only=True)
    assert [tuple(grid.shape) for grid in features(torch.zeros(1, 3, 32, 32))] == [
        (1, 16, 16, 24), (1, 8, 8, 48), (1, 4, 4, 96),
    ]  # fmt: skip
    assert features.feature_info.reduction() == [2, 4, 8]
