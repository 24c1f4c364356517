"""Muon: what it does to a matrix, which matrices it moves, and that a run with it goes on as it was."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from tiny_runs import RECIPES, all_tensors, assert_same_tensors, training
from torch import Tensor, nn

import smallvit
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import read_tensors
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import Training, train
from smallvit.training.muon import ITERATIONS, LINEAR_RATE, Muon, orthogonal
from smallvit.training.optimizer import hidden_matrices


def spread_matrices(rows: int, columns: int) -> Tensor:
    """Three matrices whose singular values are 1 down to 0.1, which is what momenta are like."""
    draw = torch.Generator().manual_seed(0)
    u, _, vh = torch.linalg.svd(torch.randn(3, rows, columns, generator=draw), full_matrices=False)
    return u @ torch.diag(torch.linspace(1, 0.1, min(rows, columns))) @ vh


@pytest.mark.parametrize("shape", [(12, 40), (40, 12), (16, 16), (1, 5), (5, 1)])
def test_all_singular_values_become_about_one_and_the_directions_stay(shape: tuple[int, int]) -> None:
    given = spread_matrices(*shape)
    found = orthogonal(given)
    assert found.shape == given.shape
    u, values, vh = torch.linalg.svd(given, full_matrices=False)
    inside = u.mT @ found @ vh.mT  # diagonal, where the singular vectors are the same
    assert torch.linalg.svdvals(found).min() > 0.5 and torch.linalg.svdvals(found).max() < 1.3
    spread = values.max() / values.min()
    assert spread < 2 or torch.linalg.svdvals(found).max() / torch.linalg.svdvals(found).min() < spread / 3
    torch.testing.assert_close(inside, torch.diag_embed(inside.diagonal(dim1=1, dim2=2)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(12, 108), (40, 12), (16, 16)])
def test_it_is_the_published_iteration(shape: tuple[int, int]) -> None:
    """Matrix by matrix, and the matrix itself in every product."""
    given = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    for matrix, found in zip(given.double(), orthogonal(given), strict=True):
        x = matrix / matrix.norm()
        for _ in range(ITERATIONS):
            x = 3.4445 * x - 4.7750 * (x @ x.T) @ x + 2.0315 * (x @ x.T) @ (x @ x.T) @ x
        torch.testing.assert_close(found, x.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(32, 288), (64, 24)])
def test_sixteen_bits_move_the_same_way(shape: tuple[int, int]) -> None:
    """Where a run multiplies in bf16, these products do, too; what they are for is rough by itself (0.7 to 1.2)."""
    given = spread_matrices(*shape)
    with torch.autocast("cpu", torch.bfloat16):
        found = orthogonal(given)
    assert found.dtype == torch.bfloat16
    exact = orthogonal(given)
    assert (found - exact).norm() < 0.03 * exact.norm()


def test_size_and_company_do_not_matter() -> None:
    given = spread_matrices(8, 20)
    torch.testing.assert_close(orthogonal(1000 * given), orthogonal(given), atol=1e-4, rtol=0)
    torch.testing.assert_close(orthogonal(given)[1:2], orthogonal(given[1:2]), atol=1e-5, rtol=0)
    assert orthogonal(torch.zeros(1, 3, 4)).eq(0).all()  # a layer without a gradient stays where it is


def test_filters_keep_their_size_and_linear_layers_do_not() -> None:
    torch.manual_seed(0)
    conv, linear = nn.Conv2d(4, 16, 3, bias=False), nn.Linear(8, 16, bias=False)
    nn.init.zeros_(linear.weight)
    dead = nn.Parameter(torch.zeros(5, 4, 3, 3))
    rest = [{"params": [nn.Parameter(torch.zeros(3))]}]
    optimizer = Muon([conv.weight, linear.weight, dead], rest, lr=0.01, matrix_lr=0.1, betas=(0.9, 0.99), fused=False)
    for parameter in (conv.weight, linear.weight, dead):
        parameter.grad = torch.randn_like(parameter)
    before = conv.weight.detach().clone()
    optimizer.step()
    kept = before * (16**0.5 / before.norm())
    assert torch.linalg.svdvals((conv.weight - kept).flatten(1)).max() < 1.3 * 0.1  # the move, after the size was set
    assert 0 < torch.linalg.svdvals(linear.weight).max() < 1.3 * 0.1 * LINEAR_RATE  # an added zero: nothing was scaled
    assert dead.isfinite().all() and dead.norm() > 0
    for _ in range(20):
        optimizer.step()
    assert conv.weight.detach().norm() == pytest.approx(16**0.5, rel=0.15)


def test_every_group_follows_the_rate_that_is_set() -> None:
    """What sets rates sets `lr` of all groups; each group of matrices is as much faster as it was at the start."""
    t = training("hybrid")
    assert isinstance(t.optimizer, Muon)
    lr, matrix_lr = t.recipe.optimizer.lr, t.recipe.optimizer.matrix_lr
    assert isinstance(lr, float) and isinstance(matrix_lr, float)
    next(iter(train(t)))
    warm = t.optimizer.param_groups[0]["lr"]
    assert warm < lr and {group["lr"] for group in t.optimizer.param_groups} == {warm}
    scales = {group["params"][0].ndim: group["lr_scale"] for group in t.optimizer.matrix_groups}
    assert scales == {4: pytest.approx(matrix_lr / lr), 2: pytest.approx(LINEAR_RATE * matrix_lr / lr)}
    assert all("lr_scale" not in group for group in t.optimizer.adamw.param_groups)


def test_a_rate_of_zero_moves_nothing_but_sizes() -> None:
    t = training("hybrid")
    for group in t.optimizer.param_groups:
        group["lr"] = 0.0
    before = {name: p.detach().clone() for name, p in t.step.named_parameters()}
    for parameter in t.step.parameters():
        parameter.grad = torch.ones_like(parameter)
    t.optimizer.step()
    for name, parameter in t.step.named_parameters():
        direction = nn.functional.cosine_similarity(parameter.flatten(), before[name].flatten(), dim=0)
        assert torch.equal(parameter, before[name]) or (parameter.ndim == 4 and direction > 0.9999)


# ---- which matrices ------------------------------------------------------------------------------------


def moved(t: Training) -> set[str]:
    names = {id(parameter): name for name, parameter in t.step.named_parameters()}
    return {names[id(parameter)].removeprefix("backbone.model.") for parameter in hidden_matrices(t.step.backbone)}


def test_all_filters_of_the_hybrid_family_are_moved_by_it() -> None:
    """Its first filters are fixed, so the first that are trained have something before them."""
    t = training("hybrid")
    attention = {name for name, _ in t.step.backbone.model.named_parameters() if ".qkv" in name or ".proj" in name}
    assert len(attention) == 2 * 3
    blocks = ["0.0", "0.1", "1.0", "1.1"]  # two stages are enough for digits of 8 px
    assert moved(t) == attention | {f"stages.{block}.conv.weight" for block in blocks}


@pytest.mark.parametrize("model", ["vit_pico", "dhvt_nano"])
def test_pixels_classes_and_single_channels_are_left_to_adamw(model: str) -> None:
    t = training(model=model, batch_size=4, **{"optimizer.name": "muon", "aux.drloc.weight": 0.1})
    names = moved(t)
    first, classifier = t.step.backbone.model.pretrained_cfg["first_conv"], "head"
    assert names and not [name for name in names if name.startswith((f"{first}.", f"{classifier}."))]
    matrices = dict(t.step.backbone.model.named_parameters())
    assert all(matrices[name].ndim == 2 or matrices[name].shape[1] > 1 for name in names)
    together = [p for group in t.optimizer.param_groups for p in group["params"]]
    trained = [p for p in t.step.parameters() if p.requires_grad]
    assert len(together) == len(trained) and set(map(id, together)) == set(map(id, trained)), "each is moved once"


def test_it_learns() -> None:
    ticks = list(train(training("hybrid", epochs=4, val="none", select="last")))
    losses = [float(tick.loss) for tick in ticks]
    assert sum(losses[-13:]) < 0.7 * sum(losses[:13])


# ---- its state, and what may be asked of it --------------------------------------------------------------


def test_its_state_is_stored_by_name_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    whole, part, resumed = (training("hybrid", epochs=1) for _ in range(3))
    list(islice(train(part), 5))
    save_state(tmp_path / "state", part)
    names = {name for name in read_tensors(tmp_path / "state")[0] if name.endswith("/momentum")}
    assert names == {f"optimizer/backbone.model.{name}/momentum" for name in moved(part)}
    load_state(tmp_path / "state", resumed)
    for t in (whole, resumed):
        list(train(t))
    assert_same_tensors(all_tensors(resumed), all_tensors(whole))


@pytest.mark.parametrize("rate", [0, -0.1, "fast"])
def test_a_rate_that_is_none_is_an_error(rate: object) -> None:
    settings = {**RECIPES["hybrid"], "optimizer.matrix_lr": rate}
    settings.pop("model")
    with pytest.raises(UsageError, match=r"optimizer\.matrix_lr"):
        smallvit.make_recipe(data="digits", settings=settings)


# ---- the average ---------------------------------------------------------------------------------------


def test_averaged_weights_of_the_default_model() -> None:
    """The average is of the weights alone: BatchNorm's statistics are those of the last batches, the first filters fixed."""
    t = training(model="conv_nano", epochs=4, ema=0.9, precision="fp32", **{"optimizer.name": "muon"})
    list(train(t))
    assert t.ema is not None and t.evaluated is t.ema.module
    live, average = t.step.backbone, t.ema.module
    buffers = dict(average.named_buffers())
    assert any(name.endswith("running_var") for name in buffers) and "model.stem.weight" in buffers
    assert all(torch.equal(tensor, buffers[name]) for name, tensor in live.named_buffers())
    moved = [name for name, p in live.named_parameters() if not torch.equal(p, average.get_parameter(name))]
    assert len(moved) == len(list(live.parameters())) > 5
    score = t.step.objective.judge(average, t.exam(t.val_rows))
    assert score is not None and score.is_finite and (score.accuracy or 0) > 0.3, "chance is 0.1"
