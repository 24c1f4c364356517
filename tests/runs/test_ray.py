"""`--on ray`: a real local cluster, a worker that is killed in the middle of a grid, and the same runs as without Ray."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import smallvit
from helpers import ends_well, fails, run_here
from smallvit.planning import tryout
from smallvit.planning.plan import make_plan
from smallvit.runs.axes import Place
from smallvit.runs.group import Planned, claimed_group

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


class Cluster(NamedTuple):
    address: str
    head: subprocess.Popen[bytes]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One that was started before, with a single core."""
    pytest.importorskip("ray")
    port, folder = free_port(), tempfile.mkdtemp(dir="/tmp")  # Ray's sockets lie there, and their paths must be short
    words = ["start", "--head", "--block", "--num-cpus", "1", "--include-dashboard", "false", "--temp-dir", folder]
    ports = ["--port", str(free_port()), "--ray-client-server-port", str(port), "--min-worker-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *words, *ports, "--max-worker-port", "0"], start_new_session=True,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as head:  # fmt: skip
        wait_for(lambda: head.poll() is not None or answers(port))
        assert head.poll() is None, "the cluster did not start"
        yield Cluster(f"ray://127.0.0.1:{port}", head)
        head.terminate()
    shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.timeout(1500)  # three commands that load torch, and workers that do
def test_a_search_on_a_cluster_that_has_an_address(cluster: Cluster, tmp_path: Path) -> None:
    """Stopped in the middle, gone on with, and the same as on this machine."""
    pytest.importorskip("optuna")
    words = ["tune", "digits", "--trials", "2", "--epochs", "6", "--per-class", "10", "--folds", "1", "--jobs", "1"]
    words += ["--threads", "1", "--precision", "fp32", "--set", "checkpoint_seconds=0.2"]
    there, here = tmp_path / "ray", tmp_path / "here"
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    program = [sys.executable, "-m", "smallvit"]
    command = [*program, *words, "--on", cluster.address, "--out", str(there)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ) as process:
        metrics = there / "trial-000" / "metrics.jsonl"
        wait_for(lambda: process.poll() is not None or (metrics.is_file() and metrics.stat().st_size > 0))
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=240)[0].decode()
    assert process.returncode == 1 and f"go on with `smallvit resume {there}`" in said, said
    command = [*program, "resume", str(there), "--on", cluster.address]
    gone_on = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=600, check=False)
    assert gone_on.returncode == 0, gone_on.stderr
    ends_well(run_here(*words, "--out", here))
    for run in ("trial-000", "trial-001", "final"):
        for name in ("model.safetensors", "predictions.safetensors"):
            assert (there / run / name).read_bytes() == (here / run / name).read_bytes(), (run, name)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_threads_are_those_that_a_task_was_given(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned where two threads were faster, on a cluster of machines with one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(tryout, "step_seconds", lambda training, threads, precision: 0.01 / threads)
    asked = smallvit.make_recipe(
        data="digits", model="vit_pico", per_class=4, epochs=1, batch_size=8, precision="fp32"
    )  # fmt: skip
    plan = make_plan(asked, with_floors=False)
    torch.set_num_threads(before)
    assert plan.recipe.threads == 2
    with claimed_group(tmp_path / "a", [Planned(Place(seed=0), plan)], "test"):
        pass
    command = [sys.executable, "-m", "smallvit", "resume", str(tmp_path / "a"), "--on", cluster.address]
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    run = smallvit.Run(tmp_path / "a" / "seed-0")
    assert run.finished and run.recipe.threads == 2 and run.read("env.json")["threads"] == 1


@pytest.mark.slow
def test_a_cluster_that_ends_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    """The command ends with a message, and what is left is trained on this machine.

    Which message depends on what is seen first: that the head is gone, or that the run was told to stop with it.
    """
    path = tmp_path / "a"
    command = [sys.executable, "-m", "smallvit", "train", *WORDS, "--out", str(path), "--on", cluster.address]
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ) as process:
        metrics = path / "seed-0" / "metrics.jsonl"
        wait_for(lambda: process.poll() is not None or metrics.is_file())
        cluster.head.terminate()
        said = process.communicate(timeout=240)[0].decode()
    ours = str(Path(smallvit.__file__).parent)  # a thread of Ray's own may break noisily while it closes
    assert process.returncode == 1 and ours not in said, said
    first = ("the Ray cluster does not answer any more", f"the run {path / 'seed-0'} failed: ")
    assert any(words in said for words in first) and f"go on with `smallvit resume {path}`" in said, said
    ends_well(run_here("resume", path))
    assert (path / "seed-1" / "results.json").is_file()


def test_an_address_where_nothing_listens(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    where = f"ray://127.0.0.1:{free_port()}"
    began = time.monotonic()
    outcome = run_here("tune", "digits", "--trials", "2", "--epochs", "1", "--on", where, "--out", tmp_path / "a")
    fails(outcome, 2, f"--on {where}: nothing answers there (Connection refused)")
    assert time.monotonic() - began < 20  # Ray itself asks for half a minute
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("words", "message"), [
    (("--seeds", "2", "--on", "slurm"), "--on slurm: choices: local, ray, ray://HOST:PORT"),
    (("--on", "ray"), "--on ray is for several runs: give --seeds"),
    (("--seeds", "2", "--on", "ray://"), "--on ray://: give ray://HOST:PORT"),
    (("--seeds", "2", "--on", "ray://head"), "--on ray://head: give ray://HOST:PORT"),
    (("--seeds", "2", "--on", "ray://:10001"), "--on ray://:10001: give ray://HOST:PORT"),
    (("--seeds", "2", "--on", "ray://head:port"), "--on ray://head:port: give ray://HOST:PORT"),
    (("--seeds", "2", "--on", "ray://head:99999"), "--on ray://head:99999: give ray://HOST:PORT"),
])  # fmt: skip
def test_places_that_cannot_be(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    quick = ("--epochs", "1", "--per-class", "4", "--model", "vit_nano", "--threads", "1")
    fails(run_here("train", "digits", *quick, *words, "--out", tmp_path / "a"), 2, message)
    assert not (tmp_path / "a").exists()


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    quick = ("--epochs", "1", "--per-class", "4", "--model", "vit_nano", "--threads", "1", "--seeds", "2")
    fails(run_here("train", "digits", *quick, "--on", "ray", "--out", tmp_path / "a"), 2, "pip install 'smallvit[ray]'")
