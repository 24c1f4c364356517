"""What our own models promise beyond training: any size and channels, timm's whole interface, compile and export."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import pytest
import timm
import torch
from our_models import OURS, Size, create, pictures, shallow
from torch import Tensor, nn

WIDE = (32, 48)
SIZES, CHANNELS = ((32, 32), (64, 64), WIDE), (1, 3, 5)
SHAPES = [
    pytest.param(
        size, channels, marks=[] if i == j else pytest.mark.slow
    )  # each once, and all of them with the slow tests
    for i, size in enumerate(SIZES)
    for j, channels in enumerate(CHANNELS)
]
every_model = pytest.mark.parametrize("name", OURS)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def smallest(name: str) -> dict[str, int]:
    """One block, where several would show nothing more."""
    return {"depth": 1} if "depth" in shallow(name) else {}


def gradients(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(3)  # dropout
    model.zero_grad()
    model(images).square().mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# ---- sizes and channels ------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "in_chans"), SHAPES)
@every_model
def test_any_size_and_channels(name: str, size: Size, in_chans: int) -> None:
    model, images = create(name, size, in_chans, **smallest(name)).eval(), pictures(2, size, in_chans)
    with torch.no_grad():
        logits = model(images)
        final, grids = model.forward_intermediates(images)
        assert logits.shape == (2, 7) and logits.isfinite().all() and logits.std() > 0
        assert torch.equal(model(images), logits)
        close(model(images[1:]), logits[1:])
        close(model(images.flip(0)), logits.flip(0))
        close(final, model.forward_features(images))
    # What feature_info says is what comes out.
    told = [
        (info["num_chs"], size[0] // info["reduction"], size[1] // info["reduction"]) for info in model.feature_info
    ]
    assert [tuple(grid.shape[1:]) for grid in grids] == told
    # All of it learns, from the class or from the last grid.
    model.train()
    final, grids = model.forward_intermediates(images)
    (model.forward_head(final).square().mean() + grids[-1].square().mean()).backward()
    for key, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None and gradient.isfinite().all() and gradient.any(), key


@every_model
def test_half_precision_is_finite(name: str) -> None:
    model, images = create(name, **smallest(name)).train(), pictures(2)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images)
    logits.float().square().mean().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


# ---- timm's interface --------------------------------------------------------------------------------


@every_model
def test_the_head_is_timms(name: str) -> None:
    model, images = create(name).eval(), pictures(2)
    with torch.no_grad():
        features = model.forward_features(images)
        pooled = model.forward_head(features, pre_logits=True)
        assert pooled.shape == (2, model.head_hidden_size)
        assert model.num_features == model.feature_info[-1]["num_chs"]
        close(model.forward_head(features), model(images))
        close(model.get_classifier()(pooled), model(images))
        model.reset_classifier(0)
        assert model.num_classes == 0
        close(model(images), pooled)
        assert isinstance(model.get_classifier(), nn.Identity)
        model.reset_classifier(3)
        assert model.num_classes == 3 and model(images).shape == (2, 3)
        assert isinstance(model.get_classifier(), nn.Linear)


@every_model
def test_intermediates_are_timms(name: str) -> None:
    model, images = create(name).eval(), pictures(2)
    with torch.no_grad():
        _, grids = model.forward_intermediates(images)
        last = model.forward_intermediates(images, indices=[-1], intermediates_only=True)
        first = model.forward_intermediates(images, indices=[0], intermediates_only=True, stop_early=True)
        two = model.forward_intermediates(images, indices=2, intermediates_only=True)
    assert len(grids) == len(model.feature_info)
    for found, expected in ((last, grids[-1:]), (first, grids[:1]), (two, grids[-2:])):
        assert len(found) == len(expected)
        for grid, same in zip(found, expected, strict=True):
            close(grid, same)
    pruned = copy.deepcopy(model)
    assert list(pruned.prune_intermediate_layers([0])) == [0]
    with torch.no_grad():
        close(pruned.forward_intermediates(images, indices=[0], intermediates_only=True)[0], grids[0])
    assert sum(1 for _ in pruned.parameters()) < sum(1 for _ in model.parameters())


@every_model
def test_tokens_are_timms(name: str) -> None:
    """Of models whose features are tokens: class tokens beside the grid, unrolled grids, the final norm."""
    model, images = create(name).eval(), pictures(2)
    with torch.no_grad():
        final = model.forward_features(images)
        if final.ndim != 3:
            pytest.skip("its features are a grid")
        grids = model.forward_intermediates(images, intermediates_only=True)
        tokens = model.forward_intermediates(images, output_fmt="NLC", intermediates_only=True)
        for grid_BDHW, tokens_BND in zip(grids, tokens, strict=True):
            close(grid_BDHW.flatten(2).transpose(1, 2), tokens_BND)
        front = model.num_prefix_tokens
        (normed,) = model.forward_intermediates(images, indices=1, norm=True, output_fmt="NLC", intermediates_only=True)
        close(normed, final[:, front:])
        if front:
            with_front = model.forward_intermediates(
                images, return_prefix_tokens=True, norm=True, output_fmt="NLC", intermediates_only=True
            )
            close(torch.cat([with_front[-1][1], with_front[-1][0]], dim=1), final)


def stored(model: nn.Module, images: Tensor) -> int:
    """How many numbers the forward pass keeps for the backward pass."""
    sizes: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(images)
    return sum(sizes)


@every_model
def test_checkpointing_stores_less_for_the_same_gradients(name: str) -> None:
    model, images = create(name).train(), pictures(2)
    plain, plain_stored = gradients(model, images), stored(model, images)
    model.set_grad_checkpointing(True)
    checkpointed, checkpointed_stored = gradients(model, images), stored(model, images)
    assert checkpointed_stored < 0.9 * plain_stored
    assert plain.keys() == checkpointed.keys()
    for key, gradient in plain.items():
        torch.testing.assert_close(checkpointed[key], gradient, rtol=1e-4, atol=1e-5)


@every_model
def test_checkpointing_moves_running_statistics_once(name: str) -> None:
    """The forward pass runs twice; what BatchNorm remembers is of one step."""
    model, images = create(name).train(), pictures(2)
    checkpointed = copy.deepcopy(model)
    checkpointed.set_grad_checkpointing(True)
    gradients(model, images)
    gradients(checkpointed, images)
    for key, buffer in model.named_buffers():
        torch.testing.assert_close(checkpointed.get_buffer(key), buffer, msg=lambda text, key=key: f"{key}: {text}")


@every_model
def test_what_timm_is_told_exists(name: str) -> None:
    model = create(name)
    told = model.default_cfg
    assert isinstance(model.get_submodule(told["classifier"]), nn.Linear)
    assert told["first_conv"] is None or model.get_submodule(told["first_conv"]).weight is not None
    assert told["input_size"][0] == 3 and told["num_classes"] > 0
    assert timm.data.resolve_data_config({}, model=model)["input_size"] == told["input_size"]
    spared = set(getattr(model, "no_weight_decay", set)())
    if "no_weight_decay" in vars(type(model)):  # timm's own classes name tokens that only some of their models have
        assert all(key in vars(model) or model.get_parameter(key) is not None for key in spared)
    # Positions and class tokens add, they do not multiply: decay would only pull them to zero.
    tables = {key for key, p in model.named_parameters() if p.ndim == 3 and p.shape[0] == 1 and "." not in key}
    assert tables <= spared


# ---- compile and export ------------------------------------------------------------------------------


@every_model
def test_compiles_in_one_graph(name: str) -> None:
    model, images = create(name, WIDE, **smallest(name)).eval(), pictures(2, WIDE)
    torch._dynamo.reset()
    with torch.no_grad():
        close(torch.compile(model, backend="eager", fullgraph=True)(images), model(images))
    torch._dynamo.reset()


@every_model
def test_exports_for_any_number_of_images(name: str) -> None:
    model, images = create(name, WIDE, **smallest(name)).eval(), pictures(2, WIDE)
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        program: Any = torch.export.export(model, (images,), dynamic_shapes=({0: batch},))
        close(program.module()(images), model(images))
        close(program.module()(images[:1]), model(images[:1]))


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler")
def test_inductor_gives_the_same_gradients() -> None:
    model, images = create("vit_nano", depth=1, spt=True, lsa=True).eval(), pictures(2)
    expected = gradients(model, images)
    torch._dynamo.reset()
    model.zero_grad()
    torch.compile(model, fullgraph=True)(images).square().mean().backward()
    for key, gradient in expected.items():
        found = model.get_parameter(key).grad
        assert found is not None
        close(found, gradient)
    torch._dynamo.reset()
