"""Feature maps are the outputs inside the running network, at the time when they are made."""

from __future__ import annotations

import pytest
import timm
import torch

import smallvit.models  # noqa: F401
from smallvit.diagnosis.featuremaps import channel_mean, feature_maps, strongest_channels
from smallvit.errors import UsageError


def test_the_seventeen_convolutions_of_a_resnet18() -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet18_32", num_classes=3).eval()
    images = torch.randn(2, 3, 32, 32)
    found = feature_maps(model, images)
    assert [tuple(one.map_BCHW.shape[1:]) for one in found] == (
        5 * [(64, 32, 32)] + 4 * [(128, 16, 16)] + 4 * [(256, 8, 8)] + 4 * [(512, 4, 4)]
    )
    assert found[0].layer == "conv1" and found[-1].layer == "layer4.1.conv2"
    with torch.no_grad():
        torch.testing.assert_close(found[0].map_BCHW, model.conv1(images))
        after = model.act1(model.bn1(model.conv1(images)))
        torch.testing.assert_close(found[1].map_BCHW, model.layer1[0].conv1(after))
    (normed,) = feature_maps(model, images, ["bn1"])
    assert (normed.map_BCHW < 0).any(), "the activation after it works in place"


def test_named_layers_and_what_is_no_map() -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet_nano", num_classes=3, in_chans=1).eval()
    images = torch.randn(2, 1, 16, 16)
    (stage,) = feature_maps(model, images, ["layer2"])
    _, (grid,) = model.forward_intermediates(images, indices=[2])
    torch.testing.assert_close(stage.map_BCHW, grid)
    assert channel_mean(stage).shape == grid[:, 0].shape
    strongest = strongest_channels(stage, 3)
    assert strongest.shape == (2, 3, *grid.shape[2:])
    spread = strongest.flatten(2).std(2)
    assert (spread[:, 0] >= spread[:, 1]).all() and (spread[:, 1] >= spread[:, 2]).all()
    with pytest.raises(UsageError, match=r"no layer 'layr2'.*layer2"):
        feature_maps(model, images, ["layr2"])
    with pytest.raises(UsageError, match="layer fc gives no map"):
        feature_maps(model, images, ["fc"])
    assert not any(module._forward_hooks for module in model.modules())
