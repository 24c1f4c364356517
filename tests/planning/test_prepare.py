"""A run goes on with the training that its planning built, and is the run that a training built anew gives."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

import smallvit
from smallvit import make_recipe
from smallvit.planning.plan import prepare, write_plan
from smallvit.runs.execution import execute
from smallvit.training.build import build_training
from smallvit.training.loop import train
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
    plan, training, _ = prepare(make_recipe(**ASKED, settings=settings))
    assert training.recipe == plan.recipe
    (tmp_path / "anew").mkdir()
    execute(write_plan(tmp_path / "anew", plan, "test"), plan)
    assert len(built) == 3
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "anew"))
    assert one == other and run.finished


@pytest.mark.parametrize("aux", [None, "drloc"])
def test_a_training_that_a_budget_gave_its_length_is_the_one_built_from_the_plan(aux: str | None) -> None:
    """Its epochs are known after it was built and measured, and nothing shows that they were not known before."""
    given = {key: value for key, value in ASKED.items() if key != "epochs"}
    plan, training, _ = prepare(make_recipe(**given, budget="300s", aux=aux, settings={"ema": 0.9}), with_floors=False)
    assert training.recipe == plan.recipe and plan.recipe.budget is None
    anew = build_training(plan.recipe, plan.images, plan.split)
    for t in (training, anew):
        list(islice(train(t), 3))
    assert training.total == anew.total == plan.recipe.steps
    assert training.ema is not None and anew.ema is not None
    for ours, theirs in ((training.step, anew.step), (training.ema.module, anew.ema.module)):
        expected, found = theirs.state_dict(), ours.state_dict()
        assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
