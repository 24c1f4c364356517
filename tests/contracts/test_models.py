"""What every model must keep to, whoever wrote it: one of each family of timm's, and all of ours.

What only our own models promise is in test_our_models.py.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
import timm
import torch
from our_models import OURS, shallow
from torch import Tensor

from smallvit.errors import UsageError
from smallvit.evaluation.model_file import read_tensors, write_tensors
from smallvit.models.aliases import ALIASES, architecture
from smallvit.models.features import Backbone, check_model_name, count_parameters, create_backbone

K = 7  # classes

# The grids that must come out, width and side, where they are known beforehand: at 32 px, of ours.
GRIDS = {
    "vit_nano": [(64, 8)],
    "vit_pico": [(48, 8)],
    "zhu_vit_patch4_32": [(512, 8)],
    "zhu_vit_patch8_32": [(512, 4)],
    "spt_lsa_vit_32": [(192, 8)],
    "cct_7_3x1_32": [(256, 16)],
    "cct_7_3x2_32": [(256, 8)],
    "resnet_nano": [(16, 32), (16, 32), (32, 16), (64, 8), (96, 4)],
    "resnet18_32": [(64, 32), (64, 32), (128, 16), (256, 8), (512, 4)],
    "resnet50_32": [(64, 32), (256, 32), (512, 16), (1024, 8), (2048, 4)],
    "pvt_v2_b0_32": [(32, 32), (64, 16), (160, 8), (256, 4)],
}
# Name, arguments, size and grids: the smallest of each family of timm's, made smaller where it can be.
TIMM = [
    ("deit_tiny_patch16_224", {"patch_size": 4, "depth": 2}, 32, [(192, 8)]),  # class token
    ("vit_tiny_patch16_224", {"patch_size": 8, "depth": 2, "class_token": False, "global_pool": "avg"}, 32, [(192, 4)]),
    ("vit_medium_patch16_reg4_gap_256", {"depth": 2}, 64, [(512, 4)]),  # registers, no class token
    ("vit_little_patch16_reg1_gap_256", {"depth": 2}, 64, [(320, 4)]),
    (
        "swin_tiny_patch4_window7_224",
        {"patch_size": 1, "window_size": 4},
        32,
        [(96, 32), (192, 16), (384, 8), (768, 4)],
    ),
    ("pvt_v2_b0", {}, 64, [(32, 16), (64, 8), (160, 4), (256, 2)]),
    ("resnet10t", {}, 64, [(64, 32), (64, 16), (128, 8), (256, 4), (512, 2)]),
    ("convnext_atto", {}, 64, [(40, 16), (80, 8), (160, 4), (320, 2)]),
    ("efficientnet_lite0", {}, 64, [(16, 32), (24, 16), (40, 8), (112, 4), (320, 2)]),
    ("mobilenetv3_small_050", {}, 64, [(16, 32), (8, 16), (16, 8), (24, 4), (288, 2)]),
    ("fastvit_t8", {}, 64, [(48, 16), (96, 8), (192, 4), (384, 2)]),  # a strided 1x1 convolution in the stem
    ("repvgg_a0", {}, 64, None),
    ("dla46_c", {}, 64, None),  # a convolution as classifier
    ("densenet121", {}, 32, [(1024, 1)]),  # timm gives no intermediates
    ("vgg11_bn", {"mlp_ratio": 0.02}, 32, [(512, 1)]),
    ("mixer_s32_224", {}, 64, [(512, 2)]),
]
OTHERS = [pytest.param(*case, id=case[0]) for case in TIMM]
ALL = [
    *[pytest.param(name, None, 32, GRIDS.get(name), id=name) for name in OURS],
    pytest.param("vit_pico", {"patch_size": 2}, 8, [(48, 4)], id="vit_pico-8px"),
    *OTHERS,
]


def build(name: str, kwargs: dict[str, Any], size: int, in_chans: int = 3) -> Backbone:
    torch.manual_seed(0)
    backbone = create_backbone(name, kwargs, num_classes=K, in_chans=in_chans, img_size=size)
    with torch.no_grad():
        for parameter in backbone.parameters():  # zeros at the start (heads, last scales) would hide mistakes
            parameter.add_(0.02 * torch.randn_like(parameter))
    return backbone


def pictures(count: int, size: int, in_chans: int = 3) -> Tensor:
    return torch.randn(count, in_chans, size, size, generator=torch.Generator().manual_seed(1))


def logits(backbone: Backbone, images: Tensor) -> Tensor:
    with torch.no_grad():
        return backbone.classify(backbone(images).pooled_BD)


@pytest.mark.parametrize(("name", "kwargs", "size", "grids"), ALL)
def test_contract(
    name: str, kwargs: dict[str, Any] | None, size: int, grids: list[tuple[int, int]] | None, tmp_path: Any
) -> None:
    kwargs = shallow(name) if kwargs is None else kwargs
    backbone = build(name, kwargs, size).eval()
    images = pictures(3, size)
    with torch.no_grad():
        features = backbone(images)
        ours, theirs = backbone.classify(features.pooled_BD), backbone.model(images)
    # Shapes.
    assert features.pooled_BD.shape == (3, backbone.model.head_hidden_size)
    assert ours.shape == (3, K)
    assert all(grid.shape[0] == 3 and grid.ndim == 4 for grid in features.grids)
    assert grids is None or [(grid.shape[1], *grid.shape[2:]) for grid in features.grids] == [
        (d, s, s) for d, s in grids
    ]
    assert backbone.final_grid == features.grids[-1].shape[2:]
    # The same answers as timm gives, again and again, in any order, one by one.
    assert ours.std() > 0
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert torch.equal(logits(backbone, images), ours)
    torch.testing.assert_close(logits(backbone, images.flip(0)), ours.flip(0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(logits(backbone, images[1:2]), ours[1:2], rtol=1e-3, atol=1e-3)
    # Stored and loaded: the same to the bit.
    write_tensors(tmp_path / "weights", backbone.state_dict(), {})
    other = create_backbone(name, kwargs, num_classes=K, in_chans=3, img_size=size)
    other.load_state_dict(read_tensors(tmp_path / "weights")[0])
    assert torch.equal(logits(other.eval(), images), ours)
    # All of it learns.
    backbone.train()
    found = backbone(images)
    (backbone.classify(found.pooled_BD).square().mean()).backward()
    unused = [key for key, p in backbone.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not unused
    # The grids can be learnt from, too: DRLoc does.
    backbone.zero_grad()
    backbone(images).grids[-1].square().mean().backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in backbone.parameters())


@pytest.mark.parametrize(("name", "kwargs", "size", "grids"), [case for case in OTHERS if case.id != "dla46_c"])
def test_grey_images(name: str, kwargs: dict[str, Any], size: int, grids: Any) -> None:
    backbone = build(name, kwargs, size, in_chans=1).eval()
    assert logits(backbone, pictures(2, size, in_chans=1)).isfinite().all()


# ---- aliases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [28, 32, 64, 96])
@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_keep_a_grid_to_look_at(alias: str, size: int) -> None:
    plan = architecture(alias, size)
    backbone = create_backbone(plan.timm_name, plan.kwargs, num_classes=K, in_chans=1, img_size=size)
    assert min(backbone.final_grid) >= (4 if size != 28 else 3)
    assert max(backbone.final_grid) <= 14


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_at_224_are_the_models_of_the_papers(alias: str) -> None:
    plan = architecture(alias, 224)
    backbone = create_backbone(plan.timm_name, plan.kwargs, num_classes=K, in_chans=3, img_size=224)
    assert backbone.final_grid == (
        (7, 7) if alias.startswith(("swin", "pvt", "hybrid", "conv", "resnet")) else (14, 14)
    )


def test_patches_divide_every_size_or_say_which_size_to_take() -> None:
    refused = []
    for size in range(4, 257):
        try:
            patch = architecture("vit_nano", size).kwargs["patch_size"]
        except UsageError as refusal:
            better = int(str(refusal).rpartition(" ")[2])
            assert 0 < size - better < 16 and architecture("vit_nano", better)
            refused.append(size)
        else:
            assert size % patch == 0 and size // patch <= 32
            assert size // patch >= 3 or size < 8
    assert refused[:3] == [37, 41, 43]
    assert [architecture("vit_nano", size).kwargs["patch_size"] for size in (8, 28, 32, 50, 64, 96, 224)] == [
        2, 4, 4, 10, 8, 8, 16,
    ]  # fmt: skip


# ---- numbers of parameters, as printed in papers and counted in the authors' code ----------------------


@pytest.mark.parametrize(
    ("alias", "classes", "count"),
    [
        ("deit_tiny", 100, 5_380_132),
        ("resnet18_32", 10, 11_173_962),
        ("resnet18_32", 100, 11_220_132),
        ("resnet50_32", 10, 23_520_842),
        ("swin_tiny", 100, 27_575_374),
        ("pvt_b0", 100, 3_435_460),
    ],
)
def test_parameter_counts(alias: str, classes: int, count: int) -> None:
    plan = architecture(alias, 32)
    backbone = create_backbone(plan.timm_name, plan.kwargs, num_classes=classes, in_chans=3, img_size=32)
    assert count_parameters(backbone) == count


@pytest.mark.parametrize(
    ("name", "low", "high"), [("vit_nano", 0.15e6, 0.4e6), ("vit_pico", 0.1e6, 0.2e6), ("resnet_nano", 0.1e6, 0.4e6)]
)
def test_laptop_sized_models_are(name: str, low: float, high: float) -> None:
    assert low < count_parameters(create_backbone(name, {}, num_classes=10, in_chans=3, img_size=32)) < high


# ---- timm's registry -----------------------------------------------------------------------------------


def test_no_name_of_timm_is_overridden() -> None:
    theirs = {name for key, module in sys.modules.items() if key.startswith("timm.models") for name in vars(module)}
    assert not set(OURS) & theirs
    assert set(GRIDS) <= set(OURS)


def test_ours_are_timm_models() -> None:
    model = timm.create_model("vit_nano", num_classes=5, in_chans=1, img_size=28)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 5)
    assert timm.create_model("resnet18_32", features_only=True)(torch.zeros(1, 3, 32, 32))[-1].shape == (1, 512, 4, 4)


# ---- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kwargs", "size", "reason"),
    [
        ("vit_nano", {"patch_size": 64}, 32, "[Kk]ernel size"),
        ("vit_nano", {"embed_dim": 50}, 32, "divisible"),
        ("vit_nano", {"no_such_argument": 1}, 32, "no_such_argument"),
        ("resnet_nano", {"num_classes": 3}, 32, "num_classes"),
        ("resnet18.no_such_tag", {}, 32, "no_such_tag"),
        ("deit_tiny_distilled_patch16_224", {}, 32, "more than one classifier"),
        ("crossvit_tiny_240", {}, 240, "several feature tensors"),
        ("inception_v3", {}, 32, "[Kk]ernel size"),
    ],
)
def test_models_that_cannot_be_used_are_refused_with_the_reason(
    name: str, kwargs: dict[str, Any], size: int, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as refusal:
        create_backbone(name, kwargs, num_classes=K, in_chans=3, img_size=size)
    assert name in str(refusal.value) and f"3 channels of {size} px" in str(refusal.value)


def test_drop_path_where_there_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="drop_path_rate"):
        create_backbone("densenet121", {}, num_classes=K, in_chans=3, img_size=32, drop_path=0.1)


@pytest.mark.parametrize(
    ("name", "near"), [("vit_nanno", "vit_nano"), ("resnet18_3", "resnet18_32"), ("deit_tyni", "deit_tiny")]
)
def test_unknown_names_come_with_the_nearest(name: str, near: str) -> None:
    for refuse in (check_model_name, lambda n: create_backbone(n, {}, num_classes=2, in_chans=1, img_size=32)):
        with pytest.raises(UsageError, match=f"did you mean .*{near}"):
            refuse(name)


def test_trying_a_model_draws_nothing_and_leaves_it_untouched() -> None:
    """Only the initial weights are drawn: the same as timm alone draws."""
    torch.manual_seed(4)
    backbone = create_backbone("resnet_nano", {}, num_classes=K, in_chans=3, img_size=32)
    after = torch.rand(1)
    torch.manual_seed(4)
    model = timm.create_model("resnet_nano", num_classes=K, in_chans=3)
    assert torch.equal(after, torch.rand(1))
    for name, tensor in model.state_dict().items():
        assert torch.equal(backbone.model.state_dict()[name], tensor), name
