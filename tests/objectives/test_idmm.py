"""IDMM: its loss and gradients as the paper states them, its crops, and what its switches do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.data.mixing import mix
from smallvit.models.features import Backbone, create_backbone
from smallvit.objectives import Objective, TaskInfo, objectives
from smallvit.objectives.base import options_of
from smallvit.objectives.idmm import Target, instance_loss, live_rows
from smallvit.types import Batch, Context

SIZE, A, N, D = 16, 6, 9, 4


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


TARGET = Target(torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([2, 0, 1, 1, 2, 0]), torch.full((A,), 0.7))


def weights(smoothing: float, lam: float) -> Tensor:
    """C_k of each crop: lam (1 - s) + s/N for its image, (1 - lam)(1 - s) + s/N for the other, s/N for the rest."""
    own, other = F.one_hot(TARGET.own_A, N), F.one_hot(TARGET.other_A, N)
    return (lam * own + (1 - lam) * other) * (1 - smoothing) + smoothing / N


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lam", [1.0, 0.7])
def test_the_loss_is_cross_entropy_with_both_labels(smoothing: float, lam: float) -> None:
    logits = numbers(A, N).float()
    target = TARGET._replace(lam_A=torch.full((A,), lam))
    found = instance_loss(logits, target, smoothing)
    own, other = (
        F.cross_entropy(logits, labels, label_smoothing=smoothing) for labels in (target.own_A, target.other_A)
    )
    torch.testing.assert_close(found, lam * own + (1 - lam) * other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lam", [1.0, 0.7])
def test_the_gradient_of_every_row_is_that_of_the_paper(smoothing: float, lam: float) -> None:
    """(P_k - delta) z for plain instance discrimination, (P_k - C_k) z with CutMix and smoothing; mean over crops."""
    W, z = numbers(N, D, seed=1).float().requires_grad_(), numbers(A, D, seed=2).float()
    instance_loss(z @ W.T, TARGET._replace(lam_A=torch.full((A,), lam)), smoothing).backward()
    P = (z @ W.T).softmax(1).detach()
    torch.testing.assert_close(W.grad, (P - weights(smoothing, lam)).T.float() @ z / A)


def test_smoothing_keeps_moving_rows_that_a_good_fit_has_lost() -> None:
    """The claim behind the method: plain instance discrimination hardly moves other rows once the layer fits."""
    logits = 30.0 * F.one_hot(TARGET.own_A, N).float()
    alone = TARGET._replace(lam_A=torch.ones(A))
    assert float(live_rows(logits, alone, 0.0)) == 0.0
    assert float(live_rows(logits, alone, 0.1)) == 1.0
    assert float(live_rows(logits, TARGET, 0.0)) == pytest.approx(3 / N), "CutMix moves the rows of both images"
    assert float(live_rows(torch.zeros(A, N), alone, 0.0)) == 1.0, "at the start all rows are moved"


# ---- the objective -------------------------------------------------------------------------------------


def backbone() -> Backbone:
    torch.manual_seed(0)
    return create_backbone("vit_pico", {"patch_size": 4}, num_classes=0, in_chans=3, img_size=SIZE).eval()


def idmm(of: Backbone, images: int = 40, rows: Tensor | None = None, **options: Any) -> Objective:
    setting = TaskInfo(num_classes=2, num_images=images, img_size=SIZE, train_rows=rows)
    return objectives()["idmm"](of, options_of(objectives(), "idmm", options, "objective"), setting)


def batch(of: Objective, index: Tensor) -> Batch:
    draw = torch.Generator().manual_seed(1)
    views = [torch.randn(view.copies * len(index), 3, view.size, view.size, generator=draw) for view in of.views]
    return Batch(tuple(views), torch.zeros_like(index), index)


def context(seed: int = 0) -> Context:
    return Context(1, 10, 0.3, torch.Generator().manual_seed(seed), epochs=10)


def test_the_head_has_a_row_for_every_training_image() -> None:
    model, rows = backbone(), torch.tensor([3, 5, 8, 13, 21])
    made = idmm(model, rows=rows, cutmix=0.0)
    assert made.instances.weight.shape == (5, 48) and made.instances.bias.shape == (5,)  # type: ignore[union-attr]
    assert 0.015 < float(made.instances.weight.detach().std()) < 0.025  # type: ignore[union-attr]
    assert not any("instance_N" in name for name in made.state_dict())
    images = batch(made, rows[[4, 0]])
    found = made(model, images, context())
    with torch.no_grad():
        expected = sum(
            F.cross_entropy(
                made.instances(model(view).pooled_BD),  # type: ignore[operator]
                torch.tensor([4, 0]).repeat(len(view) // 2),
                label_smoothing=0.1,
            )
            for view in images.views
        )
    torch.testing.assert_close(found.total.detach(), expected)


@pytest.mark.parametrize("seed", range(4))
def test_each_group_of_crops_is_mixed_for_itself(seed: int) -> None:
    model, index = backbone(), torch.arange(4)
    made = idmm(model, label_smoothing=0.1)
    images, draw = batch(made, index), context(seed).generator
    expected = torch.zeros(())
    for view in images.views:
        mixed = mix(view, draw, mixup=0.0, cutmix=0.5, per="batch", keep_larger=True)
        assert mixed.lam_B[0] > 0.5 and len(mixed.lam_B.unique()) == 1
        own = index.repeat(len(view) // 4)
        with torch.no_grad():
            logits = made.instances(model(mixed.images_BCHW).pooled_BD)  # type: ignore[operator]
        expected = expected + instance_loss(logits, Target(own, own[mixed.partner_B], mixed.lam_B), 0.1)
    torch.testing.assert_close(made(model, images, context(seed)).total.detach(), expected)


def test_switches() -> None:
    model = backbone()
    views = idmm(model).views
    assert [(view.copies, view.size, view.scale) for view in views] == [
        (2, SIZE, (0.14, 1.0)),
        (4, SIZE, (0.05, 0.4)),
    ]
    single = idmm(model, small_crops=0, cutmix=0.0, label_smoothing=0.0)
    assert [view.copies for view in single.views] == [2]
    images = batch(single, torch.arange(4))
    found = single(model, images, context())
    with torch.no_grad():
        logits = single.instances(model(images.views[0]).pooled_BD)  # type: ignore[operator]
    torch.testing.assert_close(found.total.detach(), F.cross_entropy(logits, torch.arange(4).repeat(2)))
    assert found.parts.keys() == {"instances_large", "live_rows"}
