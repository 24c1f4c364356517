"""T2T-ViT against numbers from the authors' code, and what timm's tools need of it.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import timm
import torch
from safetensors import safe_open
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from helpers import GOLDEN
from smallvit.models.architectures.t2t import T2tVit, nano_strides_for, sinusoids, strides_for
from smallvit.training.optimizer import parameter_groups

TINY = {"embed_dim": 16, "depth": 2, "num_heads": 2, "token_dim": 8, "num_classes": 3}
KINDS = ["performer", "transformer"]


def tiny(img_size: int | tuple[int, int] = 16, seed: int = 0, **kwargs: Any) -> T2tVit:
    """A small model whose weights are large enough to see every part."""
    torch.manual_seed(seed)
    model = T2tVit(img_size=img_size, **{**TINY, "strides": (1, 2, 2), **kwargs})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def pictures(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def golden(kind: str) -> tuple[dict[str, Any], dict[str, Tensor], Tensor, Tensor]:
    with safe_open(GOLDEN / f"t2t_{kind}.safetensors", "pt") as file:
        configuration = json.loads(file.metadata()["config"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    state = {key.removeprefix("state_dict/"): t for key, t in tensors.items() if key.startswith("state_dict/")}
    configuration["tokens"] = configuration.pop("tokens_type")
    return configuration, state, tensors["x"], tensors["y"]


# ---- the authors' numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_authors_code(kind: str) -> None:
    configuration, state, x, y = golden(kind)
    model = T2tVit(**configuration).eval()
    model.load_state_dict(model.from_authors(state))
    with torch.no_grad():
        torch.testing.assert_close(model(x), y, rtol=0, atol=2e-6)  # an epsilon of 1e-6 in the norms is 1e-5 away


def test_positions_are_those_of_the_authors_code_to_the_bit() -> None:
    state = golden("performer")[1]
    assert torch.equal(sinusoids(5, 32), state["pos_embed"])


@pytest.mark.parametrize(
    ("name", "size", "classes", "arguments", "stored", "trainable", "gmacs"),
    [
        ("t2t_vit_7", 224, 1000, {}, 4_310_222, 4_255_694, 1.147),
        ("t2t_vit_7", 112, 2040, {}, 4_539_870, 4_522_974, 0.2641),
        ("t2t_vit_7", 32, 100, {}, 4_029_770, 4_024_394, 0.0243),
        ("t2t_vit_7", 32, 100, {"strides": (1, 2, 2)}, 4_045_130, 4_024_394, 0.347),
        ("t2t_vit_7", 32, 100, {"strides": (2, 2, 1)}, 4_045_130, 4_024_394, 0.284),
        ("t2t_vit_7", 32, 100, {"strides": (2, 2), "kernels": (3, 3)}, 3_895_258, 3_876_570, 0.270),
        ("t2t_vit_7", 64, 100, {"strides": (2, 2, 2), "kernels": (3, 3, 3)}, 4_021_850, 4_001_114, 0.323),
        ("t2t_vit_14", 224, 1000, {}, 21_545_550, 21_465_806, 4.783),
        ("t2t_vit_14", 64, 100, {"strides": (2, 2, 2)}, 21_148_362, 21_119_306, 1.485),
        ("t2t_vit_t_14", 224, 1000, {}, 21_541_070, 21_465_422, 6.089),
        ("t2t_vit_t_14", 32, 100, {"strides": (1, 2, 2)}, 21_143_882, 21_118_922, 1.617),
    ],
)
def test_sizes_and_costs(
    name: str, size: int, classes: int, arguments: dict[str, Any], stored: int, trainable: int, gmacs: float
) -> None:
    model = timm.create_model(name, img_size=size, num_classes=classes, weight_init="skip", **arguments).eval()
    assert sum(p.numel() for p in model.parameters()) == trainable
    assert sum(t.numel() for t in model.state_dict().values()) == stored
    # As matrix products, which every version counts: torch 2.7 leaves out its attention for CPUs.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(torch.zeros(1, 3, size, size))
    assert counter.get_total_flops() / 2e9 == pytest.approx(gmacs, abs=6e-4)


def test_initial_weights_are_the_authors() -> None:
    torch.manual_seed(0)
    model = timm.create_model("t2t_vit_7", img_size=32, num_classes=100)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    for linear in linears:
        assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert linear.bias is None or not linear.bias.any()
    assert float(model.cls_token.detach().std()) == pytest.approx(0.02, rel=0.2)
    biased = {name: module.bias is not None for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert {name.split(".")[-1] for name, has in biased.items() if not has} == {"qkv"}


def test_random_features_are_orthogonal_and_fixed() -> None:
    model = timm.create_model("t2t_vit_7", img_size=32)
    features = [attention.w for attention in model.patch_embed.attention]
    for w in features:
        assert w.shape == (32, 64)
        torch.testing.assert_close(w @ w.T, 32 * torch.eye(32), rtol=0, atol=1e-4)
    assert not torch.equal(*features)
    assert not any(name.endswith(".w") or name == "pos_embed" for name, _ in model.named_parameters())


def test_drop_path_grows_to_its_rate_and_decay_spares_the_class_token() -> None:
    model = tiny(depth=3, drop_path_rate=0.2)
    rates = [[m.drop_prob for m in block.modules() if isinstance(m, DropPath)] for block in model.blocks]
    assert rates == [[], pytest.approx([0.1, 0.1]), pytest.approx([0.2, 0.2])]
    decayed = {id(p) for p in parameter_groups(model, 0.05)[0]["params"]}  # type: ignore[attr-defined]
    names = {name for name, p in model.named_parameters() if id(p) in decayed}
    assert "cls_token" not in names and "patch_embed.attention.0.kqv.weight" in names
    assert all(name.endswith(".weight") and "norm" not in name for name in names)


# ---- training ------------------------------------------------------------------------------------------


def test_dropout_of_the_performer_is_on_in_training_only() -> None:
    images = pictures(2, 3, 16, 16)
    for kind, noisy in (("performer", True), ("transformer", False)):
        model = tiny(tokens=kind)
        with torch.no_grad():
            assert torch.equal(model(images), model(images))
            model.train()
            assert torch.equal(model(images), model(images)) != noisy
        rates = [m.p for m in model.patch_embed.modules() if isinstance(m, nn.Dropout) and m.p > 0]
        assert rates == ([0.1] * 4 if noisy else [])


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_finite_and_the_performer_stays_in_float32(kind: str) -> None:
    model = tiny(tokens=kind)
    images = 3 * pictures(1, 3, 16, 16)
    windows = pictures(1, 20, 147)
    with torch.no_grad():
        exact = model.patch_embed.attention[0](windows)
        with torch.autocast("cpu", torch.bfloat16):
            assert model(images).isfinite().all()
            assert torch.equal(model.patch_embed.attention[0](windows), exact) == (kind == "performer")
        assert model.bfloat16()(images.bfloat16()).isfinite().all()


def test_nano_is_small_and_learns() -> None:
    torch.manual_seed(0)
    model = timm.create_model("t2t_nano", num_classes=4, in_chans=1, img_size=16)
    assert 0.1e6 < sum(p.numel() for p in model.parameters()) < 0.4e6
    images, labels = pictures(16, 1, 16, 16), torch.arange(16) % 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(25):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.3


# ---- images of every size ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "cells"), [(8, 4), (28, 7), (32, 8), (48, 12), (64, 8), (96, 12), (112, 14), (224, 14)]
)
def test_recommended_strides_leave_a_grid(size: int, cells: int) -> None:
    for strides in (strides_for(size), nano_strides_for(size)):
        model = T2tVit(img_size=size, strides=strides, weight_init="skip", **TINY)
        assert model.patch_embed.grid_size == (cells, cells)
        assert model.feature_info[-1]["reduction"] == size // cells


@pytest.mark.parametrize(("size", "strides", "cells"), [((12, 20), (1, 2, 2), (3, 5)), ((29, 18), (2, 2, 1), (8, 5))])
def test_maps_are_laid_out_as_height_and_width(size: Any, strides: Any, cells: tuple[int, int]) -> None:
    """Without attention and MLP a token sees its own windows alone: a corner of the image moves that corner only."""
    model = tiny(img_size=size, strides=strides, in_chans=1)
    with torch.no_grad():
        for attention in model.patch_embed.attention:
            for silent in (attention.proj, attention.mlp[2]):
                silent.weight.zero_()
                silent.bias.zero_()
        images = pictures(1, 1, *size)
        changed = images.clone()
        changed[..., -1, 0] += 5
        moved = (model.patch_embed(changed) - model.patch_embed(images)).abs().sum(-1).reshape(cells)
    assert moved[-1, 0] > 0
    assert not moved[: cells[0] // 2].any() and not moved[:, cells[1] // 2 + 1 :].any()
    grid = model.forward_intermediates(images, indices=[-1], intermediates_only=True)[0]
    assert grid.shape == (1, 16, *cells)


def test_sizes_that_do_not_fit_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"24 x 16 px .* built for 16 x 16 px"):
        tiny()(pictures(1, 3, 24, 16))
    with pytest.raises(ValueError, match="smaller than the first window"):
        tiny(img_size=2, strides=(4, 2, 2))
    with pytest.raises(ValueError, match="a stride and a kernel for each"):
        tiny(strides=(1, 2))


def test_weights_of_another_size_get_stretched_positions() -> None:
    _, state, _, _ = golden("performer")  # of a 2 x 2 grid
    model = T2tVit(img_size=(32, 48), embed_dim=32, depth=2, num_heads=4, mlp_ratio=2.0, token_dim=8, num_classes=10)
    model.load_state_dict(model.from_authors(state))
    assert torch.equal(model.pos_embed[:, 0], state["pos_embed"][:, 0])
    wanted = state["pos_embed"][:, 1:].reshape(1, 2, 2, 32).permute(0, 3, 1, 2)
    wanted = nn.functional.interpolate(wanted, (2, 3), mode="bicubic")
    torch.testing.assert_close(model.pos_embed[:, 1:], wanted.flatten(2).transpose(1, 2))
    model.set_input_size((48, 64))
    assert model(pictures(1, 3, 48, 64)).shape == (1, 10) and model.pos_embed.shape == (1, 13, 32)


# ---- timm's tools --------------------------------------------------------------------------------------


def test_timm_makes_features_of_it() -> None:
    grids = timm.create_model("t2t_nano", features_only=True, out_indices=(1, 3))(torch.zeros(1, 3, 32, 32))
    assert [tuple(grid.shape) for grid in grids] == [(1, 64, 8, 8)] * 2
