"""DHVT against numbers from the authors' code, its switches, and what timm's tools ask of a model.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors import safe_open
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from helpers import GOLDEN
from smallvit.models.architectures.dhvt import Dhvt
from smallvit.models.features import count_parameters, create_backbone

SWITCHES = ("positions", "sope", "daff", "head_tokens")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def small(**kwargs: Any) -> Dhvt:
    """Two narrow blocks, with nothing left at zero or one."""
    model = Dhvt(**{"embed_dim": 32, "depth": 2, "mlp_ratio": 2.0, **kwargs})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def switched(row: str) -> dict[str, bool]:
    return {name: digit == "1" for name, digit in zip(SWITCHES, row, strict=True)}


# ---- the authors' numbers --------------------------------------------------------------------------------


@pytest.fixture(params=["p2", "p4", "p16"])
def golden(request: pytest.FixtureRequest) -> tuple[Dhvt, dict[str, Tensor]]:
    """A small model with the authors' weights, under the authors' names, and what their code made of `x`."""
    with safe_open(GOLDEN / f"dhvt_{request.param}.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        model = Dhvt(**json.loads(file.metadata()["config"]))
    prefix = "state_dict/"
    model.load_state_dict({key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)})
    return model, tensors


def test_evaluation_gives_the_authors_numbers(golden: tuple[Dhvt, dict[str, Tensor]]) -> None:
    model, tensors = golden
    seen: dict[str, Tensor] = {}
    for name in ("patch_embed", "blocks.0.attn", "blocks.0.mlp", "blocks.0", "blocks.1", "norm"):
        key = "intermediates_in_out/" + name.replace("blocks.", "b")

        def record(_: nn.Module, given: Any, got: Tensor, key: str = key) -> None:
            seen[f"{key}/in"], seen[f"{key}/out"] = given[0], got

        model.get_submodule(name).register_forward_hook(record)
    with torch.no_grad():
        logits = model.eval()(tensors["x"])
    torch.testing.assert_close(logits, tensors["eval_logits"], rtol=0, atol=1e-6)
    assert seen.keys() == {key for key in tensors if key.startswith("intermediates_in_out/")}
    for key, tensor in seen.items():
        torch.testing.assert_close(
            tensor, tensors[key], rtol=1e-6, atol=2e-6, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_training_gives_the_authors_numbers(golden: tuple[Dhvt, dict[str, Tensor]]) -> None:
    model, tensors = golden
    images = tensors["x"].requires_grad_()
    logits = model.train()(images)
    logits.pow(2).sum().backward()
    assert images.grad is not None
    for ours, theirs in ((logits, tensors["train_logits"]), (images.grad, tensors["train_input_grad"])):
        assert (ours - theirs).norm() / theirs.norm() < 1e-5


# ---- counts of the paper's tables ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kwargs", "parameters", "giga_macs"),
    [
        ("dhvt_tiny_patch4_32", {"num_classes": 100}, 6_008_650, 0.3878),
        ("dhvt_tiny_patch4_32", {"num_classes": 10}, 5_991_280, 0.3878),
        ("dhvt_small_patch4_32", {"num_classes": 100}, 23_425_450, 1.5289),
        ("dhvt_tiny_patch2_32", {"num_classes": 100}, 5_845_162, 1.7049),
        ("dhvt_small_patch2_32", {"num_classes": 100}, 22_766_698, 6.1945),
        ("dhvt_tiny_patch16_224", {"num_classes": 345, "num_heads": 4}, 6_105_975, 1.3581),
        ("dhvt_small_patch16_224", {"num_classes": 345}, 23_788_431, 5.0329),
        ("dhvt_tiny_patch16_224", {"num_classes": 1000}, 6_267_334, 1.3546),
        ("dhvt_small_patch16_224", {"num_classes": 1000}, 24_040_606, 5.0331),
    ],
)
def test_sizes_are_the_papers(name: str, kwargs: dict[str, Any], parameters: int, giga_macs: float) -> None:
    with torch.device("meta"):
        model = timm.create_model(name, **kwargs).eval()
        images = torch.zeros(1, *model.default_cfg["input_size"])
    assert count_parameters(model) == parameters
    with FlopCounterMode(display=False) as counter:
        model(images)
    assert round(counter.get_total_flops() / 2e9, 4) == giga_macs


ROWS = {
    "1000": 5_380_132, "0000": 5_367_652, "1100": 5_540_170, "0100": 5_527_690, "1001": 5_503_396,
    "1010": 5_737_828, "0010": 5_725_348, "1110": 5_897_866, "0110": 5_885_386, "0111": 6_008_650,
}  # fmt: skip


@pytest.mark.parametrize(("row", "parameters"), ROWS.items())
def test_every_row_of_the_ablations_is_a_model(row: str, parameters: int) -> None:
    with torch.device("meta"):
        model = timm.create_model("dhvt_tiny_patch4_32", num_classes=100, **switched(row))
    assert count_parameters(model) == parameters


def test_with_every_part_off_it_is_timms_deit() -> None:
    shape = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 5}
    ours = small(**{**shape, "mlp_ratio": 4.0}, **switched("1000")).eval()
    theirs = timm.create_model("deit_tiny_patch16_224", **shape).eval()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-6)


# ---- what each part does ---------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["0000", "1000", "0100", "0010", "0001", "1111"])
def test_every_switch_alone_learns_everywhere(row: str) -> None:
    model = small(img_size=16, **switched(row))
    model(torch.randn(3, 3, 16, 16)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_only_positions_and_convolutions_tell_where_a_patch_lies() -> None:
    """Shuffled patches give the same class token, unless one of the parts that look at neighbours is on."""
    images = torch.randn(1, 3, 16, 16)
    patches = images.unflatten(3, (4, 4)).unflatten(2, (4, 4))  # B C rows 4 columns 4
    shuffled = patches[:, :, torch.tensor([2, 0, 3, 1])][..., torch.tensor([1, 3, 0, 2]), :].flatten(4, 5).flatten(2, 3)
    moved = {}
    for row in ("0000", "0001", "1000", "0100", "0010"):
        model = small(img_size=16, **switched(row)).eval()
        moved[row] = (model(images) - model(shuffled)).abs().max().item() > 1e-4
    assert moved == {"0000": False, "0001": False, "1000": True, "0100": True, "0010": True}


def test_stems_have_their_activations_where_the_code_has_them() -> None:
    kinds = {
        patch: [type(layer).__name__ for layer in small(img_size=32, patch_size=patch).patch_embed.proj]
        for patch in (2, 4, 8, 16)
    }
    conv, gelu = "Sequential", "GELU"
    assert kinds[2] == [conv, gelu]
    assert kinds[4] == [conv, gelu, conv]
    assert kinds[8] == [conv, gelu] * 2 + [conv]
    assert kinds[16] == [conv, gelu] * 3 + [conv]


def test_start_of_training_is_the_authors() -> None:
    model = timm.create_model("dhvt_tiny_patch4_32", depth=2, num_classes=100)
    block = model.blocks[0]
    for weight in (model.head.weight, block.attn.qkv.weight, block.attn.ht_proj.weight, block.mlp.compress.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.attn.pos_embed.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.cls_token.std().item() == pytest.approx(0.02, rel=0.2)
    # Convolutions start as torch starts them: uniform, a deviation of 1/sqrt(3 * inputs).
    assert block.mlp.conv1.weight.std().item() == pytest.approx(1 / math.sqrt(3 * 192), rel=0.02)
    assert block.mlp.conv3.weight.std().item() == pytest.approx(1 / math.sqrt(3 * 768), rel=0.02)
    assert block.mlp.conv2.weight.std().item() == pytest.approx(1 / math.sqrt(3 * 9), rel=0.02)
    assert all(
        p.abs().sum() == 0 for name, p in model.named_parameters() if name.endswith(".bias") and "conv" not in name
    )


def test_weight_decay_spares_what_the_authors_spare() -> None:
    model = small(positions=True)
    plain, decayed = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    ids = {id(p): name for name, p in model.named_parameters()}
    assert plain["weight_decay"] == 0 and decayed["weight_decay"] == 0.05
    names = {ids[id(p)] for p in decayed["params"]}
    assert {"patch_embed.pre_affine.alpha", "patch_embed.post_affine.beta", "blocks.1.attn.pos_embed"} <= names
    assert not names & {"cls_token", "pos_embed", "norm.weight", "blocks.0.mlp.bn1.weight", "head.bias"}


def test_drop_path_grows_with_depth() -> None:
    model = timm.create_model("dhvt_pico", depth=5, drop_path_rate=0.2)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for block in model.blocks]
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


# ---- images of many kinds --------------------------------------------------------------------------------


@pytest.mark.parametrize("patch", [2, 4, 8, 16])
@pytest.mark.parametrize(("in_chans", "img_size"), [(1, 48), (2, (16, 48)), (5, (32, 16))])
def test_any_channels_and_any_grid(patch: int, in_chans: int, img_size: int | tuple[int, int]) -> None:
    model = timm.create_model("dhvt_pico", patch_size=patch, in_chans=in_chans, img_size=img_size, depth=1).eval()
    height, width = (img_size, img_size) if isinstance(img_size, int) else img_size
    logits, grids = model.forward_intermediates(torch.randn(1, in_chans, height, width))
    assert model.forward_head(logits).shape == (1, 10)
    assert grids[0].shape == (1, 48, height // patch, width // patch)


def test_rows_and_columns_are_not_confused() -> None:
    """A wide image is treated as the transposed tall one by transposed kernels."""
    model = small(img_size=(16, 32)).eval()
    images = torch.randn(2, 3, 16, 32)
    before = model(images)
    assert not torch.allclose(model(images.transpose(2, 3)), before, atol=1e-3)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.copy_(module.weight.transpose(2, 3).clone())
    torch.testing.assert_close(model(images.transpose(2, 3)), before, rtol=1e-5, atol=1e-5)


def test_without_positions_the_size_is_free() -> None:
    images = torch.randn(2, 3, 24, 40)
    assert small(img_size=32).eval()(images).shape == (2, 10)
    with pytest.raises(ValueError, match=r"\(6, 10\) patches, but the position embeddings are for \(8, 8\)"):
        small(img_size=32, positions=True)(images)


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"patch_size": 3, "img_size": 33}, "2, 4, 8 or 16"),
        ({"img_size": 30}, "30x30 px cannot be divided into patches of 4"),
        ({"img_size": (32, 30)}, "32x30 px"),
        ({"embed_dim": 36, "patch_size": 16}, "divisible by 8"),
        ({"num_heads": 5}, "divisible by num_heads 5"),
        ({"global_pool": "max"}, "'token'"),
    ],
)
def test_impossible_shapes_are_refused_with_the_reason(kwargs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        small(**kwargs)
    model = small()
    with pytest.raises(ValueError, match="30x32"):
        model(torch.zeros(1, 3, 30, 32))


def test_low_precision_stays_finite() -> None:
    model = small()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(3 * torch.randn(4, 3, 32, 32))
    logits.float().square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# ---- timm's interface ------------------------------------------------------------------------------------


def test_intermediates_are_timms() -> None:
    """The same arguments give timm's own ViT and this model, here without its parts, the same answers."""
    shape = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 5}
    ours = small(**{**shape, "mlp_ratio": 4.0}, **switched("1000")).eval()
    theirs = timm.create_model("deit_tiny_patch16_224", **shape).eval()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 16, 16)
    for arguments in (
        {},
        {"indices": [0]},
        {"indices": 2, "norm": True},
        {"indices": [0, -1], "return_prefix_tokens": True},
        {"indices": [1], "stop_early": True, "output_fmt": "NLC"},
        {"indices": [1], "stop_early": True, "intermediates_only": True},
    ):
        got, expected = (
            ours.forward_intermediates(images, **arguments),
            theirs.forward_intermediates(images, **arguments),
        )
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="NCHW or NLC"):
        ours.forward_intermediates(images, output_fmt="NHWC")


def test_intermediates_agree_with_the_forward_pass() -> None:
    model = small(img_size=16).eval()
    images = torch.randn(2, 3, 16, 24)
    final, grids = model.forward_intermediates(images, norm=True)
    assert torch.equal(model.forward_head(final), model(images))
    assert torch.equal(grids[-1].flatten(2).transpose(1, 2), final[:, 1:])
    assert torch.equal(model.forward_features(images), final)


def test_features_only_and_pruning() -> None:
    model = timm.create_model("dhvt_pico", features_only=True, out_indices=(1, 3))
    assert [grid.shape for grid in model(torch.randn(2, 3, 32, 32))] == [(2, 48, 8, 8)] * 2
    assert model.feature_info.reduction() == [4, 4] and model.feature_info.channels() == [48, 48]
    pruned = small()
    assert pruned.prune_intermediate_layers([0], prune_norm=True) == [0]
    assert len(pruned.blocks) == 1 and isinstance(pruned.get_classifier(), nn.Identity)


def test_classifier_can_be_replaced() -> None:
    model = small().eval()
    images = torch.randn(2, 3, 32, 32)
    model.reset_classifier(3)
    assert model(images).shape == (2, 3) and model.num_classes == 3
    tokens = model.forward_features(images)
    assert torch.equal(model.forward_head(tokens, pre_logits=True), tokens[:, 0])
    model.reset_classifier(0, "avg")
    torch.testing.assert_close(model(images), tokens[:, 1:].mean(1))
    model.reset_classifier(0, "")
    assert torch.equal(model(images), tokens)


def test_checkpointing_changes_no_gradient() -> None:
    model, images = small(drop_path_rate=0.5), torch.randn(4, 3, 32, 32)
    gradients = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        torch.manual_seed(1)
        model(images).square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_compiles_as_one_graph_and_exports_for_any_batch() -> None:
    model, images = small(), torch.randn(2, 3, 32, 32)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(images).sum().backward()
    model.eval()
    batch = torch.export.Dim("batch", max=64)
    exported = torch.export.export(model, (images,), dynamic_shapes={"x": {0: batch}}).module()
    more = torch.randn(5, 3, 32, 32)
    torch.testing.assert_close(exported(more), model(more), rtol=1e-5, atol=1e-6)
    assert torch.equal(model(more), model(more))


# ---- the laptop-sized models -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "peer"), [("dhvt_nano", "vit_nano"), ("dhvt_pico", "vit_pico")])
def test_laptop_sized_models_are_as_small_as_their_peers_and_learn(name: str, peer: str) -> None:
    """Stripes along rows or along columns, of random width and phase under noise, from 96 images in 15 steps."""
    backbone = create_backbone(name, {}, num_classes=2, in_chans=1, img_size=16)
    assert count_parameters(timm.create_model(name)) == pytest.approx(
        count_parameters(timm.create_model(peer)), rel=0.05
    )
    model = backbone.model.train()
    labels = torch.arange(192) % 2
    waves = torch.sin(torch.arange(16) * (1 + torch.rand(192, 1)) + 6 * torch.rand(192, 1))[:, None, None]
    images = torch.where(labels[:, None, None, None] == 0, waves.mT, waves) + torch.randn(192, 1, 16, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(15):
        chosen = slice(32 * (step % 3), 32 * (step % 3) + 32)
        optimizer.zero_grad()
        F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    accuracy = (model.eval()(images[96:]).argmax(1) == labels[96:]).float().mean()
    assert accuracy > 0.8
