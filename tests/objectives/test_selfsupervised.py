"""The losses of the self-supervised objectives against published implementations, their heads, teachers and queues.

The expected values come from lightly 1.6, solo-learn and the SupContrast repository on S(p)[i, j] = sin(1.3 i + .7 j +
.5 i j + p), or from a few lines of brute force.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smallvit.errors import UsageError
from smallvit.models.features import Backbone, create_backbone
from smallvit.objectives import Objective, TaskInfo, objectives
from smallvit.objectives.base import options_of
from smallvit.objectives.dino import Prototypes, dino
from smallvit.objectives.heads import Teacher, cosine_momentum, projector
from smallvit.objectives.mocov2 import moco
from smallvit.objectives.mocov3 import mocov3
from smallvit.objectives.simclr import nt_xent
from smallvit.objectives.supcon import supcon
from smallvit.types import Batch, Context

SIZE, IMAGES = 16, 40


def wave(shift: float, rows: int = 4) -> Tensor:
    i, j = torch.arange(rows, dtype=torch.float64)[:, None], torch.arange(3, dtype=torch.float64)
    return torch.sin(1.3 * i + 0.7 * j + 0.5 * i * j + shift).float()


U, V = wave(0), wave(0.4)
QUEUE = F.normalize(wave(1.1, 5), dim=1)
LABELS = torch.tensor([0, 1, 0, 1])


def close(value: float) -> Any:
    return pytest.approx(value, abs=2e-6)


# ---- losses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("t", "expected"), [(0.5, 0.643551), (0.2, 0.139200), (0.1, 0.018632)])
def test_nt_xent(t: float, expected: float) -> None:
    assert float(nt_xent(U, V, t)) == close(expected)
    assert float(nt_xent(3 * U, V, t)) == close(expected), "lengths must not matter"


@pytest.mark.parametrize(("t", "expected"), [(0.5, 2.820214), (0.2, 5.580855), (0.1, 10.901942), (0.07, 15.551619)])
def test_supcon(t: float, expected: float) -> None:
    both, labels = torch.cat([U, V]), LABELS.repeat(2)
    assert float(supcon(both, labels, t)) == pytest.approx(expected, abs=5e-6)
    alone = torch.arange(4).repeat(2)
    assert float(supcon(both, alone, t)) == close(float(nt_xent(U, V, t)))


@pytest.mark.parametrize(
    ("t", "one", "mean"), [(0.2, 0.464519, 0.492663), (0.1, 0.235485, 0.262319), (0.07, 0.158040, 0.175783)]
)
def test_moco(t: float, one: float, mean: float) -> None:
    forth, back = moco(U, V, QUEUE, t), moco(V, U, QUEUE, t)
    assert float(forth) == close(one)
    assert float(forth + back) / 2 == close(mean)


@pytest.mark.parametrize(("t", "expected"), [(0.2, 0.067351), (1.0, 2.943515)])
def test_mocov3(t: float, expected: float) -> None:
    assert float(mocov3(U, V, t) + mocov3(V, U, t)) == close(expected)
    if t == 0.2:
        assert (float(mocov3(U, V, t)), float(mocov3(V, U, t))) == (close(0.033238), close(0.034112))


def test_dino() -> None:
    teacher, student = (wave(0.2), wave(0.9)), (U, V, wave(1.7))
    centre = torch.zeros(3)
    assert float(dino(teacher, student, centre, 0.04, 0.1)) == close(4.401742)
    centre = 0.1 * torch.cat(teacher).mean(0)
    assert centre.tolist() == [close(value) for value in (0.011972, 0.009594, 0.019757)]
    assert float(dino(teacher, student, centre, 0.04, 0.1)) == close(4.401179)
    assert float(dino(teacher, student[:2], torch.zeros(3), 0.07, 0.1)) == close(2.927988)


def test_what_equal_features_cost() -> None:
    """The value that a collapsed model would stand at, so that a log shows it."""
    same = torch.ones(6, 4)
    assert float(nt_xent(same, same, 0.3)) == close(math.log(11))
    assert float(supcon(same, torch.tensor([0, 0, 1, 1, 2, 2]), 0.3)) == close(math.log(5))
    assert float(moco(same, same, F.normalize(torch.ones(9, 4), dim=1), 0.3)) == close(math.log(10))
    assert float(mocov3(same, same, 0.3)) == close(0.6 * math.log(6))
    assert float(dino((same, same), (same, same), torch.zeros(4), 0.04, 0.1)) == close(math.log(4))


@pytest.mark.parametrize("loss", [lambda q, k: moco(q, k, QUEUE, 0.2), lambda q, k: mocov3(q, k, 0.2)])
def test_keys_get_no_gradient(loss: Any) -> None:
    q, k = U.clone().requires_grad_(), V.clone().requires_grad_()
    loss(q, k).backward()
    assert q.grad is not None and k.grad is None


def test_the_teacher_of_dino_gets_no_gradient() -> None:
    teacher, student = U.clone().requires_grad_(), V.clone().requires_grad_()
    dino((teacher, teacher), (student, student), torch.zeros(3), 0.04, 0.1).backward()
    assert student.grad is not None and teacher.grad is None


def test_losses_keep_their_digits_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert float(nt_xent(U, V, 0.1)) == close(0.018632)
        assert float(supcon(torch.cat([U, V]), LABELS.repeat(2), 0.5)) == close(2.820214)
        assert float(moco(U, V, QUEUE, 0.1)) == close(0.235485)
        assert float(mocov3(U, V, 0.2)) == close(0.033238)


def test_momentum_follows_a_cosine() -> None:
    assert [cosine_momentum(0.996, step / 99) for step in (0, 25, 50, 99)] == [
        close(value) for value in (0.996, 0.996597, 0.998032, 1.0)
    ]
    assert [cosine_momentum(0.99, epoch / 100) for epoch in (0, 25, 50, 99)] == [
        close(value) for value in (0.99, 0.991464, 0.995, 0.999998)
    ]


# ---- heads, teachers, queues ---------------------------------------------------------------------------


def backbone(name: str = "resnet_nano", **kwargs: Any) -> Backbone:
    torch.manual_seed(0)
    return create_backbone(name, kwargs, num_classes=0, in_chans=3, img_size=SIZE, drop_path=0.2)


def objective(name: str, of: Backbone, images: int = IMAGES, rows: Tensor | None = None, **options: Any) -> Objective:
    setting = TaskInfo(num_classes=5, num_images=images, img_size=SIZE, train_rows=rows)
    return objectives()[name](of, options_of(objectives(), name, options, "objective"), setting)


def batch(of: Objective, count: int = 6, seed: int = 1) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    views = tuple(torch.randn(view.copies * count, 3, view.size, view.size, generator=draw) for view in of.views)
    return Batch(views, torch.arange(count) % 5, torch.arange(count))


def context(epoch: int = 1, progress: float = 0.3) -> Context:
    return Context(epoch, 10, progress, torch.Generator().manual_seed(0), epochs=10)


def test_a_projector_has_norms_where_they_are_asked_for() -> None:
    kinds = [type(layer).__name__ for layer in projector((8, 6, 6, 4), last_norm=True)]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    assert [layer.affine for layer in projector((8, 6, 4), last_norm=True) if isinstance(layer, nn.BatchNorm1d)] == [
        True,
        False,
    ]
    plain = projector((8, 6, 4), norm=False)
    assert [type(layer).__name__ for layer in plain] == ["Linear", "ReLU", "Linear"]
    assert all(layer.bias is not None for layer in plain if isinstance(layer, nn.Linear))


def test_a_teacher_follows_weights_slowly_and_buffers_at_once() -> None:
    student, head = backbone(), nn.BatchNorm1d(4)
    teacher = Teacher(student, head)
    before = {name: parameter.clone() for name, parameter in teacher.backbone.named_parameters()}
    with torch.no_grad():
        for tensor in (*student.parameters(), *student.buffers()):
            tensor.add_(1)
        head.running_mean.fill_(7.0)  # type: ignore[union-attr]
    teacher.follow(student, head, 0.9)
    for name, parameter in teacher.backbone.named_parameters():
        torch.testing.assert_close(parameter, before[name] + 0.1)
    for mine, theirs in zip(teacher.backbone.buffers(), student.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(teacher.head.running_mean, torch.full((4,), 7.0))


def test_a_teacher_norms_by_the_batch() -> None:
    """The statistics of a student whose weights are others would give all images nearly the same key."""
    student, head = backbone(), projector((96, 64, 16), last_norm=True)
    teacher = Teacher(student, head)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(3)
        for norm in (module for module in head.modules() if isinstance(module, nn.BatchNorm1d)):
            norm.running_mean.fill_(50.0)  # type: ignore[union-attr]
    teacher.follow(student, head, 0.999)
    keys_BD = teacher(torch.randn(16, 3, SIZE, SIZE))
    torch.testing.assert_close(keys_BD.mean(0), torch.zeros(16), atol=1e-4, rtol=0)
    assert keys_BD.std(0).min() > 0.5


def test_directions_of_dino_begin_as_far_apart_as_images_are() -> None:
    torch.manual_seed(0)
    points = F.normalize(Prototypes(64, 512, 128, 2048).layers(F.layer_norm(torch.randn(256, 64), (64,))), dim=1)
    assert (points @ points.T).triu(1).sum() / (256 * 255 / 2) < 0.1


@pytest.mark.parametrize("name", ["mocov2", "mocov3", "dino"])
def test_teachers_are_stored_never_learn_and_never_drop(name: str) -> None:
    model = backbone()
    made = objective(name, model)
    made.train()
    still = [module for module in made.teacher.modules() if not isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]  # type: ignore[union-attr]
    assert still and not any(module.training for module in still)
    assert any(key.startswith("teacher.backbone.model.") for key in made.state_dict())
    made(model.train(), batch(made), context()).total.backward()
    assert all(p.grad is None and not p.requires_grad for p in made.teacher.parameters())  # type: ignore[union-attr]


def test_the_queue_takes_the_keys_after_the_step_and_wraps_around() -> None:
    model = backbone()
    made = objective("mocov2", model, queue=10, momentum=0.5)
    first = made.queue_QP.clone()
    for number in range(3):
        images = batch(made, seed=number)
        keys = F.normalize(made.teacher(images.views[0].chunk(2)[1]), dim=1)
        made(model, images, context())
        assert number or torch.equal(made.queue_QP, first), "the queue changed before the step"
        made.after_step(model, context())
        places = torch.arange(6 * number, 6 * number + 6) % 10
        torch.testing.assert_close(made.queue_QP[places], keys)
    assert int(made.next_place) == 18 % 10
    assert {"queue_QP", "next_place"} <= made.state_dict().keys()


def test_a_queue_is_half_the_set_at_most() -> None:
    assert len(objective("mocov2", backbone()).queue_QP) == IMAGES // 2
    assert len(objective("mocov2", backbone(), images=100_000).queue_QP) == 4096
    with pytest.raises(UsageError, match=r"queue = 21.*20 at most"):
        objective("mocov2", backbone(), queue=21)
    with pytest.raises(UsageError, match="outputs"):
        objective("dino", backbone(), outputs=65_536)


def test_the_centre_of_dino_follows_the_teacher_after_the_step() -> None:
    model = backbone()
    made = objective("dino", model, outputs=8)
    images = batch(made)
    outputs = made.teacher(images.views[0])
    made(model, images, context())
    assert not made.centre_O.any()
    made.after_step(model, context())
    torch.testing.assert_close(made.centre_O, 0.1 * outputs.mean(0))
    assert "centre_O" in made.state_dict()


def test_the_last_layer_of_dino_waits_an_epoch() -> None:
    model = backbone()
    made = objective("dino", model)
    made(model, batch(made), context(epoch=0)).total.backward()
    assert made.head.directions.grad is None and made.head.layers[0].weight.grad is not None  # type: ignore[union-attr, index]
    made(model, batch(made), context(epoch=1)).total.backward()
    assert made.head.directions.grad is not None  # type: ignore[union-attr]


def test_small_crops_of_another_size() -> None:
    model = backbone("vit_pico", patch_size=4, dynamic_img_size=True)
    for name in ("dino", "idmm"):
        made = objective(name, model, small_size=8, small_crops=3)
        assert [(view.copies, view.size) for view in made.views] == [(2, 16), (3, 8)]
        found = made(model, batch(made), context())
        assert found.total.isfinite() and len(found.seen.features.pooled_BD) == 12


def test_crops_of_equal_size_share_one_forward_pass() -> None:
    model = backbone().eval()
    sizes: list[int] = []
    model.register_forward_hook(lambda module, images, features: sizes.append(len(images[0])))
    made = objective("idmm", model, small_crops=4)
    sizes.clear()
    made(model, batch(made), context())
    assert sizes == [6 * (2 + 4)]
