"""Probes give what can be told from made-up features and weights."""

from __future__ import annotations

import pytest
import timm
import torch

import smallvit.models  # noqa: F401
from smallvit.diagnosis.probes import effective_rank, heads, knn_accuracy, layer_vectors, position_similarity
from smallvit.errors import UsageError


def test_neighbours() -> None:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    centres = torch.randn(3, 8, generator=draw)
    apart = 5 * centres[labels] + torch.randn(60, 8, generator=draw)
    assert knn_accuracy(apart[:30], labels[:30], apart[30:], labels[30:]) == 1.0
    noise = torch.randn(60, 8, generator=draw)
    assert knn_accuracy(noise[:30], labels[:30], noise[30:], labels[30:]) < 0.7
    assert knn_accuracy(apart[:2], labels[:2], apart[30:], labels[30:]) < 0.7  # a class that the bank lacks


def test_effective_rank() -> None:
    draw = torch.Generator().manual_seed(0)
    wide = torch.randn(400, 10, generator=draw)
    assert effective_rank(wide) == pytest.approx(10, rel=0.05)
    assert effective_rank(wide[:, :1] @ torch.ones(1, 10) + 7) == pytest.approx(1.0)
    assert effective_rank(torch.ones(5, 4)) == 0.0
    assert effective_rank(wide[:, :3] @ torch.randn(3, 10, generator=draw)) < 3.001


@pytest.mark.parametrize("name", ["vit_pico", "dhvt_pico", "swin_nano", "resnet_nano", "cvt_nano"])
def test_vectors_of_every_block_or_stage(name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=3, in_chans=1)
    images = torch.randn(5, 1, 32, 32)
    found = layer_vectors(model, images.split(2))
    assert list(found) == [info["module"] for info in model.feature_info]
    assert [one.shape for one in found.values()] == [(5, info["num_chs"]) for info in model.feature_info]
    with torch.no_grad():
        grid = model.eval().forward_intermediates(images, intermediates_only=True)[-1]
    torch.testing.assert_close(list(found.values())[-1], grid.mean((2, 3)))
    with pytest.raises(UsageError, match="at least one batch"):
        layer_vectors(model, [])


def test_positions() -> None:
    model = timm.create_model("vit_pico", num_classes=3, in_chans=1, img_size=(16, 24))
    drawn = position_similarity(model)
    assert drawn is not None and drawn.grid == (4, 6) and abs(drawn.correlation) < 0.4
    rows, columns = torch.meshgrid(torch.arange(4.0), torch.arange(6.0), indexing="ij")
    with torch.no_grad():
        model.pos_embed[0, 1:] = torch.stack([rows.flatten(), columns.flatten()], 1).repeat(1, 24)
    learned = position_similarity(model)
    assert learned is not None and learned.correlation > 0.7
    assert position_similarity(timm.create_model("resnet_nano")) is None
    assert position_similarity(timm.create_model("t2t_nano")) is None  # fixed sinusoids


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
    found = heads(model, [torch.randn(3, 1, 16, 16), torch.randn(2, 1, 16, 16)])
    assert [one.layer for one in found] == [f"blocks.{number}.attn" for number in range(6)]
    third = found[2]
    assert third.selectivity_M[0] < 1e-6 < 0.01 < third.selectivity_M[1]
    assert third.likeness_MM[1, 2] == pytest.approx(1.0, abs=1e-5)
    assert third.likeness_MM[0, 1] < 0.95
