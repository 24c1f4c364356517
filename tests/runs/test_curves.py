"""The curves of a run: what its losses declare, what an old folder is drawn with, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smallvit.errors import RunError
from smallvit.objectives.base import auxiliaries, declared_curves, objectives
from smallvit.recipe import build_recipe
from smallvit.runs.curves import OF_0_1, read_curves
from smallvit.runs.folder import RunFolder


def folder_with(path: Path, **more: Any) -> RunFolder:
    resolved = {"data": {"source": "digits"}, "model": {"name": "vit_nano"}, "seed": 0}
    recipe = {"resolved": resolved, "choices": [], **more}
    (path / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    return RunFolder(path)


def test_a_folder_gives_back_what_the_losses_declared(tmp_path: Path) -> None:
    recipe = build_recipe("pretrain-idmm", {"aux.drloc.weight": 0.1})
    declared = declared_curves(recipe)
    assert [panel.name for panel in declared.objective] == ["spread", "rank", "live-rows"]
    assert [panel.name for panel in declared.aux] == ["drloc"]
    assert read_curves(folder_with(tmp_path, curves=declared.for_folder())) == declared


def test_a_folder_of_version_0_1_is_drawn_as_it_was(tmp_path: Path) -> None:
    assert read_curves(folder_with(tmp_path)) == OF_0_1
    losses = (*objectives().values(), *auxiliaries().values())
    today = {panel for loss in losses for panel in loss.curves}
    assert {*OF_0_1.objective, *OF_0_1.aux} <= today, "one page draws an old run and a new one alike"


@pytest.mark.parametrize("name", ['x"><script>alert(1)</script>', "", 3])
def test_a_name_that_could_leave_its_place_on_the_page_is_refused(tmp_path: Path, name: Any) -> None:
    panel = {"name": name, "title": "t", "keys": ["loss"], "spoken": "s"}
    with pytest.raises(RunError, match=r"recipe\.json.*curves"):
        read_curves(folder_with(tmp_path, curves={"objective": [panel], "aux": []}))
