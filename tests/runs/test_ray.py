"""`--on ray`: a real local cluster, a worker that is killed in the middle of a grid, and the same runs as without Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import ends_well, fails, run_here

WORDS = [
    "digits", "--model", "conv_nano", "--epochs", "12", "--per-class", "10", "--threads", "1", "--precision", "fp32",
    "--seeds", "2", "--set", "checkpoint_seconds=0.2",
]  # fmt: skip


def worker_of(run: str) -> int | None:
    """The process that Ray has given a task of this name."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().rstrip(b"\0").decode(errors="replace").startswith(f"ray::{run}"):
                return int(entry.parent.name)
        except OSError:  # it has ended
            continue
    return None


def wait_for(what: Callable[[], object], seconds: float = 240) -> object:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.05)
    raise TimeoutError(what)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").is_file(), reason="finds the worker in /proc")
def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    on_ray, here = tmp_path / "ray", tmp_path / "here"
    command = [sys.executable, "-m", "smallvit", "train", *WORDS, "--out", str(on_ray), "--on", "ray", "--jobs", "2"]
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ) as process:
        metrics = on_ray / "seed-1" / "metrics.jsonl"
        wait_for(lambda: process.poll() is not None or (metrics.is_file() and metrics.stat().st_size > 1000))
        victim = worker_of("seed-1")
        assert victim is not None, "it was over before it could be killed"
        os.kill(victim, signal.SIGKILL)
        said = process.communicate(timeout=240)[0].decode()
    assert process.returncode == 0, said
    assert "mean of 2 seeds" in said
    ends_well(run_here("train", *WORDS, "--out", here, "--jobs", "2"))
    for seed in ("seed-0", "seed-1"):
        for name in ("model.safetensors", "predictions.safetensors"):
            assert (on_ray / seed / name).read_bytes() == (here / seed / name).read_bytes(), (seed, name)


@pytest.mark.parametrize(("words", "message"), [
    (("--seeds", "2", "--on", "slurm"), "--on slurm: choices: local, ray, ray://HOST:PORT"),
    (("--on", "ray"), "--on ray is for several runs: give --seeds"),
])  # fmt: skip
def test_places_that_cannot_be(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    quick = ("--epochs", "1", "--per-class", "4", "--model", "vit_nano", "--threads", "1")
    fails(run_here("train", "digits", *quick, *words, "--out", tmp_path / "a"), 2, message)
    assert not (tmp_path / "a").exists()


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    quick = ("--epochs", "1", "--per-class", "4", "--model", "vit_nano", "--threads", "1", "--seeds", "2")
    fails(run_here("train", "digits", *quick, "--on", "ray", "--out", tmp_path / "a"), 2, "pip install 'smallvit[ray]'")
