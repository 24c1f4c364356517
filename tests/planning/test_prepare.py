"""A run goes on with the training that its planning built, and is the run that a training built anew gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

import smallvit
from smallvit import make_recipe
from smallvit.planning.plan import prepare, write_plan
from smallvit.runs.execution import execute
from smallvit.training.step import Step

ASKED = {"data": "digits", "model": "vit_pico", "per_class": 6, "epochs": 2, "batch_size": 8, "threads": 1}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The steps that were built: each is built to its device and to its memory format."""
    from smallvit.training.step import Step

    steps: list[nn.Module] = []
    build = Step.__init__

    def building(self: Step, *parts: object, **more: object) -> None:
        steps.append(self)
        build(self, *parts, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Step, "__init__", building)
    return steps


def test_a_run_is_built_once_and_is_the_same_as_one_built_anew(tmp_path: Path, built: list[nn.Module]) -> None:
    settings = {"aux.drloc.weight": 0.3, "ema": 0.9}
    run = smallvit.train(**ASKED, settings=settings, out=tmp_path / "once", show_progress=False)
    assert len(built) == 1
    plan, training = prepare(make_recipe(**ASKED, settings=settings))
    assert training is not None and training.recipe == plan.recipe
    (tmp_path / "anew").mkdir()
    execute(write_plan(tmp_path / "anew", plan, "test"), plan)
    assert len(built) == 3
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "anew"))
    assert one == other and run.finished


def test_a_budget_sets_the_epochs_late_so_the_training_is_built_anew() -> None:
    given = {key: value for key, value in ASKED.items() if key != "epochs"}
    plan, training = prepare(make_recipe(**given, budget="40s"), with_floors=False)
    assert training is None
    assert isinstance(plan.recipe.epochs, int) and plan.recipe.budget is None
