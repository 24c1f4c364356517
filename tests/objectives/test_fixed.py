"""A part of a loss that never trains: it goes where the loss goes, and into no checkpoint."""

from __future__ import annotations

import copy
from itertools import islice
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smallvit
from smallvit.evaluation.model_file import read_tensors
from smallvit.models.features import Backbone, create_backbone
from smallvit.objectives import Auxiliary, auxiliaries
from smallvit.objectives.fixed import Fixed
from smallvit.planning.plan import make_plan
from smallvit.training import build
from smallvit.training.budget import measure_step
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import Training, train
from smallvit.types import Context, Loss, Seen


class Imitation(Auxiliary):
    """Has the student's logits follow those of a teacher; it has no name, so it is found in this file alone."""

    def __init__(self, backbone: Backbone, options: object, setting: object) -> None:
        super().__init__(backbone, options, setting)  # type: ignore[arg-type]
        torch.manual_seed(7)
        self.scale = nn.Parameter(torch.ones(()))
        self.teacher = Fixed(create_backbone("resnet_nano", {}, num_classes=10, in_chans=1, img_size=8))

    def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
        taught = self.teacher(seen.images_ACHW)
        assert not taught.pooled_BD.requires_grad
        guess_BK = self.scale * backbone.classify(seen.features.pooled_BD)
        total = F.mse_loss(guess_BK, self.teacher.module.classify(taught.pooled_BD).detach())  # type: ignore[operator]
        return Loss(total, {"imitation": total.detach()}, seen)


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> Training:
    return build_taught(monkeypatch)


def build_taught(monkeypatch: pytest.MonkeyPatch) -> Training:
    """A run whose `drloc` is the loss above, so that all the rest is as ever."""
    asked = smallvit.make_recipe(
        data="digits", model="vit_pico", per_class=6, batch_size=8, epochs=2, threads=1, aux="drloc", mixup=0.5
    )
    plan = make_plan(asked, with_floors=False)
    with monkeypatch.context() as patch:
        patch.setattr(build, "auxiliaries", lambda: {"drloc": Imitation})
        patch.setattr(Imitation, "Options", auxiliaries()["drloc"].Options, raising=False)
        return build.build_training(plan.recipe, plan.images, plan.split)


def weights(module: nn.Module) -> list[Tensor]:
    return [tensor.clone() for tensor in module.state_dict().values()]


def teacher_of(t: Training) -> Fixed:
    return t.step.auxiliaries["drloc"].teacher  # type: ignore[return-value]


def test_it_is_no_part_of_what_is_trained_or_stored(taught: Training, tmp_path: Path) -> None:
    names = {name for name, _ in taught.step.named_parameters()} | set(taught.step.state_dict())
    assert "auxiliaries.drloc.scale" in names and not [name for name in names if "teacher" in name]
    assert not list(taught.step.auxiliaries["drloc"].teacher.buffers())
    held = teacher_of(taught).module
    assert not any(parameter.requires_grad for parameter in held.parameters())
    before = weights(held)
    assert any("imitation" in tick.parts for tick in train(taught))
    assert not any(module.training for module in held.modules()), "BatchNorm would follow the batches"
    assert all(torch.equal(old, new) for old, new in zip(before, weights(held), strict=True))
    save_state(tmp_path / "state", taught)
    stored = read_tensors(tmp_path / "state")[0]
    assert "step/auxiliaries.drloc.scale" in stored and not [name for name in stored if "teacher" in name]


def test_a_resumed_run_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole, part, resumed = (build_taught(monkeypatch) for _ in range(3))
    list(islice(train(part), 5))
    save_state(tmp_path / "state", part)
    load_state(tmp_path / "state", resumed)
    for t in (whole, resumed):
        list(train(t))
    expected = whole.step.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.step.state_dict().items())


def test_it_goes_where_the_loss_goes() -> None:
    loss = nn.ModuleDict({"teacher": Fixed(nn.Linear(3, 2))})
    held: nn.Linear = loss["teacher"].module  # type: ignore[assignment]
    loss.double().train()
    assert held.weight.dtype == torch.float64 and not held.training
    loss.to("meta")
    assert held.weight.device.type == "meta"


def test_copies_share_it(taught: Training) -> None:
    """Measuring a budget copies the step; a teacher may be large."""
    assert copy.deepcopy(teacher_of(taught)).module is teacher_of(taught).module
    assert measure_step(taught, taught.loader.views_at(0), 0.0) > 0
