"""Light and colour change where images are seen often enough; that is known last, and the first batch has it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers import write_npz
from smallvit import make_recipe
from smallvit.planning.plan import prepare
from smallvit.training.build import build_training


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
    anew = build_training(plan.recipe, plan.images, plan.split)
    assert torch.equal(training.loader.batch(0, 0).views[0], anew.loader.batch(0, 0).views[0])
