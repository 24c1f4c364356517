"""Real budgets from the command line: one run that is killed after it has counted its steps anew, and seeds that share one.

No test looks at how long anything took: that is the machine's matter.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from processes import Warm
from tiny_runs import assert_same_run

import smallvit
from smallvit.evaluation.model_file import read_tensors
from smallvit.planning.length import REPLAN_AT
from smallvit.planning.plan import make_plan
from smallvit.training.session import state_file

KILLED = -signal.SIGKILL
SMALL = ["digits", "--model", "vit_pico", "--per-class", "4", "--batch-size", "8", "--threads", "1"]


@pytest.fixture(scope="module")
def enough() -> float:
    """Seconds that are enough to plan, to train a little and to judge, on this machine as it is now."""
    started = time.monotonic()
    make_plan(smallvit.make_recipe(data="digits", model="vit_pico", per_class=4, batch_size=8, threads=1, epochs=1))
    return 4 + 3 * (time.monotonic() - started)


@pytest.fixture(scope="module")
def decided(enough: float, smallvit_command: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed when its decision was on the disk, before the first step that depends on it."""
    folder = tmp_path_factory.mktemp("budget") / "run"
    for budget in (enough, 3 * enough, 9 * enough):
        words = [*SMALL, "--budget", f"{budget:.1f}s", "--set", "checkpoint_seconds=0", "--out", str(folder)]
        killed = smallvit_command.start("train", *words, moment=("leave", "write_decision", 1))
        if killed.wait() == KILLED:
            return folder
        assert "raise --budget" in killed.output, killed.output  # the machine has become busier since it was measured
    raise AssertionError(killed.output)


def test_what_is_planned_and_decided_is_in_the_folder(decided: Path) -> None:
    recipe = smallvit.Run(decided).recipe
    assert recipe.steps and recipe.replan and recipe.budget is None
    assert recipe.replan.at == int(REPLAN_AT * recipe.steps) and recipe.replan.by < recipe.replan.seconds
    decision = json.loads((decided / "decision.json").read_text())
    assert decision["planned"] == recipe.steps and decision["at"] <= recipe.replan.at < recipe.steps
    assert any(choice["key"] == "epochs" and "ms a step" in choice["why"] for choice in smallvit.Run(decided).choices)


def test_killed_again_it_is_the_run_that_nobody_killed_again(
    decided: Path, smallvit_command: Warm, tmp_path: Path
) -> None:
    undisturbed = shutil.copytree(decided, tmp_path / "undisturbed")
    smallvit_command.run("resume", undisturbed)
    decision = json.loads((decided / "decision.json").read_text())
    assert read_tensors(state_file(undisturbed))[1]["done"] == decision["total"]
    run, page = smallvit.Run(undisturbed), (undisturbed / "report.html").read_text()
    told = f"counted anew while it trained: {run.trained_epochs} epoch" in page
    assert told is (run.trained_epochs != run.recipe.epochs), "the report says what became of the planned epochs"
    again = shutil.copytree(decided, tmp_path / "again")
    for moment in (("enter", "take_step", 3), ("leave", "save_state", 2)):
        killed = smallvit_command.start("resume", again, moment=moment)
        assert killed.wait() == KILLED, killed.output
    smallvit_command.run("resume", again)
    assert json.loads((again / "decision.json").read_text()) == decision
    assert_same_run(again, undisturbed)


def test_seeds_share_one_budget_and_one_count(enough: float, smallvit_command: Warm, tmp_path: Path) -> None:
    words = [*SMALL, "--seeds", "2", "--budget", f"{2 * enough:.1f}s", "--out", str(tmp_path / "group")]
    trained = smallvit_command.start("train", *words)
    assert trained.wait(300) == 0, trained.output  # each seed begins in a process of its own, with all its imports
    told = trained.output
    assert "2 seeds share the budget" in told and "this takes about" in told
    runs = [smallvit.Run(folder) for folder in sorted((tmp_path / "group").glob("seed-*"))]
    assert [run.recipe.seed for run in runs] == [0, 1] and all(run.finished for run in runs)
    first, second = (run.recipe.model_copy(update={"seed": 0}) for run in runs)
    assert first == second and first.steps and first.replan is None
    for run in runs:
        assert read_tensors(state_file(run.path))[1]["done"] == first.steps
        assert not (run.path / "decision.json").exists()


def test_too_small_a_budget_is_refused_before_anything_is_written(smallvit_command: Warm, tmp_path: Path) -> None:
    refused = smallvit_command.start("train", *SMALL, "--budget", "1s", "--out", str(tmp_path / "run"))
    assert refused.wait() == 2
    assert "smallvit: the budget of 1 s leaves 0 s for training" in refused.output
    assert "raise --budget to" in refused.output and not (tmp_path / "run").exists()
