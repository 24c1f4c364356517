"""The small ViT of Zhu et al. against numbers from the authors' code.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import timm
import torch
from safetensors import safe_open
from torch import Tensor, nn

import smallvit.models  # noqa: F401
from helpers import GOLDEN
from smallvit.models.features import count_parameters
from smallvit.models.transfer import load_authors_weights

NUMBERS = GOLDEN / "zhu_vit.safetensors"


def golden() -> tuple[dict[str, Any], dict[str, Tensor], Tensor, Tensor]:
    with safe_open(NUMBERS, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        shape = json.loads(file.metadata()["config"])
    weights = {name.removeprefix("state_dict/"): tensor for name, tensor in tensors.items() if "/" in name}
    return shape, weights, tensors["x"], tensors["y"]


def authors_model(**changes: Any) -> tuple[nn.Module, Tensor, Tensor]:
    shape, weights, images, logits = golden()
    arguments = {
        "img_size": shape["image_size"], "embed_dim": shape["dim"], "depth": shape["depth"],
        "num_heads": shape["heads"], "mlp_ratio": shape["mlp_dim"] / shape["dim"], "num_classes": shape["num_classes"],
    }  # fmt: skip
    model = timm.create_model("zhu_vit_patch8_32", **{**arguments, **changes}).eval()
    done = load_authors_weights(model, weights)
    assert not done.missing and not done.dropped and not done.resized
    return model, images, logits


def test_logits_are_those_of_the_authors_code() -> None:
    model, images, logits = authors_model()
    with torch.no_grad():
        torch.testing.assert_close(model(images), logits, rtol=0, atol=2e-6)
    assert logits.sum().item() == pytest.approx(3.269324, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [
        ("zhu_vit_patch4_32", 10, 9_523_722),
        ("zhu_vit_patch4_32", 100, 9_569_892),
        ("zhu_vit_patch8_32", 10, 9_572_874),
        ("zhu_vit_patch8_32", 100, 9_619_044),
    ],
)
def test_parameter_counts(name: str, classes: int, count: int) -> None:
    assert count_parameters(timm.create_model(name, num_classes=classes)) == count


def test_dropout_is_where_the_authors_have_it() -> None:
    """After positions, projection and both layers of the MLP, and not on the attention."""
    model = timm.create_model("zhu_vit_patch4_32", depth=1)
    rates = {name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout) and module.p}
    assert rates == dict.fromkeys(
        ("pos_drop", "blocks.0.attn.proj_drop", "blocks.0.mlp.drop1", "blocks.0.mlp.drop2"), 0.1
    )


def test_initial_weights_are_torchs_and_positions_of_deviation_1() -> None:
    torch.manual_seed(0)
    model = timm.create_model("zhu_vit_patch4_32", depth=1)
    assert model.pos_embed.std().item() == pytest.approx(1, abs=0.02)
    assert model.cls_token.std().item() == pytest.approx(1, abs=0.1)
    bound = 512**-0.5  # uniform, by the number of inputs
    for weight in (model.blocks[0].attn.qkv.weight, model.head.weight):
        assert 0.95 * bound < weight.abs().max().item() <= bound
    assert 0.95 * 48**-0.5 < model.patch_embed.proj.weight.abs().max().item() <= 48**-0.5


def test_grids_through_timms_features_only() -> None:
    model = timm.create_model("zhu_vit_patch8_32", features_only=True, depth=2, out_indices=(0, 1), img_size=(32, 48))
    assert [tuple(grid.shape) for grid in model(torch.zeros(1, 3, 32, 48))] == [(1, 512, 4, 6)] * 2
