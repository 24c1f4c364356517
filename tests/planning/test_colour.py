"""What changes from look to look, where images are seen often enough; that is known last, and the first batch has it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers import write_npz
from smallvit import make_recipe
from smallvit.planning.plan import Plan, prepare
from smallvit.training.build import build_training
from smallvit.training.loop import Training


@pytest.mark.parametrize(("channels", "words", "strength"), [
    (3, {"epochs": 50}, 0.4),
    (3, {"epochs": 49}, 0.0),
    (1, {"epochs": 50}, 0.0),
    (3, {"epochs": 50, "model": "vit_pico"}, 0.0),
    (3, {"epochs": 50, "settings": {"augment.saturation": 0.1}}, 0.4),
])  # fmt: skip
def test_it_depends_on_epochs_channels_and_model(
    channels: int, words: dict[str, object], strength: float, tmp_path: Path
) -> None:
    data = write_npz(tmp_path / "a.npz", n=24, side=16, channels=channels)
    asked = make_recipe(**{"data": data, "threads": 1, "precision": "fp32", **words})
    plan, training, _ = prepare(asked)
    augment = plan.recipe.augment
    assert (augment.brightness, augment.contrast) == (strength, strength)
    assert augment.saturation == (0.1 if "settings" in words else strength)
    assert_first_batch_is_the_same(plan, training)


@pytest.mark.parametrize(("channels", "words", "varied"), [
    (3, {"epochs": 100}, True),
    (3, {"epochs": 99}, False),
    (1, {"epochs": 100}, False),
    (3, {"epochs": 100, "model": "vit_pico"}, True),
    (3, {"epochs": 99, "model": "vit_pico"}, False),
    (3, {"epochs": 100, "settings": {"augment.trivial": False}}, False),
    (3, {"epochs": 100, "settings": {"augment.randaugment": 2}}, False),
    (3, {"epochs": 9, "settings": {"augment.trivial": True}}, True),
])  # fmt: skip
def test_strong_changes_of_an_image_that_is_seen_very_often(
    channels: int, words: dict[str, object], varied: bool, tmp_path: Path
) -> None:
    data = write_npz(tmp_path / "a.npz", n=24, side=16, channels=channels)
    plan, training, _ = prepare(make_recipe(**{"data": data, "threads": 1, "precision": "fp32", **words}))
    assert plan.recipe.augment.trivial is varied
    assert_first_batch_is_the_same(plan, training)


def assert_first_batch_is_the_same(plan: Plan, training: Training) -> None:
    anew = build_training(plan.recipe, plan.images, plan.split)
    assert torch.equal(training.loader.batch(0, 0).views[0], anew.loader.batch(0, 0).views[0])
