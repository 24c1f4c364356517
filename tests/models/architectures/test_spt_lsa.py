"""Shifted patches and locality self-attention against numbers from the authors' code."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from reference_values import images_by_formula, weights_by_formula
from torch import Tensor, nn

import smallvit.models  # noqa: F401
from smallvit.models.architectures.spt_lsa import LocalityAttention, ShiftedPatchEmbed, with_diagonal_shifts
from smallvit.models.features import count_parameters, create_backbone
from smallvit.models.transfer import load_authors_weights

BOTH = [[-0.871695, -0.477713, 0.358027], [-0.881632, -0.520358, 0.384209]]
LSA = [[-0.742725, -0.345192, -0.087013], [-0.674780, -0.139823, -0.335892]]
SPT = [[-0.715063, -0.148375, 0.284099], [-0.647304, -0.183716, 0.315761]]


def authors_shapes(spt: bool, lsa: bool) -> dict[str, tuple[int, ...]]:
    width, hidden, seen = 16, 32, (5 if spt else 1) * 3 * 16
    patches: dict[str, tuple[int, ...]]
    if spt:
        patches = {f"to_patch_embedding.merging.1.{name}": (seen,) for name in ("weight", "bias")}
        patches |= {"to_patch_embedding.merging.2.weight": (width, seen), "to_patch_embedding.merging.2.bias": (width,)}
    else:
        patches = {"to_patch_embedding.1.weight": (width, seen), "to_patch_embedding.1.bias": (width,)}
    shapes: dict[str, tuple[int, ...]] = patches | {
        "pos_embedding": (1, 5, width),
        "cls_token": (1, 1, width),
        "mlp_head.0.weight": (width,),
        "mlp_head.0.bias": (width,),
        "mlp_head.1.weight": (3, width),
        "mlp_head.1.bias": (3,),
    }
    for i in range(2):
        block = {
            "0.norm.weight": (width,), "0.norm.bias": (width,), "1.norm.weight": (width,), "1.norm.bias": (width,),
            "0.fn.to_qkv.weight": (3 * width, width),
            "0.fn.to_out.0.weight": (width, width), "0.fn.to_out.0.bias": (width,),
            "1.fn.net.0.weight": (hidden, width), "1.fn.net.0.bias": (hidden,),
            "1.fn.net.3.weight": (width, hidden), "1.fn.net.3.bias": (width,),
            **({"0.fn.scale": (2,)} if lsa else {}),
        }  # fmt: skip
        shapes |= {f"transformer.layers.{i}.{name}": shape for name, shape in block.items()}
    return shapes


@pytest.mark.parametrize(("spt", "lsa", "logits"), [(True, True, BOTH), (False, True, LSA), (True, False, SPT)])
def test_logits_are_those_of_the_authors_code(spt: bool, lsa: bool, logits: list[list[float]]) -> None:
    model = timm.create_model(
        "spt_lsa_vit_32", img_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3, spt=spt, lsa=lsa
    ).eval()
    done = load_authors_weights(model, weights_by_formula(authors_shapes(spt, lsa)))
    assert not done.missing and not done.dropped and not done.resized
    with torch.no_grad():
        torch.testing.assert_close(model(images_by_formula()), torch.tensor(logits), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("size", "spt", "lsa", "count"),
    [
        (32, False, False, 2_709_796), (32, False, True, 2_709_904),
        (32, True, False, 2_747_140), (32, True, True, 2_747_248),
        (64, False, False, 2_737_444), (64, False, True, 2_737_552),
        (64, True, False, 2_886_820), (64, True, True, 2_886_928),
    ],
)  # fmt: skip
def test_parameter_counts(size: int, spt: bool, lsa: bool, count: int) -> None:
    model = timm.create_model("spt_lsa_vit_32", img_size=size, patch_size=size // 8, num_classes=100, spt=spt, lsa=lsa)
    assert count_parameters(model) == count


def test_rates_and_initial_weights_are_the_authors() -> None:
    torch.manual_seed(0)
    model = timm.create_model("spt_lsa_vit_32")
    assert {block.drop_path1.drop_prob for block in model.blocks} == {0.1}
    assert {block.drop_path2.drop_prob for block in model.blocks} == {0.1}
    assert model.pos_embed.std().item() == pytest.approx(1, abs=0.03)
    assert model.blocks[0].attn.qkv.weight.std().item() == pytest.approx((2 / (192 + 576)) ** 0.5, rel=0.02)
    assert not model.head.bias.any()
    assert torch.equal(model.blocks[0].attn.scale, torch.full((12,), 0.25))


# ---- the parts ---------------------------------------------------------------------------------------


def test_shifts_are_the_authors_in_their_order() -> None:
    images = torch.arange(192.0).reshape(1, 3, 8, 8)
    views = with_diagonal_shifts(images, 2, 2)
    assert [views[0, 3 * view].sum().item() for view in range(5)] == [2016, 810, 882, 1386, 1458]
    assert views[0, 3, 2, 2] == images[0, 0, 0, 0] and views[0, 12, 5, 5] == images[0, 0, 7, 7]


def test_a_patch_sees_half_a_patch_beyond_its_border_and_no_further() -> None:
    embed = ShiftedPatchEmbed(img_size=16, patch_size=4, in_chans=2, embed_dim=8)
    images = torch.randn(1, 2, 16, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    embed(images)[0, 5].sum().backward()  # the patch of rows and columns 4 to 7
    assert images.grad is not None
    seen = images.grad[0].abs().sum(0) > 0
    assert seen[2:10, 2:10].all() and seen.sum() == 64


def attention_of(call: Any) -> list[tuple[Tensor, Tensor]]:
    """Query and mask of every attention in `call`, seen where other tools look: at torch's function."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        original = F.scaled_dot_product_attention

        def watching(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            assert options["scale"] == 1.0
            weights = (q @ k.transpose(-2, -1) + options["attn_mask"]).softmax(-1)
            seen.append((weights, options["attn_mask"]))
            return original(q, k, v, **options)

        patch.setattr(F, "scaled_dot_product_attention", watching)
        call()
    return seen


def test_no_token_attends_to_itself() -> None:
    model = timm.create_model("vit_nano", lsa=True).eval()
    found = attention_of(lambda: model(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))))
    assert len(found) == 6
    for weights, _ in found:
        assert weights.shape == (2, 4, 65, 65)
        assert not weights.diagonal(dim1=-2, dim2=-1).any()
        assert (weights + torch.eye(65) > 0).all()


def test_the_scale_of_a_head_makes_it_sharper() -> None:
    torch.manual_seed(0)
    layer = LocalityAttention(32, num_heads=2).eval()
    tokens = torch.randn(1, 6, 32)
    layer.scale.data = torch.tensor([0.0, 50.0])
    ((weights, _),) = attention_of(lambda: layer(tokens))
    torch.testing.assert_close(weights[0, 0], (1 - torch.eye(6)) / 5)
    assert weights[0, 1].amax(-1).min() > 0.9


def test_masks_from_outside_are_kept() -> None:
    torch.manual_seed(0)
    layer = LocalityAttention(16, num_heads=2).eval()
    tokens = torch.randn(1, 4, 16)
    allowed = torch.ones(4, 4, dtype=torch.bool)
    allowed[:, 3] = False
    added = torch.zeros(4, 4).masked_fill(~allowed, float("-inf"))
    assert torch.equal(layer(tokens, attn_mask=allowed), layer(tokens, attn_mask=added))
    ((weights, _),) = attention_of(lambda: layer(tokens, attn_mask=allowed))
    assert not weights[..., 3].any() and not weights.diagonal(dim1=-2, dim2=-1).any()
    with pytest.raises(ValueError, match="attend to nothing"):
        layer(tokens, is_causal=True)


# ---- as switches of the small ViTs -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vit_nano", "vit_pico"])
@pytest.mark.parametrize(("spt", "lsa"), [(True, False), (False, True), (True, True)])
def test_small_vits_take_both_switches(name: str, spt: bool, lsa: bool) -> None:
    torch.manual_seed(0)
    plain = timm.create_model(name, num_classes=10)
    model = timm.create_model(name, num_classes=10, spt=spt, lsa=lsa)
    heads, width = plain.blocks[0].attn.num_heads, plain.embed_dim
    more = lsa * 6 * heads + spt * (4 * 48 * width + 2 * 240)
    assert count_parameters(model) == count_parameters(plain) + more
    images = torch.randn(3, 3, 32, 32)
    nn.init.normal_(model.head.weight)
    model(images).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("size", [(32, 32), (48, 24)])
def test_images_whose_size_changes(size: tuple[int, int]) -> None:
    model = timm.create_model("vit_nano", spt=True, lsa=True, dynamic_img_size=True).eval()
    _, (grid,) = model.forward_intermediates(torch.zeros(1, 3, *size), indices=1)
    assert grid.shape == (1, 64, size[0] // 4, size[1] // 4)


def test_another_size_later_on() -> None:
    model = timm.create_model("spt_lsa_vit_32", depth=1).eval()
    model.set_input_size((48, 32))
    assert model(torch.zeros(1, 3, 48, 32)).shape == (1, 10)
    with pytest.raises(ValueError, match="build another"):
        model.set_input_size(patch_size=(8, 8))


@pytest.mark.parametrize(
    ("arguments", "size", "reason"),
    [
        ({"patch_size": 1}, 8, "half a patch"),
        ({"patch_size": 5}, 32, "do not divide"),
        ({"dynamic_img_pad": True}, 32, "not padded"),
    ],
)
def test_impossible_shifts_are_refused(arguments: dict[str, Any], size: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        create_backbone("vit_nano", {"spt": True, **arguments}, num_classes=2, in_chans=3, img_size=size)
