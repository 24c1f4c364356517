"""ResNets for small images end in a grid of about 4 x 4 cells, whatever the size of the images."""

from __future__ import annotations

import pytest
import timm
import torch

from smallvit.models.aliases import architecture


@pytest.mark.parametrize(("img_size", "stride"), [(12, 1), (32, 1), (48, 1), (64, 2), (112, 2), (128, 4), (224, 4)])
def test_the_stem_suits_the_images(img_size: int, stride: int) -> None:
    chosen = architecture("resnet_nano", img_size)
    assert chosen.kwargs == {"stem_stride": stride}
    model = timm.create_model(chosen.timm_name, **chosen.kwargs, num_classes=3, features_only=True).eval()
    with torch.no_grad():
        maps = model(torch.zeros(1, 3, img_size, img_size))
    reductions = [min(2, stride), stride, 2 * stride, 4 * stride, 8 * stride]
    assert model.feature_info.reduction() == reductions
    assert [found.shape[-1] for found in maps] == [-(-img_size // reduction) for reduction in reductions]


def test_weights_do_not_depend_on_the_stride() -> None:
    """What was trained on 32 px starts a run on 64."""
    small, large = (timm.create_model("resnet_nano", stem_stride=stride) for stride in (1, 4))
    shapes = [{name: tensor.shape for name, tensor in model.state_dict().items()} for model in (small, large)]
    assert shapes[0] == shapes[1]


def test_a_stride_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="stem_stride = 3: it may be 1, 2 or 4"):
        timm.create_model("resnet_nano", stem_stride=3)
