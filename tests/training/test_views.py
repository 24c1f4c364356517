"""Views that change while training runs: images that are small at first and grow."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from tiny_runs import all_tensors, assert_same_tensors, plan

from smallvit.errors import UsageError
from smallvit.objectives.supervised import Supervised
from smallvit.training import budget, build
from smallvit.training.budget import StepCost, measure_cost, pixels_of, steps_within
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import Training, train
from smallvit.types import View

SMALL, LARGE = (View(1, 16),), (View(1, 32),)


class Growing(Supervised):
    """16 px in the first half of the run, then 32; it has no name of its own, so it is not found among the objectives."""

    def views_at(self, epoch: int, epochs: int) -> tuple[View, ...]:
        return SMALL if 2 * epoch < epochs else LARGE


@pytest.fixture(autouse=True)
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "objectives", lambda: {"supervised": Growing})


def growing_training(model: str = "resnet_nano", epochs: int = 4) -> Training:
    made = plan(model=model, epochs=epochs, per_class=6, mixup=0.5, **{"data.img_size": 32, "ema": 0.9})
    return build.build_training(made.recipe, made.images, made.split)


def test_each_epoch_has_the_size_that_the_objective_asks_for() -> None:
    t = growing_training()
    looked_at: list[int] = []
    t.step.backbone.register_forward_pre_hook(lambda module, given: looked_at.append(given[0].shape[-1]))
    ticks = list(train(t))
    trained = [size for size in looked_at if size == 16]
    steps = len(t.loader)
    assert looked_at[: 2 * steps] == [16] * (2 * steps) and len(trained) == 2 * steps
    assert looked_at[2 * steps :] == [32] * (2 * steps)  # the average is what is judged, not this one
    assert ticks[steps - 1].validation is not None
    assert t.exam(t.val_rows).preparation.img_size == 32, (
        "small crops in training, images of full size when it is judged"
    )


def test_small_images_come_in_larger_groups() -> None:
    loader = growing_training().loader
    loader.at_once = 4 * 8 * 32**2
    assert loader.together(0) > loader.together(3) == 4
    assert loader.batch(1, 6).views[0].shape == (8, 1, 16, 16)
    assert loader.batch(2, 6).views[0].shape == (8, 1, 32, 32)
    assert loader.batch(1, 6).views[0].shape == (8, 1, 16, 16)


@pytest.mark.parametrize("after", [3, 13, 14, 15])  # before, at and after the change: 14 steps are half of the run
def test_a_run_resumed_in_the_middle_is_the_same(after: int, tmp_path: Path) -> None:
    whole, part, resumed = (growing_training() for _ in range(3))
    assert whole.total == 28
    list(islice(train(part), after))
    save_state(tmp_path / "state", part)
    load_state(tmp_path / "state", resumed)
    for t in (whole, resumed):
        list(train(t))
    assert_same_tensors(all_tensors(resumed), all_tensors(whole))


def test_a_model_that_takes_one_size_is_refused_before_it_starts() -> None:
    with pytest.raises(UsageError, match="cannot take crops of 16 px"):
        growing_training("vit_pico")


# ---- the budget ----------------------------------------------------------------------------------------


def test_small_and_large_steps_are_both_measured() -> None:
    cost = measure_cost(growing_training(), 4)
    assert cost.pixels == (16**2, 32**2)
    assert 0 < cost.seconds[0] < cost.seconds[1]
    assert cost.at(SMALL) == cost.seconds[0] and cost.at(LARGE) == pytest.approx(cost.seconds[1])


def test_views_between_cost_in_proportion_to_their_pixels() -> None:
    cost = StepCost((100, 400), (1.0, 2.5))
    assert cost.at((View(2, 10),)) == pytest.approx(1.5) and pixels_of((View(2, 10), View(1, 5))) == 225
    assert str(cost) == "1000 to 2500 ms a step"
    assert StepCost((100, 100), (1.0, 1.0)).at((View(1, 10),)) == 1.0


def test_epochs_of_both_sizes_fill_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps of 1 s and 3 s, half of the epochs each, an epoch of 7 steps takes 14 s on average."""
    monkeypatch.setattr(budget, "measure_cost", lambda t, epochs: StepCost((16**2, 32**2), (1.0, 3.0)))
    t = growing_training(epochs=1)
    t.val_rows = torch.arange(0)
    steps, _, why = steps_within(t, 10 * 14 / budget.MARGIN + 1)
    assert steps == 10 * 7 and why.startswith("1000 to 3000 ms a step, 7 steps an epoch")
