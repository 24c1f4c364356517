"""Attention is captured as the model uses it, laid out over the image, and nothing is left behind.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import smallvit.models  # noqa: F401
from helpers import GOLDEN
from smallvit.diagnosis.attention import (
    AttentionMap,
    Tokens,
    among_its_tokens,
    attention_maps,
    head_token_looks,
    laid_out,
    looks,
    on_image,
    regrid,
    rollout,
    rollout_looks,
    scaled,
)
from smallvit.diagnosis.capture import attention_weights, recorded_attention
from smallvit.errors import UsageError

# name, arguments, layers, queries of the first and of the last layer, keys of the first
MODELS: list[tuple[str, dict[str, Any], int, Tokens, Tokens, Tokens]] = [
    ("vit_nano", {"img_size": 32}, 6, Tokens(1, (8, 8)), Tokens(1, (8, 8)), Tokens(1, (8, 8))),
    ("vit_pico", {"img_size": (16, 24)}, 6, Tokens(1, (4, 6)), Tokens(1, (4, 6)), Tokens(1, (4, 6))),
    ("vit_pico", {"img_size": 16, "lsa": True, "spt": True}, 6, *[Tokens(1, (4, 4))] * 3),
    ("dhvt_pico", {"img_size": (16, 24)}, 6, *[Tokens(1, (4, 6), 3)] * 3),
    ("t2t_nano", {"img_size": 16}, 6, *[Tokens(1, (4, 4))] * 3),
    ("t2t_nano", {"img_size": 16, "tokens": "transformer"}, 8, Tokens(0, (8, 8)), Tokens(1, (4, 4)), Tokens(0, (8, 8))),
    ("cvt_nano", {"img_size": 20}, 5, Tokens(0, (10, 10)), Tokens(1, (5, 5)), Tokens(0, (5, 5))),
    ("cvt_nano", {"img_size": (16, 24)}, 5, Tokens(0, (8, 12)), Tokens(1, (4, 6)), Tokens(0, (4, 6))),
    ("swin_nano", {"img_size": 32}, 6, Tokens(0, (16, 16)), Tokens(0, (4, 4)), Tokens(0, (16, 16))),
    ("pvt_v2_b0_32", {"img_size": 32}, 8, Tokens(0, (32, 32)), Tokens(0, (4, 4)), Tokens(0, (4, 4))),
    ("cct_7_3x2_32", {"img_size": 16, "embed_dim": 32}, 7, *[Tokens(0, (4, 4))] * 3),
    ("deit_tiny_distilled_patch16_224", {"img_size": 32, "embed_dim": 24, "depth": 2}, 2, *[Tokens(2, (2, 2))] * 3),
]
IDS = [f"{name}-{arguments['img_size']}-{len(arguments)}" for name, arguments, *_ in MODELS]


def build(name: str, arguments: dict[str, Any]) -> tuple[nn.Module, Tensor]:
    """A model and two images for it; models of any size are not told the size."""
    size = arguments["img_size"]
    torch.manual_seed(0)
    kwargs = {key: value for key, value in arguments.items() if key != "img_size"}
    if timm.models.get_pretrained_cfg(name).fixed_input_size or name.startswith("deit"):
        kwargs["img_size"] = size
    height, width = (size, size) if isinstance(size, int) else size
    model = timm.create_model(name, num_classes=3, in_chans=1, **kwargs)
    return model.eval(), torch.randn(2, 1, height, width)


@pytest.mark.parametrize(("name", "arguments", "count", "first", "last", "keys"), MODELS, ids=IDS)
def test_maps_of_every_model(
    name: str, arguments: dict[str, Any], count: int, first: Tokens, last: Tokens, keys: Tokens
) -> None:
    model, images = build(name, arguments)
    maps = attention_maps(model, images)
    assert len(maps) == count
    assert len({found.layer for found in maps}) == count
    assert (maps[0].queries, maps[-1].queries, maps[0].keys) == (first, last, keys)
    for found in maps:
        assert found.weights_BMQK.shape[0] == 2
        torch.testing.assert_close(found.weights_BMQK.sum(-1), torch.ones(found.weights_BMQK.shape[:-1]))
        assert looks(found).shape[-2:] == found.keys.grid
    for joint, found in zip(rollout(maps), maps, strict=True):
        rows = joint[:, found.queries.cells].sum(-1)
        assert rows.min() > 0.5 and rows.max() < 1 + 1e-5
        if found.queries.front == first.front:  # a class token that enters later brings nothing of the image
            torch.testing.assert_close(rows, torch.ones_like(rows))
    assert rollout_looks(maps)[-1].shape == (2, *first.grid)


@pytest.mark.parametrize(("name", "arguments"), [pair[:2] for pair in MODELS], ids=IDS)
def test_the_model_is_as_it_was(name: str, arguments: dict[str, Any]) -> None:
    model, images = build(name, arguments)
    model.train()
    before = model.eval()(images)
    model.train()
    frozen = next(module for module in model.modules() if isinstance(module, nn.LayerNorm))
    frozen.eval()
    fused, flags = F.scaled_dot_product_attention, [vars(module).get("fused_attn") for module in model.modules()]

    with pytest.raises(RuntimeError, match="on purpose"), recorded_attention(model):
        model(images)
        raise RuntimeError("on purpose")
    with pytest.raises(Exception, match=r"."), recorded_attention(model):
        model(images[:, :, :-1, :-3])  # an image that fails inside the model
        model(torch.zeros(2, 7, 5, 5))

    assert F.scaled_dot_product_attention is fused
    assert [vars(module).get("fused_attn") for module in model.modules()] == flags
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.training and not frozen.training
    assert torch.is_grad_enabled()
    torch.testing.assert_close(model.eval()(images), before, rtol=0, atol=0)


def test_weights_are_those_that_torch_uses() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    bias = torch.randn(5, 5)
    for arguments in (
        {},
        {"scale": 0.3},
        {"attn_mask": bias},
        {"attn_mask": bias > -1},
        {"is_causal": True},
        {"attn_mask": bias, "scale": 1.0},
    ):
        expected = F.scaled_dot_product_attention(q, k, v, **arguments)
        torch.testing.assert_close(attention_weights(q, k, **arguments) @ v, expected)
    few = k[:, :1]
    expected = F.scaled_dot_product_attention(q, few, v[:, :1], enable_gqa=True)
    torch.testing.assert_close(attention_weights(q, few, enable_gqa=True) @ v[:, :1], expected)


def test_weights_of_half_precision_are_not() -> None:
    model, images = build("vit_pico", {"img_size": 16})
    with torch.autocast("cpu", torch.bfloat16):
        maps = attention_maps(model, images)
    assert all(found.weights_BMQK.dtype == torch.float32 for found in maps)


def test_shifted_windows_lie_where_they_look() -> None:
    """A change of one cell's tokens moves the outputs of exactly those cells that attend to it."""
    model, images = build("swin_nano", {"img_size": 24})  # 12 x 12 cells in windows of 4, then 6 x 6 and 3 x 3
    block = model.layers[0].blocks[1]
    assert any(block.shift_size)
    tokens = torch.randn(1, 12, 12, 24)

    def attended(tokens: Tensor) -> Tensor:
        return block._attn(tokens)[0].flatten(0, 1)

    with recorded_attention(block) as calls, torch.no_grad():
        plain = block(tokens), attended(tokens)[:]
    found = laid_out(calls[0], torch.Size((1, 1, 24, 24)))
    assert found.queries == Tokens(0, (12, 12)) and plain
    for cell in (0, 17, 143):
        moved = tokens.clone()
        moved[0, cell // 12, cell % 12] += 1.0
        with torch.no_grad():
            changed = (attended(moved) - attended(tokens)).abs().sum(-1) > 1e-6
        torch.testing.assert_close(changed, found.weights_BMQK[0, :, :, cell].sum(0) > 1e-6)
    # In the next stage 6 x 6 cells do not fill whole windows.
    maps = attention_maps(model, images)
    assert maps[2].queries.grid == (6, 6)


def test_reduced_keys_are_spread_over_what_they_cover() -> None:
    model, images = build("pvt_v2_b0_32", {"img_size": 32})
    found = attention_maps(model, images)[0]
    spread = found.weights_BMQK @ regrid(found.keys, found.queries)
    assert spread.shape[-1] == 32 * 32
    corner = spread[0, 0, 0].view(32, 32)[:8, :8]
    torch.testing.assert_close(corner, corner[0, 0].expand(8, 8))
    torch.testing.assert_close(corner.sum(), found.weights_BMQK[0, 0, 0, 0])
    torch.testing.assert_close(
        regrid(Tokens(0, (1, 2)), Tokens(0, (1, 3))), torch.tensor([[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]])
    )
    torch.testing.assert_close(regrid(Tokens(1, (1, 1)), Tokens(0, (1, 2))), torch.tensor([[0, 0], [0.5, 0.5]]))


def test_cells_that_a_stride_leaves_out_are_looked_at_by_nobody() -> None:
    """PVT reduces 28 x 28 cells by 8 without padding: its 3 x 3 keys are made of 24 x 24 of them."""
    model, images = build("pvt_v2_b0_32", {"img_size": 28})
    found = attention_maps(model, images)[0]
    assert found.queries.grid == (28, 28) and found.keys.grid == (3, 3)
    looked_at = among_its_tokens(found).sum((0, 1, 2)).view(28, 28)
    assert looked_at[:24, :24].min() > 0 and looked_at[24:].sum() == looked_at[:, 24:].sum() == 0
    torch.testing.assert_close(among_its_tokens(found).sum(-1), torch.ones(found.weights_BMQK.shape[:3]))


def test_head_tokens_of_dhvt() -> None:
    model, images = build("dhvt_pico", {"img_size": 16})
    found = attention_maps(model, images)[0]
    seen_BTMHW = head_token_looks(found)
    assert seen_BTMHW.shape == (2, 3, 3, 4, 4)
    torch.testing.assert_close(seen_BTMHW[1, 2, 0].flatten(), found.weights_BMQK[1, 0, 17 + 2, 1:17])
    with pytest.raises(UsageError, match=r"blocks\.0\.attn has no head tokens"):
        head_token_looks(attention_maps(*build("vit_pico", {"img_size": 16}))[0])


def test_only_the_class_token_of_cait_asks() -> None:
    arguments = {"img_size": (32, 48), "embed_dim": 24, "depth": 1, "num_heads": 2, "patch_size": 8}
    torch.manual_seed(0)
    model = timm.create_model("cait_xxs24_224", num_classes=3, in_chans=1, **arguments).eval()
    images = torch.randn(2, 1, 32, 48)
    maps = attention_maps(model, images)
    assert [found.layer for found in maps] == ["blocks_token_only.0.attn", "blocks_token_only.1.attn"]
    block = model.blocks_token_only[0]
    given: list[Tensor] = []
    handle = block.attn.register_forward_pre_hook(lambda _module, args: given.append(args[0]))
    with torch.no_grad():
        model(images)
    handle.remove()
    tokens_BND = given[0]
    query_BE, key_BNE = block.attn.q(tokens_BND[:, 0])[:, :12], block.attn.k(tokens_BND)[..., :12]
    expected_BN = torch.einsum("be,bne->bn", query_BE * 12**-0.5, key_BNE).softmax(1)
    for found in maps:
        assert (found.queries, found.keys, found.tokens) == (Tokens(1, (0, 0)), Tokens(1, (4, 6)), Tokens(1, (4, 6)))
    torch.testing.assert_close(looks(maps[0])[:, 0].flatten(1), expected_BN[:, 1:])
    first, second = rollout(maps)
    torch.testing.assert_close(first[:, 1:], torch.eye(25)[1:].expand(2, 24, 25))  # cells stay what they are
    torch.testing.assert_close(first[:, 0, 1:], maps[0].weights_BMQK.mean(1)[:, 0, 1:] / 2)
    torch.testing.assert_close(second.sum(-1), torch.ones(2, 25))
    assert rollout_looks(maps)[-1].shape == (2, 4, 6)


def test_rollout_is_the_published_one() -> None:
    golden = load_file(GOLDEN / "rollout.safetensors")
    tokens = Tokens(1, (4, 4))
    maps = [AttentionMap(str(layer), one[None], tokens, tokens) for layer, one in enumerate(golden["att"])]
    joints = torch.cat(rollout(maps))
    torch.testing.assert_close(joints, golden["joint"], rtol=1e-5, atol=1e-7)
    masks = torch.cat(scaled(rollout_looks(maps)))
    torch.testing.assert_close(masks, golden["masks"], rtol=1e-5, atol=1e-6)
    sums = torch.tensor([7.811337, 10.438754, 12.043742, 13.158711, 14.335515, 14.915202])
    torch.testing.assert_close(masks.sum((1, 2)), sums, rtol=1e-6, atol=1e-6)


def test_one_scale_for_all_layers_or_one_for_each() -> None:
    layers = [torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[4.0, 2.0]]])]
    assert [layer.tolist() for layer in scaled(layers)] == [[[[0.5, 1.0]]], [[[1.0, 0.5]]]]
    assert [layer.tolist() for layer in scaled(layers, common=True)] == [[[[0.25, 0.5]]], [[[1.0, 0.5]]]]
    assert on_image(layers[0], (4, 8)).shape == (1, 4, 8)


def test_groups_of_cells_that_are_not_swins_are_refused() -> None:
    model = timm.create_model("mobilevit_xxs", num_classes=3)
    with pytest.raises(UsageError, match="attends within groups of cells"):
        attention_maps(model, torch.randn(2, 3, 64, 64))


def test_a_cnn_has_no_attention() -> None:
    model, images = build("resnet_nano", {"img_size": 16})
    assert attention_maps(model, images) == []
    assert rollout_looks([]) == []
