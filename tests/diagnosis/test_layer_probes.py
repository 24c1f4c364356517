"""Vectors of layers and tables of positions, against what can be told from made-up weights."""

from __future__ import annotations

import pytest
import timm
import torch

import smallvit.models  # noqa: F401
from smallvit.diagnosis.inputs import Inputs, Known, Labelled
from smallvit.diagnosis.layer_features import layer_vectors, position_similarity
from smallvit.diagnosis.measurements.block_features import Neighbours, Rank
from smallvit.errors import UsageError
from smallvit.evaluation.probes import Frozen, collapse_signs, knn_probe
from smallvit.models.features import create_backbone


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


def test_neighbours_and_rank_are_those_of_the_probe() -> None:
    torch.manual_seed(0)
    backbone = create_backbone("vit_pico", {}, num_classes=3, in_chans=1, img_size=16)
    train, judged = (Labelled(torch.randn(40, 1, 16, 16), torch.arange(40) % 3, torch.zeros(40, 3)) for _ in range(2))
    inputs = Inputs(backbone, backbone, judged, train, Known("test", classes=3))
    neighbours, rank = Neighbours().measure(inputs), Rank().measure(inputs)
    assert neighbours is not None and rank is not None
    bank, asked = (layer_vectors(backbone.model, [part.images_NCHW]) for part in (train, judged))
    for place, name in enumerate(neighbours.labels["layers"]):
        probed = knn_probe(Frozen(bank[name], train.labels_N), Frozen(asked[name], judged.labels_N), 3)
        assert neighbours.arrays["accuracy"][place] == probed["accuracy"]
        assert rank.arrays["rank"][place] == pytest.approx(collapse_signs(asked[name]).effective_rank)


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
