"""model.weights: what attention looks at before the first step, by the formulas and by what the model then does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch

import smallvit
from smallvit.errors import UsageError
from smallvit.models.starting_weights import (
    WINDOW,
    give_weights,
    hits,
    neighbours,
    normed_cells,
    plain_attention,
    table_of_positions,
)

SMALL = {"img_size": 32, "patch_size": 4, "num_classes": 10}


def model_with(kind: str, name: str = "deit_tiny_patch16_224", **arguments: Any) -> tuple[Any, str]:
    torch.manual_seed(0)
    model = timm.create_model(name, **(SMALL | arguments))
    return model, give_weights(model, kind, name)


def test_heads_of_deit_start_by_looking_at_one_neighbour_each() -> None:
    """Seen in the attention that the layer itself computes of positions alone."""
    model, said = model_with("impulse")
    assert "100%" in said and "64 numbers a head" in said
    layer, positions = model.blocks[0].attn, table_of_positions(model)
    assert positions is not None and positions.layout.grid == (8, 8)
    tokens_1ND = normed_cells(positions)[None]
    query, key, _ = layer.qkv(tokens_1ND).reshape(64, 3, layer.num_heads, 64).permute(1, 2, 0, 3)
    weights_MNN = ((query * layer.scale) @ key.mT).softmax(-1)
    for head in range(layer.num_heads):
        cells, theirs = neighbours((8, 8), WINDOW[head])
        assert torch.equal(weights_MNN[head, cells].argmax(1), theirs)
    assert all(
        part.norm().item() == pytest.approx(7, rel=1e-4)
        for matrix in layer.qkv.weight.chunk(3)[:2]
        for part in matrix.chunk(layer.num_heads)
    )


def test_narrow_heads_cannot_tell_all_cells_apart_and_it_is_said() -> None:
    model, said = model_with("impulse", "vit_nano")
    positions = table_of_positions(model)
    assert positions is not None
    shares = hits(model.blocks[0].attn, normed_cells(positions), positions.layout.grid)
    assert shares[0] == 1 and 0.3 < shares[1:].mean() < 0.7
    assert f"{shares.mean():.0%} of the cells" in said and "16 numbers a head" in said


def test_one_head_as_wide_as_the_model_looks_where_it_should_too() -> None:
    """Normed positions leave one direction empty: what is found there is rounding, and a large number by its inverse."""
    model, _ = model_with("impulse", "vit_nano", num_heads=1)
    positions, layer = table_of_positions(model), model.blocks[0].attn
    assert positions is not None and (hits(layer, normed_cells(positions), positions.layout.grid) == 1).all()
    query_DD = layer.qkv.weight.chunk(3)[0]
    assert (query_DD @ torch.ones(64)).norm() < 1e-2 * query_DD.norm(), "nothing is spent on that direction"


def test_neighbours_are_those_inside_the_image() -> None:
    cells, theirs = neighbours((2, 3), (0, 1))
    assert cells.tolist() == [0, 1, 3, 4] and theirs.tolist() == [1, 2, 4, 5]
    assert len(WINDOW) == len(set(WINDOW)) == 9 and WINDOW[0] == (0, 0)


def test_mimetic_products_are_noisy_identities() -> None:
    """W_V W_proj = 0.4 Z - 0.4 I, and W_Q W_K' the part of 0.7 Z + 0.7 I that fits into a head."""
    model, _ = model_with("mimetic")
    for block in model.blocks:
        query, key, value = (part.T.detach().double().numpy() for part in block.attn.qkv.weight.chunk(3))
        product = value @ block.attn.proj.weight.T.detach().double().numpy()
        width = len(product)
        assert np.diag(product).mean() == pytest.approx(-0.4, abs=0.02)
        rest = product[~np.eye(width, dtype=bool)]
        assert rest.std() == pytest.approx(0.4 / width**0.5, rel=0.05) and abs(rest.mean()) < 0.002
        for head in range(3):
            columns = slice(64 * head, 64 * head + 64)
            fitted = query[:, columns] @ key[:, columns].T
            assert np.linalg.matrix_rank(fitted, tol=1e-4) == 64
            assert 0.1 < np.diag(fitted).mean() < 0.7  # the strongest third of the directions of the identity and noise


def test_mimetic_positions_are_sines_behind_the_class_token() -> None:
    usual, _ = model_with("usual")
    model, _ = model_with("mimetic")
    positions = table_of_positions(model)
    assert positions is not None and positions.layout.front == 1
    assert torch.equal(model.pos_embed[:, :1], usual.pos_embed[:, :1])
    assert model.pos_embed[:, 1:].abs().max().item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "dhvt_nano", "t2t_nano", "vit_small_patch16_224"])
def test_mimetic_suits_other_attention(name: str) -> None:
    torch.manual_seed(0)
    model: Any = timm.create_model(name, num_classes=10)
    give_weights(model, "mimetic", name)
    layers = list(plain_attention(model))
    products = [layer.qkv.weight.chunk(3)[2].T @ layer.proj.weight.T for layer in layers]
    assert layers and all(product.diag().mean() < -0.3 for product in products)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("resnet18", "mimetic", "has no attention of one qkv layer"),
        ("swin_tiny_patch4_window7_224", "impulse", "no table of positions"),
    ],
)
def test_where_it_does_not_apply_it_is_refused(name: str, kind: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        give_weights(timm.create_model(name, num_classes=10), kind, name)


def test_a_run_takes_them_and_says_so(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"model": "vit_nano", "epochs": 1, "per_class": 6, "batch_size": 16, "threads": 1}
    runs = {
        kind: smallvit.train(
            "digits", out=tmp_path / kind, show_progress=False, settings={"model.weights": kind}, **flags
        )
        for kind in ("usual", "impulse")
    }
    [why] = [choice["why"] for choice in runs["impulse"].choices if choice["key"] == "model.weights"]
    assert "of the cells" in why
    assert not [choice for choice in runs["usual"].choices if choice["key"] == "model.weights"]


def test_a_wrong_word_names_the_choices() -> None:
    with pytest.raises(UsageError, match=r"model\.weights.*usual.*mimetic.*impulse"):
        smallvit.train("digits", show_progress=False, settings={"model.weights": "magic"})
