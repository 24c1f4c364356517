"""A run that was killed and resumed ends as the run that was never killed, to the last bit."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Moment, Warm
from safetensors import safe_open
from tiny_runs import (
    RECIPES,
    Reference,
    all_tensors,
    assert_same_run,
    assert_same_tensors,
    command,
    plan,
    records,
    training,
)

import smallvit
from smallvit.errors import RunError
from smallvit.evaluation.model_file import read_tensors
from smallvit.training.build import build_training
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import train
from smallvit.training.session import run_session

KILLED = -signal.SIGKILL
LIFE = (50_000, 300_000)  # function calls: a step with its checkpoint is 15,000 to 20,000


# ---- real processes, killed at chosen moments --------------------------------------------------------

# Each list is one run: killed at the first moment, resumed, killed at the second, and so on. The counts start anew in
# every process.
MOMENTS: dict[str, list[Moment]] = {
    "before the first step": [("enter", "save_state", 1), ("enter", "take_step", 1)],
    "within steps": [("leave", "batch", 3), ("leave", "backward", 7), ("enter", "after_step", 4), ("leave", "step", 9)],
    "within evaluations": [("enter", "score", 1), ("enter", "classify", 20), ("leave", "logits", 1)],
    "within writes": [
        ("enter", "serialize", 5),  # nothing of the new checkpoint is written
        ("leave", "write_bytes", 6),  # it is written, but not safe on disk
        ("leave", "fsync", 7),  # it is safe, but not in place
        ("leave", "replacing", 8),
        ("enter", "append_line", 2),
        ("leave", "append_line", 2),
        ("leave", "save_model", 1),  # the new best is there, the checkpoint that knows it is not
    ],
    "after the last step": [
        ("enter", "finish", 1),
        ("leave", "finish", 1),
    ],
    "within the results": [
        ("leave", "_choose_weights", 1),
        ("enter", "summary", 1),
        ("enter", "worst_mistakes", 1),
        ("enter", "write", 1),
        ("enter", "write_report", 1),
    ],
}


@pytest.mark.parametrize("name", MOMENTS)
def test_killed_at_any_moment(name: str, smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    expected, folder = reference("vit"), tmp_path / "run"
    words = [*command("vit"), "--out", str(folder)]
    for moment in MOMENTS[name]:
        killed = smallvit_command.start(*words, moment=moment)
        assert killed.wait() == KILLED, f"{moment} never came:\n{killed.output}"
        words = ["resume", str(folder)]
    smallvit_command.run(*words)
    assert_same_run(folder, expected)


def test_the_time_of_all_sessions_counts(smallvit_command: Warm, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed = smallvit_command.start(*command("vit"), "--out", folder, moment=("leave", "append_line", 3))
    assert killed.wait() == KILLED, killed.output
    slow = [record | {"seconds": record["seconds"] + 1000} for record in smallvit.Run(folder).metrics]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in slow))
    smallvit_command.run("resume", folder)
    run = smallvit.Run(folder)
    assert all(record["seconds"] > 1000 for record in run.metrics)
    assert run.results["timing"]["train_seconds"] == pytest.approx(run.metrics[-1]["seconds"], abs=0.02)


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_killed_again_and_again(recipe: str, smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    """Kills after any number of function calls; each life is long enough for a step or two at least."""
    expected, folder, draw = reference(recipe), tmp_path / "run", random.Random(recipe)
    words, killed = [*command(recipe), "--out", str(folder)], 0
    while (
        life := smallvit_command.start(*words, moment=("after", "run_session", draw.randint(*LIFE)))
    ).wait() == KILLED:
        words, killed = ["resume", str(folder)], killed + 1
        assert killed < 40, "it does not get on"
    assert life.wait() == 0, life.output
    assert killed > 1
    assert_same_run(folder, expected)


def test_killed_from_outside_while_it_writes(reference: Reference, tmp_path: Path) -> None:
    """The plain way: `python -m smallvit`, and kill -9 when half a checkpoint is seen on disk."""
    expected, folder = reference("vit"), tmp_path / "run"
    smallvit_m = [sys.executable, "-m", "smallvit"]
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen([*smallvit_m, *command("vit"), "--out", str(folder)], stdout=log, stderr=log)
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        under_way = (folder / "metrics.jsonl").exists() and bool(records(folder))
        if under_way and list((folder / "state").glob(".latest.*.part")):
            break
    process.kill()
    assert process.wait() == KILLED, (tmp_path / "log.txt").read_text()
    assert not (folder / "results.json").exists()
    resumed = subprocess.run([*smallvit_m, "resume", str(folder)], capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after step" in resumed.stderr
    assert_same_run(folder, expected)


def test_resuming_a_finished_run_changes_nothing(smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    folder = shutil.copytree(reference("vit"), tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert "already finished" in smallvit_command.run("resume", folder).output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before


def test_one_process_at_a_time(smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = smallvit_command.start(*command("vit"), "--out", folder)
    first.wait_until(lambda: (folder / "metrics.jsonl").exists())
    first.send(signal.SIGSTOP)  # or it might end while the second one is patient
    second = smallvit_command.start("resume", folder)
    assert second.wait() == 1
    assert f"process {first.pid} on " in second.output and "Traceback" not in second.output
    first.send(signal.SIGCONT)
    assert first.wait() == 0, first.output
    assert_same_run(folder, reference("vit"))


def test_a_reader_sees_whole_files_only(smallvit_command: Warm, tmp_path: Path) -> None:
    state = tmp_path / "run" / "state" / "latest.safetensors"
    running = smallvit_command.start(*command("vit"), "--out", tmp_path / "run")
    running.wait_until(state.exists)
    seen = set()
    while not (tmp_path / "run" / "model.safetensors").exists() and running.is_alive:
        seen.add(read_tensors(state)[1]["done"])
    assert running.wait() == 0, running.output
    assert len(seen) > 3


# ---- the records ---------------------------------------------------------------------------------------


def test_records_after_the_checkpoint_are_written_anew(
    smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    """With checkpoints far apart the log runs ahead of the state; a torn line is dropped with the rest."""
    folder = tmp_path / "run"
    words = command("vit", checkpoint_seconds=3600)
    killed = smallvit_command.start(*words, "--out", folder, moment=("enter", "take_step", 32))
    assert killed.wait() == KILLED, killed.output
    assert [record["step"] for record in records(folder)] == [10, 13, 13, 20, 26, 26, 30]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "epoch": 2, "st')
    smallvit_command.run("resume", folder)
    assert records(folder) == records(reference("vit"))
    assert_same_run(folder, reference("vit"))


def test_best_is_found_again_when_it_lies_after_the_checkpoint(
    smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    killed = smallvit_command.start(
        *command("vit", checkpoint_seconds=3600), "--out", folder, moment=("enter", "score", 2)
    )
    assert killed.wait() == KILLED, killed.output
    with safe_open(folder / "state" / "best.safetensors", "pt") as file:
        assert json.loads(file.metadata()["smallvit"])["epoch"] == 0
    smallvit_command.run("resume", folder)
    assert_same_run(folder, reference("vit"))


# ---- in one process: every step ------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_step_can_be_the_last_one_before_a_stop(recipe: str, tmp_path: Path) -> None:
    """State saved after step k, loaded into a fresh training: two steps on, everything is as it was there."""
    made = plan(recipe, epochs=2)
    t = build_training(made.recipe, made.images, made.split)
    after, best = [all_tensors(t)], [t.best]
    save_state(tmp_path / "0", t)
    for tick in train(t):
        after.append(all_tensors(t))
        best.append(t.best)
        save_state(tmp_path / str(tick.step), t)
    assert t.done == t.total == 26
    for k in range(t.total):
        fresh = build_training(made.recipe, made.images, made.split)
        stored = (tmp_path / str(k)).read_bytes()
        load_state(tmp_path / str(k), fresh)
        taken = len(list(islice(train(fresh), 2)))
        assert_same_tensors(all_tensors(fresh), after[k + taken])
        assert fresh.best == best[k + taken]
        assert (tmp_path / str(k)).read_bytes() == stored, "training on has changed the file it came from"


def test_state_of_another_length_is_refused(tmp_path: Path) -> None:
    save_state(tmp_path / "state", training(epochs=2))
    with pytest.raises(RunError, match="26 steps, not of 39"):
        load_state(tmp_path / "state", training(epochs=3))


def test_state_of_another_model_is_refused(tmp_path: Path) -> None:
    save_state(tmp_path / "state", training("resnet"))
    with pytest.raises(RunError, match="does not fit the model"):
        load_state(tmp_path / "state", training("vit"))


@pytest.mark.parametrize("content", [b"", b"not safetensors", b"\x10\0\0\0\0\0\0\0{}"])
def test_damaged_state_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(RunError, match="cannot read"):
        load_state(tmp_path / "state", training())


class ThreadLog:
    """A log that looks at the threads instead of the records."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def add(self, record: dict[str, Any]) -> None:
        self.threads.add(torch.get_num_threads())

    def close(self) -> None: ...


def test_threads_are_those_of_the_recipe(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    for threads in (1, 3):
        log = ThreadLog()
        run_session(tmp_path / str(threads), training(threads=threads, epochs=1), [log])
        assert log.threads == {threads}
        assert torch.get_num_threads() == before


def test_resume_uses_the_threads_of_the_run_not_those_of_the_caller(reference: Reference, tmp_path: Path) -> None:
    folder = shutil.copytree(reference("vit"), tmp_path / "run")
    for name in ("results.json", "model.safetensors", "metrics.jsonl"):
        (folder / name).unlink()
    shutil.rmtree(folder / "state")
    before, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        smallvit.resume(folder, show_progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert_same_run(folder, reference("vit"))
