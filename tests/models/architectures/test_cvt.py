"""CvT against numbers from the authors' code and from the port of it, and what timm's tools need of it.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file
from timm.layers import DropPath
from timm.optim import param_groups_layer_decay
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from helpers import GOLDEN
from smallvit.models.architectures.cvt import Cvt, strides_for
from smallvit.models.architectures.cvt_parts import depthwise
from smallvit.training.optimizer import parameter_groups

TINY = {"embed_dims": (8, 16, 32), "depths": (1, 1, 2), "num_heads": (1, 2, 4)}
NAMES = ["cvt_13", "cvt_13_gap"]


def tiny(name: str, **kwargs: Any) -> Cvt:
    """A small model whose weights are large enough to see every part."""
    torch.manual_seed(0)
    model = timm.create_model(name, **{**TINY, "num_classes": 3, "patch_strides": (2, 2, 1), **kwargs})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def pictures(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# ---- the authors' numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name", "strides"), [("cvt_official", "cvt_13", (2, 2, 1)), ("cvt_lucid", "cvt_13_gap", (4, 2, 2))]
)
def test_logits_are_those_of_the_authors_code(file: str, name: str, strides: tuple[int, ...]) -> None:
    tensors = load_file(GOLDEN / f"{file}.safetensors")
    state = {key.removeprefix("state_dict/"): t for key, t in tensors.items() if key.startswith("state_dict/")}
    model = timm.create_model(name, **TINY, num_classes=10, patch_strides=strides).eval()
    model.load_state_dict(model.from_authors(state))
    with torch.no_grad():
        torch.testing.assert_close(model(tensors["x"]), tensors["y"], rtol=0, atol=2e-6)
        torch.testing.assert_close(model(tensors["x"][:1]), tensors["y"][:1], rtol=0, atol=2e-6)
    assert model.from_authors(model.state_dict()).keys() == model.state_dict().keys()


@pytest.mark.parametrize(
    ("name", "size", "classes", "arguments", "count", "gmacs"),
    [
        ("cvt_13", 224, 1000, {}, 19_997_480, 4.5661),
        ("cvt_13", 32, 345, {}, 19_745_305, 0.100),
        ("cvt_13", 32, 100, {"patch_strides": (4, 1, 1)}, 19_650_980, 1.124),
        ("cvt_13", 32, 100, {"patch_strides": (2, 2, 1)}, 19_650_980, 1.136),
        ("cvt_13", 32, 100, {"patch_strides": (2, 1, 1)}, 19_650_980, 4.549),
        ("cvt_13", 32, 10, {"patch_strides": (1, 2, 2)}, 19_616_330, 1.391),
        ("cvt_13", 64, 100, {"patch_strides": (4, 2, 1)}, 19_650_980, 1.136),
        ("cvt_13", 64, 100, {}, 19_650_980, 0.351),
        ("cvt_13_gap", 224, 100, {}, 19_589_796, 4.5433),
        ("cvt_13_gap", 32, 10, {"patch_strides": (2, 2, 1)}, 19_555_146, None),
        ("cvt_13_gap", 32, 1000, {"patch_strides": (2, 2, 1)}, 19_936_296, None),
    ],
)
def test_sizes_and_costs(
    name: str, size: int, classes: int, arguments: dict[str, Any], count: int, gmacs: float | None
) -> None:
    model = timm.create_model(name, num_classes=classes, **arguments).eval()
    assert sum(p.numel() for p in model.parameters()) == count
    # As matrix products, which every version counts: torch 2.7 leaves out its attention for CPUs.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(torch.zeros(1, 3, size, size))
    assert gmacs is None or counter.get_total_flops() / 2e9 == pytest.approx(gmacs, abs=6e-4)


def test_initial_weights_are_the_authors() -> None:
    torch.manual_seed(0)
    model = timm.create_model("cvt_13", num_classes=100)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            assert float(module.weight.detach().std()) == pytest.approx(0.02, rel=0.1), name
            assert bool(module.bias.any()) == (name == "head"), name
        if isinstance(module, nn.Conv2d):  # torch's own: uniform within 1 / sqrt(fan in)
            bound = module.weight[0].numel() ** -0.5
            assert 0.9 * bound < float(module.weight.detach().abs().max()) <= bound, name
    assert float(model.stage2.cls_token.detach().std()) == pytest.approx(0.02, rel=0.2)
    port = timm.create_model("cvt_13_gap", num_classes=100)
    assert float(port.stage2.blocks[0].mlp.fc1.weight.detach().abs().max()) == pytest.approx(384**-0.5, rel=0.01)


def test_blocks_are_dropped_in_the_last_stage_only() -> None:
    model = timm.create_model("cvt_13", **{**TINY, "depths": (2, 2, 3)}, drop_path_rate=0.2)
    rates = [
        [block.drop_path.drop_prob if isinstance(block.drop_path, DropPath) else 0.0 for block in stage.blocks]
        for stage in (model.stage0, model.stage1, model.stage2)
    ]
    assert rates == [[0.0, 0.0], [0.0, 0.0], pytest.approx([0.0, 0.1, 0.2])]


@pytest.mark.parametrize("name", NAMES)
def test_decay_spares_norms_biases_and_the_class_token(name: str) -> None:
    model = tiny(name)
    decayed = {id(p) for p in parameter_groups(model, 0.05)[0]["params"]}  # type: ignore[attr-defined]
    names = {key for key, p in model.named_parameters() if id(p) in decayed}
    assert all(key.endswith(".weight") and "norm" not in key and ".bn." not in key for key in names)
    assert {"head.weight", "stage0.patch_embed.proj.weight", "stage2.blocks.1.attn.conv_proj_q.conv.weight"} <= names


# ---- training ------------------------------------------------------------------------------------------


def test_a_map_without_contrast_has_a_gradient() -> None:
    """The port divides by a deviation; that of equal channels is 0."""
    norm = tiny("cvt_13_gap").stage0.patch_embed.norm
    x = torch.ones(1, 2, 8, requires_grad=True)
    norm(x).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_weights_may_be_bfloat16_too(name: str) -> None:
    with torch.no_grad():
        logits = tiny(name).bfloat16()(3 * pictures(1, 3, 32, 32).bfloat16())
    assert logits.dtype == torch.bfloat16 and logits.isfinite().all()


def test_nano_is_small_and_learns() -> None:
    torch.manual_seed(0)
    model = timm.create_model("cvt_nano", num_classes=4, in_chans=1)
    assert 0.1e6 < sum(p.numel() for p in model.parameters()) < 0.4e6
    images, labels = pictures(16, 1, 16, 16), torch.arange(16) % 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.3


# ---- images of every size ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("size", "cells"), [(8, 4), (28, 7), (32, 8), (48, 12), (64, 8), (96, 12), (112, 14), (224, 14)]
)
def test_recommended_strides_leave_a_grid(name: str, size: int, cells: int) -> None:
    model = tiny(name, patch_strides=strides_for(size))
    with torch.no_grad():
        grids = model.forward_intermediates(torch.zeros(1, 3, size, size), intermediates_only=True)
    assert grids[-1].shape == (1, 32, cells, cells)
    assert [grid.shape[2] for grid in grids] == [size // info["reduction"] for info in model.feature_info]


@pytest.mark.parametrize("name", NAMES)
def test_one_model_reads_images_of_any_size(name: str) -> None:
    model = tiny(name, in_chans=5)
    for height, width, cells in ((32, 48, (8, 12)), (31, 18, (8, 5)), (1, 7, (1, 2))):
        with torch.no_grad():
            images = pictures(1, 5, height, width)
            grid = model.forward_intermediates(images, indices=1, intermediates_only=True)[0]
            assert grid.shape == (1, 32, *cells)
            assert model(images).isfinite().all()
            # Turning image and kernels gives the turned map: no side is taken for the other.
            turned = tiny(name, in_chans=5)
            turned.load_state_dict({k: t.mT if t.ndim == 4 else t for k, t in model.state_dict().items()})
            torch.testing.assert_close(turned(images.mT), model(images), rtol=1e-4, atol=1e-4)


def test_images_smaller_than_the_first_window_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"2 x 9 is too small .* needs 3 x 3"):
        tiny("cvt_13", patch_strides=(4, 2, 2))(pictures(1, 3, 2, 9))


# ---- timm's tools --------------------------------------------------------------------------------------


def test_what_timm_may_ask_and_cvt_cannot_give_is_refused() -> None:
    with pytest.raises(ValueError, match="NCHW or NLC"):
        tiny("cvt_13").forward_intermediates(pictures(2, 3, 32, 32), output_fmt="NHWC")
    with pytest.raises(ValueError, match="global_pool"):
        tiny("cvt_13_gap").reset_classifier(5, "token")


def test_stopping_early_runs_no_later_stage() -> None:
    model = tiny("cvt_13")
    model.stage1.register_forward_hook(lambda *_: pytest.fail("stage 1 was run"))
    model.forward_intermediates(pictures(1, 3, 16, 16), [0], stop_early=True, intermediates_only=True)


@pytest.mark.parametrize("name", NAMES)
def test_timm_makes_a_pyramid_of_it(name: str) -> None:
    features = timm.create_model(name, **TINY, features_only=True, out_indices=(0, 2))
    with torch.no_grad():
        assert [tuple(g.shape[1:]) for g in features(pictures(1, 3, 64, 64))] == [(8, 16, 16), (32, 4, 4)]
    assert features.feature_info.reduction() == [4, 16]


def test_layers_are_ordered_for_layer_decay() -> None:
    model = tiny("cvt_13")
    groups = param_groups_layer_decay(model, weight_decay=0.05, layer_decay=0.5)
    scale_of = {id(parameter): group["lr_scale"] for group in groups for parameter in group["params"]}
    scales = {name: scale_of[id(parameter)] for name, parameter in model.named_parameters()}
    order = ["stage0.patch_embed.proj.weight", "stage0.blocks.0.mlp.fc1.weight", "stage2.cls_token", "norm.weight"]
    found = [scales[name] for name in order]
    assert found == sorted(found) and len(set(found)) == 4 and scales["head.weight"] == 1.0


def test_in_bf16_on_a_cpu_a_strided_depthwise_convolution_keeps_32_bits() -> None:
    """In 16 bits its backward pass takes 25 times as long there; all else is multiplied in bf16."""
    even, halved = (depthwise(8, stride) for stride in (1, 2))
    assert even.state_dict().keys() == halved.state_dict().keys()
    map_BDHW = pictures(2, 8, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert even.conv(map_BDHW).dtype == torch.bfloat16
        found = halved.conv(map_BDHW.bfloat16())
    assert torch.equal(found, F.conv2d(map_BDHW.bfloat16().float(), halved.conv.weight, None, 2, 1, groups=8))
