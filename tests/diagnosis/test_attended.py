"""One pass over the images serves everything that is measured of attention."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch

import smallvit.models  # noqa: F401
from smallvit.diagnosis.attended import attend
from smallvit.diagnosis.measurements.what_heads_do import twins
from smallvit.errors import UsageError


def test_every_batch_runs_once_and_no_more_is_kept() -> None:
    torch.manual_seed(0)
    model = timm.create_model("swin_nano", num_classes=3, in_chans=1, img_size=16).eval()
    seen: list[int] = []
    handle = model.register_forward_pre_hook(lambda _module, args: seen.append(len(args[0])))
    images = torch.randn(7, 1, 16, 16)
    found = attend(model, images.split(3))
    handle.remove()
    assert seen == [3, 3, 1]
    assert {len(one.weights_BMQK) for one in found.maps} == {3}, "maps are those of the first batch"
    whole = attend(model, [images])
    for one, other in zip(found.locality + found.heads, whole.locality + whole.heads, strict=True):
        assert one.layer == other.layer
        for a, b in zip(one, other, strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_heads_that_say_nothing_or_the_same() -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_pico", num_classes=3, in_chans=1, img_size=16)
    qkv = model.blocks[2].attn.qkv
    width = model.blocks[2].attn.head_dim
    with torch.no_grad():
        qkv.weight[:width] = 0  # head 0 asks for nothing: every query gets the same
        qkv.bias[:width] = 1.0
        for start in (0, 48):  # queries and keys of head 2 are those of head 1
            qkv.weight[start + 2 * width : start + 3 * width] = qkv.weight[start + width : start + 2 * width]
            qkv.bias[start + 2 * width : start + 3 * width] = qkv.bias[start + width : start + 2 * width]
    found = attend(model, [torch.randn(3, 1, 16, 16), torch.randn(2, 1, 16, 16)]).heads
    assert [one.layer for one in found] == [f"blocks.{number}.attn" for number in range(6)]
    third = found[2]
    assert third.selectivity_M[0] < 1e-6 < 0.01 < third.selectivity_M[1]
    assert third.likeness_MM[1, 2] == pytest.approx(1.0, abs=1e-5)
    assert third.likeness_MM[0, 1] < 0.95


def test_a_twin_may_be_an_opposite() -> None:
    likeness = np.array([[1.0, -0.4, -0.2], [-0.4, 1.0, 0.3], [-0.2, 0.3, 1.0]])
    assert twins(likeness).tolist() == [0.0, -0.4, 0.3]


def test_what_cannot_be_seen_is_named() -> None:
    torch.manual_seed(0)
    groups = attend(timm.create_model("mobilevit_xxs", num_classes=3), [torch.randn(1, 3, 64, 64)])
    assert groups.maps == [] and "groups of cells" in next(iter(groups.left_out.values()))
    channels = timm.create_model("xcit_nano_12_p8_224", num_classes=3, embed_dim=64, depth=1, num_heads=1, img_size=64)
    found = attend(channels, [torch.randn(1, 3, 64, 64)])
    assert found.left_out["blocks.0.attn"] == "layer blocks.0.attn attends among channels, not among cells"
    assert [one.layer for one in found.maps] == [f"cls_attn_blocks.{number}.attn" for number in range(2)]
    assert attend(timm.create_model("resnet_nano"), [torch.randn(1, 3, 16, 16)]) == ([], [], [], {})
    with pytest.raises(UsageError, match="at least one batch"):
        attend(timm.create_model("resnet_nano"), [])


@pytest.mark.parametrize("name", ["vit_pico", "dhvt_pico", "swin_nano", "cvt_nano", "t2t_nano"])
def test_nothing_of_our_models_is_left_out(name: str) -> None:
    assert attend(timm.create_model(name, in_chans=1, num_classes=3), [torch.randn(1, 1, 32, 32)]).left_out == {}
