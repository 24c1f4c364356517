"""Growing images (`objective.grow`): small in the first epochs, full size after, in one run that can be stopped anywhere."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny_runs import all_tensors, assert_same_tensors, plan

import smallvit
from smallvit.errors import UsageError
from smallvit.models.aliases import VITS
from smallvit.objectives.supervised import smaller_size
from smallvit.recipe import Replan
from smallvit.training.budget import StepCost, dearer_later
from smallvit.training.build import build_training
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import Decision, Training, train
from smallvit.training.replan import decide
from smallvit.types import View

GROWING = {"objective.grow": 0.5, "data.img_size": 32, "precision": "fp32"}
SMALL, FULL = (View(1, 16, of=32),), (View(1, 32),)


def training(model: str = "conv_nano", **changes: Any) -> Training:
    """7 steps an epoch, 4 epochs."""
    made = plan(**{"model": model, "epochs": 4, "per_class": 6, **GROWING, **changes})
    return build_training(made.recipe, made.images, made.split)


def sizes(t: Training) -> list[int]:
    """Of the images of each step."""
    seen: list[int] = []
    t.step.backbone.register_forward_pre_hook(
        lambda module, given: seen.append(given[0].shape[-1]) if module.training else None
    )
    list(train(t))
    return seen


# ---- the views -----------------------------------------------------------------------------------------


def test_small_first_then_full() -> None:
    t = training()
    assert [t.views_at(epoch) for epoch in range(4)] == [SMALL, SMALL, FULL, FULL]
    assert sizes(t) == [16] * 14 + [32] * 14
    assert t.exam(t.val_rows).preparation.img_size == 32


def test_off_by_default() -> None:
    t = training(**{"objective.grow": 0.0})
    assert {t.views_at(epoch) for epoch in range(4)} == {FULL}


def test_a_small_image_is_the_full_view_made_smaller() -> None:
    t, plain = training(mixup=0.0), training(**{"objective.grow": 0.0})
    small, full = (run.loader.batch(1, 3) for run in (t, plain))
    assert torch.equal(small.index_B, full.index_B) and torch.equal(small.labels_B, full.labels_B)
    smaller = F.interpolate(full.views[0], (16, 16), mode="bilinear", antialias=True)
    torch.testing.assert_close(small.views[0], smaller)
    t.loader.at_once = 1  # batches made one by one are the same
    t.loader._made = ((-1, -1), [])
    assert torch.equal(t.loader.batch(1, 3).views[0], small.views[0])


@pytest.mark.parametrize(
    ("size", "share", "grid", "found"),
    [(32, 0.5, (4, 4), 16), (28, 0.5, (7, 7), 16), (50, 0.5, (5, 5), 20), (28, 0.5, (3, 3), 14), (28, 0.5, (), 14)],
)
def test_a_size_of_whole_cells(size: int, share: float, grid: tuple[int, ...], found: int) -> None:
    assert smaller_size(size, share, grid) == found


def test_one_epoch_is_of_full_size() -> None:
    assert training(epochs=1).views_at(0) == FULL


# ---- models --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["conv_nano", "hybrid_nano", "resnet_nano", "vit_pico", "dhvt_pico", "cvt_nano"])
def test_models_learn_at_both_sizes(model: str) -> None:
    t = training(model, epochs=2, per_class=2)
    before = [float(p.detach().norm()) for p in t.step.backbone.parameters() if p.requires_grad]
    assert set(sizes(t)) == {16, 32}
    after = [float(p.detach().norm()) for p in t.step.backbone.parameters() if p.requires_grad]
    assert before != after and all(map(torch.isfinite, map(torch.tensor, after)))


def test_plain_vits_stretch_their_positions() -> None:
    made = plan(model="vit_pico", epochs=2, per_class=2, **GROWING)
    assert made.recipe.model.kwargs["dynamic_img_size"] is True
    assert any("positions are stretched" in choice.why for choice in made.choices)
    assert "dynamic_img_size" not in plan(model="vit_pico", epochs=2, per_class=2).recipe.model.kwargs
    assert set(VITS) > {"vit_nano", "deit_tiny"}


@pytest.mark.parametrize("model", ["t2t_nano", "swin_nano"])
def test_a_model_of_one_size_is_refused_by_name(model: str) -> None:
    with pytest.raises(UsageError, match=rf"model {model} .* cannot take crops of 16 px.*objective\.grow=0.*conv_nano"):
        training(model)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective.grow": 1.0}, "objective.grow = 1.0: should be less than 1"),
        ({"objective.grow": -0.1}, "objective.grow = -0.1: should be at least 0"),
        ({"objective.grow_from": 0}, "objective.grow_from = 0: should be more than 0"),
        ({"objective.grow_from": 0.95}, r"objective.grow_from = 0.95: the images have 32 px and the model's cells 8"),
    ],
)
def test_bad_values_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        training(**settings)


def test_auxiliary_losses_and_the_average_go_along() -> None:
    made = plan(model="vit_pico", epochs=2, per_class=2, ema=0.9, mixup=0.5, **GROWING, **{"aux.drloc.weight": 0.5})
    t = build_training(made.recipe, made.images, made.split)
    assert set(sizes(t)) == {16, 32}


# ---- in a run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [3, 13, 14, 15, 20])
def test_a_run_resumed_in_the_middle_is_the_same(after: int, tmp_path: Path) -> None:
    whole, part, resumed = (training(per_class=6, ema=0.9, **{"optimizer.name": "muon"}) for _ in range(3))
    assert whole.total == 28
    list(islice(train(part), after))
    save_state(tmp_path / "state", part)
    load_state(tmp_path / "state", resumed)
    for t in (whole, resumed):
        list(train(t))
    assert_same_tensors(all_tensors(resumed), all_tensors(whole))


def test_a_run_tells_it_and_its_model_predicts_at_full_size(tmp_path: Path) -> None:
    run = smallvit.train(
        "digits", model="vit_pico", epochs=2, per_class=3, batch_size=8, threads=1, img_size=16,
        settings={"objective.grow": 0.5}, out=tmp_path / "run", show_progress=False,
    )  # fmt: skip
    (told,) = [choice for choice in run.choices if choice["key"] == "objective.grow"]
    assert told["why"] == "images of 8 px in the first 1 of 2 epochs, then of 16 px"
    assert run.evaluate()["loss"] == pytest.approx(run.results["parts"]["test"]["loss"], rel=1e-5)


# ---- the budget ----------------------------------------------------------------------------------------


def budgeted(steps: int = 28, at: int = 4, dearer: float = 1.0) -> Training:
    t = training()
    replan = Replan(at=at, by=50.0, seconds=100.0, end=0.0, step=1.0, dearer=dearer)
    t.recipe = t.recipe.model_copy(update={"steps": steps, "replan": replan})
    return t


def test_later_steps_are_known_to_take_longer() -> None:
    """Half of 28 steps take 1 s and half 4 s: of the 24 that are left, 10 take 1 s and 14 take 4 s."""
    cost = StepCost((16**2, 32**2), (1.0, 4.0))
    t = training()
    assert dearer_later(t, cost, 28, 4) == pytest.approx((10 + 14 * 4) / 24)
    assert dearer_later(t, StepCost((9, 9), (1.0, 1.0)), 28, 4) == 1.0


def test_the_count_anew_knows_it() -> None:
    t = budgeted(dearer=2.5)
    t.done = 4
    assert decide(t, spent=4.0, trained=4.0) == Decision(4, 4 + round(96 / 2.5))


@pytest.mark.parametrize("total", [14, 28, 42])
def test_after_a_decision_the_images_still_grow_at_half_of_the_way(total: int) -> None:
    t = budgeted()
    t.decision, t.done = Decision(4, total), 5
    found = [t.views_at(epoch) for epoch in range(t.epochs)]
    assert found == [SMALL if epoch < t.epochs / 2 else FULL for epoch in range(t.epochs)]


@pytest.mark.parametrize("after", [3, 4, 9, 20])
def test_a_run_resumed_with_its_decision_is_the_same(after: int, tmp_path: Path) -> None:
    whole, part, resumed = (budgeted() for _ in range(3))
    for t, steps in ((whole, 100), (part, after)):
        for tick in islice(train(t), steps):
            if tick.step == 4:
                t.decision = Decision(4, 24)
    save_state(tmp_path / "state", part)
    resumed.decision = Decision(4, 24)
    load_state(tmp_path / "state", resumed)
    list(train(resumed))
    assert resumed.done == 24
    assert_same_tensors(all_tensors(resumed), all_tensors(whole))
