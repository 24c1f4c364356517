"""Ctrl-C, a loss that is no number, a full disk: one clear message, and nothing is lost."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Command, Moment, Warm
from tiny_runs import Reference, assert_same_run, command, records, training

from smallvit.errors import Diverged
from smallvit.evaluation.model_file import read_tensors
from smallvit.training.checkpoint import load_state
from smallvit.training.session import run_session


def assert_one_message(ended: Command, status: int = 1) -> None:
    assert ended.wait() == status, ended.output
    assert "Traceback" not in ended.output
    assert ended.output.rstrip().splitlines()[-1].startswith("smallvit: ")


# ---- asked to stop -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(number: signal.Signals, smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    """Saves where it stands, between two records and far from the next checkpoint, and says how to go on."""
    folder = tmp_path / "run"
    running = smallvit_command.start(*command("vit", checkpoint_seconds=3600), "--out", folder)
    running.wait_until(lambda: (folder / "metrics.jsonl").exists() and bool(records(folder)))
    running.send(number)
    assert_one_message(running)
    assert f"`smallvit resume {folder}`" in running.output
    _, header = read_tensors(folder / "state" / "latest.safetensors")
    assert header["done"] >= 10
    assert f"stopped after step {header['done']} of 39" in running.output
    smallvit_command.run("resume", folder)
    assert_same_run(folder, reference("vit"))


@pytest.mark.parametrize("moment", [("enter", "run_session", 1), ("enter", "summary", 1), ("enter", "write_report", 1)])
def test_ctrl_c_outside_the_loop(moment: Moment, smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped = smallvit_command.start(*command("sgd"), "--out", folder, moment=moment, number=signal.SIGINT)
    assert_one_message(stopped)
    assert f"`smallvit resume {folder}`" in stopped.output
    smallvit_command.run("resume", folder)
    assert_same_run(folder, reference("sgd"))


def test_ctrl_c_before_there_is_a_run(smallvit_command: Warm, tmp_path: Path) -> None:
    stopped = smallvit_command.start(
        *command("sgd"), "--out", tmp_path / "run", moment=("enter", "make_split", 1), number=signal.SIGINT
    )
    assert_one_message(stopped)
    assert not (tmp_path / "run").exists()


# ---- numbers that are none -----------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["vit", "sgd"])
def test_divergence_stops_and_keeps_the_last_good_weights(recipe: str, smallvit_command: Warm, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = command(recipe, lr=1e30, **{"optimizer.clip": 0})
    ended = smallvit_command.start(*words, "--out", folder)
    assert_one_message(ended)
    assert "between steps" in ended.output and str(folder / "state" / "latest.safetensors") in ended.output
    tensors, _ = read_tensors(folder / "state" / "latest.safetensors")
    assert all(tensor.isfinite().all() for name, tensor in tensors.items() if name.startswith(("step/", "ema/")))
    assert not (folder / "model.safetensors").exists()


class Saboteur:
    """A log that breaks a weight when it is told of a step: the next one gives no numbers."""

    def __init__(self, t: Any, step: int) -> None:
        self.t = t
        self.step = step

    def add(self, record: dict[str, Any]) -> None:
        if record["step"] == self.step:
            with torch.no_grad():
                next(self.t.step.parameters()).fill_(float("nan"))

    def close(self) -> None: ...


@pytest.mark.parametrize("checkpoint_seconds", [0, 3600])
@pytest.mark.parametrize(("broken", "found"), [(10, "9 and 10|10 and 13"), (20, "19 and 20|20 and 26")])
def test_divergence_names_the_steps(broken: int, found: str, checkpoint_seconds: float, tmp_path: Path) -> None:
    """Whenever the weights break, also between a good loss and its checkpoint, no broken weights are saved."""
    t = training("sgd", checkpoint_seconds=checkpoint_seconds)
    with pytest.raises(Diverged, match=f"between steps ({found})\\."):
        run_session(tmp_path, t, [Saboteur(t, broken)])
    for name in ("latest", "best"):
        if (tmp_path / "state" / f"{name}.safetensors").exists():
            tensors, _ = read_tensors(tmp_path / "state" / f"{name}.safetensors")
            assert all(tensor.isfinite().all() for tensor in tensors.values())
    log = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in log and json.loads(log.splitlines()[-1])["step"] <= broken


@pytest.mark.parametrize(
    ("recipe", "continued", "slower"),
    [
        ("sgd", "", r"a smaller learning rate \(--lr 0\.013\), a longer warm-up or stronger clipping$"),
        ("hybrid", "", r"smaller learning rates \(--set optimizer\.rate_factor=0\.25, or .+\) or a longer warm-up$"),
        ("hybrid", "state", r"a smaller learning rate \(--lr 0\.0037\) or a longer warm-up$"),
    ],
)
def test_divergence_names_what_lowers_the_rate(recipe: str, continued: str, slower: str, tmp_path: Path) -> None:
    """Muon's filters have a rate of their own, which --lr changes in a continued run only."""
    t = training(recipe)
    went_on = t.recipe.continued.model_copy(update={"file": continued})
    t.recipe = t.recipe.model_copy(update={"continued": went_on})
    with pytest.raises(Diverged, match=slower):
        run_session(tmp_path, t, [Saboteur(t, 10)])


# ---- no room -------------------------------------------------------------------------------------------


def test_full_disk_keeps_the_last_checkpoint(smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    """A file that may not grow is a disk without room: the write fails half-way."""
    folder = tmp_path / "run"
    stopped = smallvit_command.start(
        *command("vit"), "--out", folder, moment=("enter", "take_step", 20), number=signal.SIGINT
    )
    assert_one_message(stopped)
    state = folder / "state" / "latest.safetensors"
    before = state.read_bytes()
    failed = smallvit_command.start("resume", folder, largest_file=len(before) // 2)
    assert_one_message(failed)
    assert f"cannot write {state}" in failed.output
    assert state.read_bytes() == before
    assert not list(folder.rglob(".*.part"))
    load_state(state, training("vit"))
    smallvit_command.run("resume", folder)
    assert_same_run(folder, reference("vit"))


@pytest.mark.parametrize("largest_file", [4_000, 20_000])
def test_no_room_from_the_start(largest_file: int, smallvit_command: Warm, tmp_path: Path) -> None:
    failed = smallvit_command.start(*command("vit"), "--out", tmp_path / "run", largest_file=largest_file)
    assert_one_message(failed)
    assert "cannot write" in failed.output


def test_output_that_cannot_be_a_folder(smallvit_command: Warm, tmp_path: Path) -> None:
    """Below a file nobody can write, not even root."""
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        failed = smallvit_command.start(*command("vit"), "--out", out)
        assert_one_message(failed)
        assert str(out) in failed.output
    assert (tmp_path / "file").read_text() == "mine"
