"""Distance, spread and nearness of attention, against what can be counted by hand."""

from __future__ import annotations

import pytest
import timm
import torch

import smallvit.models  # noqa: F401
from smallvit.diagnosis import attention_maps, locality
from smallvit.diagnosis.distances import distances, uniform_locality
from smallvit.errors import UsageError


def test_distances_are_in_widths_of_the_image() -> None:
    apart = distances((2, 4), high=0.5)  # square cells
    assert apart[0].tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 0.25, 0.125**0.5, 0.3125**0.5, 0.625**0.5])


def test_cells_that_are_not_square_are_no_further_apart() -> None:
    square, tall = uniform_locality((8, 8)), uniform_locality((8, 4))
    assert tall.distance_M.item() == pytest.approx(square.distance_M.item(), rel=0.05)
    model = timm.create_model("vit_pico", img_size=16, patch_size=(2, 4), num_classes=2).eval()
    assert attention_maps(model, torch.randn(2, 3, 16, 16))[0].queries.grid == (8, 4)
    first = locality(model, [torch.randn(2, 3, 16, 16)])[0]  # before training it looks nearly everywhere
    assert first.distance_M.mean().item() == pytest.approx(tall.distance_M.item(), rel=0.1)


def test_uniform_attention() -> None:
    found = uniform_locality((4, 4))
    assert found.entropy_M.item() == pytest.approx(1.0)
    assert found.distance_M.item() == pytest.approx(distances((4, 4)).mean().item())
    # 3 x 3 around the 4 inner cells, 2 x 3 at the 8 edges, 2 x 2 in the 4 corners
    assert found.near_M.item() == pytest.approx((4 * 9 + 8 * 6 + 4 * 4) / 16 / 16)


def sharpened(layer: object) -> None:
    """Queries and keys that make every token of timm's attention look at tokens like itself."""
    with torch.no_grad():
        dim = layer.qkv.in_features  # type: ignore[attr-defined]
        layer.qkv.weight[: 2 * dim] = 100 * torch.eye(dim).repeat(2, 1)  # type: ignore[attr-defined]
        layer.qkv.bias.zero_()  # type: ignore[attr-defined]


def test_a_layer_that_looks_at_itself_is_near() -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_pico", num_classes=3, in_chans=1, img_size=16).eval()
    sharpened(model.blocks[0].attn)
    first, second, *_ = locality(model, [torch.randn(3, 1, 16, 16), torch.randn(1, 1, 16, 16)])
    assert first.layer == "blocks.0.attn" and first.grid == (4, 4)
    assert first.distance_M.max() < 0.02 and first.entropy_M.max() < 0.02 and first.near_M.min() > 0.98
    even = uniform_locality((4, 4))
    torch.testing.assert_close(second.distance_M, even.distance_M.expand(3), atol=0.1, rtol=0)
    assert second.entropy_M.min() > 0.8


def test_batches_do_not_matter() -> None:
    torch.manual_seed(0)
    model = timm.create_model("dhvt_pico", num_classes=3, in_chans=1, img_size=16).eval()
    images = torch.randn(6, 1, 16, 16)
    whole, parts = locality(model, [images]), locality(model, [images[:1], images[1:]])
    for one, other in zip(whole, parts, strict=True):
        for a, b in zip(one[2:], other[2:], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_windows_look_no_further_than_they_reach() -> None:
    torch.manual_seed(0)
    model = timm.create_model("swin_nano", num_classes=3, in_chans=1, img_size=32).eval()
    images = torch.randn(2, 1, 32, 32)
    found = locality(model, [images])
    reach = distances((4, 4)).mean() * 4 / 16  # of windows of 4 x 4 on a grid of 16 x 16
    assert found[0].distance_M.max() < 1.3 * reach
    assert len(found) == len(attention_maps(model, images))


def test_without_images() -> None:
    with pytest.raises(UsageError, match="at least one batch"):
        locality(timm.create_model("resnet_nano"), [])
