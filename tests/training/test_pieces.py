"""A batch in pieces, and blocks that are computed again: the step is that of the whole batch, in less memory."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import all_tensors, assert_same_tensors, training
from torch import Tensor

import smallvit
from helpers import fails, run_here, write_npz
from smallvit.errors import UsageError
from smallvit.objectives import objectives
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import Training, take_step, train
from smallvit.training.memory import Living
from smallvit.training.step import InPieces, wrap

PIECES = 3  # which 8 images are not divided by


def made(objective: str, **changes: Any) -> Training:
    """Pretraining as its own recipe has it."""
    settings = {"model": "vit_pico", "val": "none", "select": "last", "optimizer.clip": 0, **changes}
    if objective != "supervised":
        recipe = smallvit.make_recipe(recipe=f"pretrain-{objective}")
        settings |= {"objective.name": objective, **{f"objective.{k}": v for k, v in recipe.objective.options.items()}}
    return training(**settings)


def in_pieces(t: Training, pieces: int, **changes: Any) -> Training:
    t.recipe = t.recipe.model_copy(update={"grad_accum": pieces, **changes})
    t.wrapped = wrap(t.step, t.recipe)
    return t


def gradients(t: Training) -> tuple[Tensor, dict[str, Tensor]]:
    loss, _ = take_step(t, 0, 0, 0.0)
    found = {name: p.grad for name, p in t.step.named_parameters() if p.grad is not None}
    return loss.total.detach(), found


def assert_close(whole: Training, parts: Training, precise: float = 1e-4) -> None:
    """Loss and gradients, up to the order of sums."""
    (loss, expected), (other, found) = gradients(whole), gradients(parts)
    assert torch.allclose(loss, other, rtol=precise)
    assert found.keys() == expected.keys() and len(found) > 10
    size = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    apart = torch.stack([(found[name] - expected[name]).norm() for name in expected]).norm()
    assert size > 0 and apart < precise * size


@pytest.mark.parametrize("objective", objectives())
def test_pieces_are_the_whole_batch(objective: str) -> None:
    assert_close(made(objective), in_pieces(made(objective), PIECES))


@pytest.mark.parametrize(
    "changes",
    [
        {"mixup": 0.8, "cutmix": 1.0},
        {"aux": {"drloc": {}}},
        {"precision": "bf16"},
    ],
    ids=["mixing", "drloc", "bf16"],
)
def test_so_they_are_with_what_looks_at_the_whole_batch(changes: dict[str, Any]) -> None:
    precise = 0.05 if "precision" in changes else 1e-4
    assert_close(made("supervised", **changes), in_pieces(made("supervised", **changes), PIECES), precise)


def test_a_whole_batch_is_the_step_itself() -> None:
    t = made("supervised")
    assert t.wrapped is t.step
    assert isinstance(in_pieces(t, 2).wrapped, InPieces)


def test_running_statistics_move_once_a_piece() -> None:
    """And not again when the piece is computed again; blocks that are computed again count as one look."""
    for pieces, again in ((1, False), (1, True), (4, False), (4, True)):
        t = made("supervised", model="resnet_nano", **{"grad_checkpointing": again})
        take_step(in_pieces(t, pieces), 0, 0, 0.0)
        assert t.step.backbone.model.bn1.num_batches_tracked == pieces
        deep = t.step.backbone.model.layer4[0].bn1
        assert deep.num_batches_tracked == pieces, (pieces, again)


def test_no_piece_is_a_single_image_where_two_will_do(tmp_path: Path) -> None:
    """BatchNorm needs two; 7 in 3 pieces are 3, 2 and 2."""
    write_npz(tmp_path / "set.npz", n=14, side=8)
    run = smallvit.train(
        tmp_path / "set.npz", out=tmp_path / "a", model="resnet_nano", batch_size=7, grad_accum=3, epochs=1, threads=1,
        val="none", test="none", show_progress=False,
    )  # fmt: skip
    assert run.recipe.grad_accum == 3


@pytest.mark.parametrize("objective", ["supervised", "simclr", "mae"])
def test_checkpointing_is_the_same_step(objective: str) -> None:
    whole, again = made(objective, drop_path=0.1), made(objective, drop_path=0.1, grad_checkpointing=True)
    assert again.step.backbone.model.grad_checkpointing
    assert_close(whole, again, 1e-6)


def test_both_need_less_memory() -> None:
    def peak(**changes: Any) -> int:
        t = made("supervised", batch_size=32, model="vit_nano", **changes)
        t.wrapped = wrap(t.step, t.recipe)
        take_step(t, 0, 0, 0.0)
        with Living(t) as living:
            take_step(t, 0, 1, 0.0)
        return living.peak

    whole = peak()
    assert peak(grad_accum=4) < 0.45 * whole
    assert peak(grad_checkpointing=True) < 0.45 * whole


def test_resumed_in_the_middle(tmp_path: Path) -> None:
    changes = {"grad_accum": 2, "grad_checkpointing": True, "drop_path": 0.2, "ema": 0.9}
    unbroken, first, second = (made("supervised", **changes) for _ in range(3))
    list(islice(train(unbroken), 5))
    list(islice(train(first), 2))
    save_state(tmp_path / "state.safetensors", first)
    load_state(tmp_path / "state.safetensors", second)
    list(islice(train(second), 3))
    assert_same_tensors(all_tensors(second), all_tensors(unbroken))


def test_what_cannot_be_is_refused_with_what_can() -> None:
    with pytest.raises(UsageError, match=r"--grad-accum 5: a batch of 8 images has at most 4 pieces"):
        made("supervised", grad_accum=5)
    with pytest.raises(UsageError, match=r"--grad-checkpointing: vgg11 cannot do it .*--grad-accum 2"):
        made("supervised", model="vgg11", **{"data.img_size": 32}, grad_checkpointing=True)
    with pytest.raises(
        UsageError, match=r"--grad-checkpointing: resnet10t cannot do it \(it keeps as much as before\)"
    ):
        made("supervised", model="resnet10t", **{"data.img_size": 32}, grad_checkpointing=True)


def test_the_flags(tmp_path: Path) -> None:
    words = ("train", "digits", "--per-class", "2", "--epochs", "1", "--model", "vit_pico", "--threads", "1", "-q")
    out = run_here(*words, "--grad-accum", "2", "--grad-checkpointing", "--out", tmp_path / "run")
    assert out.status == 0, out
    recipe = smallvit.Run(tmp_path / "run").recipe
    assert (recipe.grad_accum, recipe.grad_checkpointing) == (2, True)
    fails(run_here(*words, "--grad-accum", "0", "--out", tmp_path / "no"), 2, "--grad-accum", "at least 1")
