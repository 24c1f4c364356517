"""CCT against numbers from the authors' code."""

from __future__ import annotations

import pytest
import timm
import torch
from reference_values import images_by_formula, weights_by_formula
from torch import nn

import smallvit.models  # noqa: F401
from smallvit.models.features import count_parameters, create_backbone
from smallvit.models.transfer import load_authors_weights

TINY = {"img_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3}


def authors_shapes() -> dict[str, tuple[int, ...]]:
    width, hidden = 16, 32
    shapes: dict[str, tuple[int, ...]] = {
        "tokenizer.conv_layers.0.0.weight": (width, 3, 3, 3),
        "classifier.positional_emb": (1, 16, width),
        "classifier.attention_pool.weight": (1, width),
        "classifier.attention_pool.bias": (1,),
        "classifier.norm.weight": (width,),
        "classifier.norm.bias": (width,),
        "classifier.fc.weight": (3, width),
        "classifier.fc.bias": (3,),
    }
    for i in range(2):
        block = {
            "pre_norm.weight": (width,), "pre_norm.bias": (width,), "norm1.weight": (width,), "norm1.bias": (width,),
            "self_attn.qkv.weight": (3 * width, width),
            "self_attn.proj.weight": (width, width), "self_attn.proj.bias": (width,),
            "linear1.weight": (hidden, width), "linear1.bias": (hidden,),
            "linear2.weight": (width, hidden), "linear2.bias": (width,),
        }  # fmt: skip
        shapes |= {f"classifier.blocks.{i}.{name}": shape for name, shape in block.items()}
    return shapes


def test_logits_are_those_of_the_authors_code() -> None:
    model = timm.create_model("cct_7_3x1_32", **TINY).eval()
    done = load_authors_weights(model, weights_by_formula(authors_shapes()))
    assert not done.missing and not done.dropped and not done.resized
    expected = torch.tensor([[0.618697, 0.643690, -0.533590], [0.733139, 0.775120, -0.527233]])
    with torch.no_grad():
        torch.testing.assert_close(model(images_by_formula()), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"num_classes": 10}, 3_760_139),
        ({"num_classes": 100}, 3_783_269),
        ({"num_classes": 100, "n_conv": 2}, 3_876_389),
        ({"num_classes": 100, "img_size": 64}, 3_979_877),
        ({"num_classes": 100, "img_size": 64, "n_conv": 2}, 3_925_541),
        ({"num_classes": 100, "depth": 6}, 3_256_933),
        ({"num_classes": 10, "depth": 2, "n_conv": 2, "embed_dim": 128, "num_heads": 2, "mlp_ratio": 1.0}, 283_723),
    ],
)
def test_parameter_counts(arguments: dict[str, int], count: int) -> None:
    assert count_parameters(timm.create_model("cct_7_3x1_32", **arguments)) == count


def test_two_convolutions_have_a_name_of_their_own() -> None:
    assert count_parameters(timm.create_model("cct_7_3x2_32", num_classes=100)) == 3_876_389


def test_tokens_of_any_size_are_half_of_it_rounded_up() -> None:
    for size, side in ((8, 4), (9, 5), (28, 14)):
        assert create_backbone("cct_7_3x1_32", {"depth": 1}, num_classes=2, in_chans=1, img_size=size).final_grid == (
            side,
            side,
        )


def test_the_pooling_is_a_mean_that_the_tokens_weigh() -> None:
    model = timm.create_model("cct_7_3x1_32", **TINY).eval()
    tokens = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.attn_pool.weight_of.weight.zero_()
        torch.testing.assert_close(model.forward_head(tokens, pre_logits=True), tokens.mean(1))
        model.attn_pool.weight_of.weight[0, 0] = 1e4  # all for the token with the largest first number
        largest = tokens[torch.arange(2), tokens[:, :, 0].argmax(1)]
        torch.testing.assert_close(model.forward_head(tokens, pre_logits=True), largest)


def test_another_pooling_can_be_asked_for() -> None:
    model = timm.create_model("cct_7_3x1_32", global_pool="avg", **TINY).eval()
    assert model.attn_pool is None
    model = timm.create_model("cct_7_3x1_32", **TINY).eval()
    model.reset_classifier(4, "avg")
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 4) and model.attn_pool is None


def test_rates_and_initial_weights_are_the_authors() -> None:
    torch.manual_seed(0)
    model = timm.create_model("cct_7_3x1_32")
    assert [round(block.drop_path.drop_prob, 4) for block in model.blocks] == [round(0.1 * i / 6, 4) for i in range(7)]
    assert {block.attn.attn_drop.p for block in model.blocks} == {0.1}
    assert {m.p for name, m in model.named_modules() if isinstance(m, nn.Dropout) and "attn_drop" not in name} == {0.0}
    assert model.pos_embed.std().item() == pytest.approx(0.2, rel=0.02)
    assert model.patch_embed.conv_layers[0][0].weight.std().item() == pytest.approx((2 / 27) ** 0.5, rel=0.03)
    assert model.blocks[0].attn.qkv.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_patches_and_wrong_sizes_are_refused() -> None:
    with pytest.raises(TypeError, match="patch_size"):
        timm.create_model("cct_7_3x1_32", patch_size=4)
    with pytest.raises(AssertionError, match="8 px high, the model takes 32"):
        timm.create_model("cct_7_3x1_32")(torch.zeros(1, 3, 8, 32))
