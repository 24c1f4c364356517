"""Several processes that train one model: they take the steps that one process takes, and one of them writes.

The processes are real ones, started as torchrun starts them.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from tiny_runs import plan

import smallvit
from smallvit import Run
from smallvit.errors import SmallvitError
from smallvit.evaluation.model_file import read_tensors
from smallvit.planning.plan import write_plan
from smallvit.runs import execution
from smallvit.training.build import build_training
from smallvit.types import World

STEPS = 20
# What is compared with one process: losses of 20 steps. Sums over parts of a batch have other last bits than sums over
# the whole, and steps make them larger: 1e-3 is ten times what was seen.
METHODS: dict[str, dict[str, object]] = {
    "supervised": {"model": "vit_nano", "cutmix": 1.0},
    "batchnorm": {"model": "resnet_nano"},
    "default": {"model": "conv_nano"},
    "again": {"model": "resnet_nano", "grad_checkpointing": True},
    "drloc": {"model": "dhvt_nano", "aux": "drloc"},
    "stages": {"model": "vit_nano", "teacher": "conv_nano"},
    **{
        name: {"model": "vit_nano", "recipe": f"pretrain-{name}"}
        for name in ("simclr", "supcon", "mocov2", "mocov3", "dino", "idmm", "mae")
    },
}
FIRST = ("supervised", "default", "again", "drloc", "simclr", "dino")  # the others take minutes
COMMON = {
    "epochs": 4, "batch_size": 20, "threads": 1, "precision": "fp32", "per_class": 10, "show_progress": False,
    "settings": {"schedule.warmup_epochs": 1},
}  # fmt: skip
ALL = """
import json, sys, smallvit
for name, words in json.loads(sys.argv[2]).items():
    smallvit.train("digits", out=f"{sys.argv[1]}/{name}", **words)
"""


def together(*words: str, size: int = 2) -> list[subprocess.Popen[bytes]]:
    """`torchrun --nproc-per-node SIZE WORDS`, without the launcher's own seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = []
    for rank in range(size):
        environ = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        found.append(
            subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ)
        )
    return found


def ended(processes: list[subprocess.Popen[bytes]]) -> list[str]:
    return [process.communicate(timeout=240)[0].decode() for process in processes]


def losses(run: Run) -> list[float]:
    return [record["loss"] for record in run.metrics if record["kind"] == "train"]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some methods by one process, and by two."""
    root = tmp_path_factory.mktemp("world")
    words = {name: {**COMMON, **METHODS[name]} for name in request.param}
    processes = together("-c", ALL, str(root / "two"), json.dumps(words))
    for name, own in words.items():
        smallvit.train("digits", out=root / "one" / name, **own)
    said = ended(processes)
    assert [process.returncode for process in processes] == [0, 0], said
    return root


@pytest.mark.parametrize("runs", [FIRST], indirect=True)
@pytest.mark.parametrize("name", FIRST)
def test_two_processes_take_the_steps_of_one(name: str, runs: Path) -> None:
    same_steps(Run(runs / "one" / name), Run(runs / "two" / name))


OTHERS = tuple(name for name in METHODS if name not in FIRST)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [OTHERS], indirect=True)
@pytest.mark.parametrize("name", OTHERS)
def test_so_they_do_with_every_method(name: str, runs: Path) -> None:
    same_steps(Run(runs / "one" / name), Run(runs / "two" / name))


def same_steps(one: Run, two: Run) -> None:
    assert len(losses(one)) == len(losses(two)) >= 2 and one.metrics[-1]["step"] == STEPS
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)
    own, other = (read_tensors(run.path / "model.safetensors")[0] for run in (one, two))
    apart = [float((own[key].float() - other[key].float()).norm()) for key in own]
    assert math.hypot(*apart) < 0.02 * math.hypot(*(float(tensor.float().norm()) for tensor in own.values()))


@pytest.mark.slow
def test_a_killed_process_ends_the_run_and_it_goes_on_to_the_same_end(tmp_path: Path) -> None:
    long = ["--epochs", "40", "--batch-size", "20", "--threads", "1", "--precision", "fp32", "--per-class", "10", "-q"]
    words = ["-m", "smallvit", "train", "digits", "--model", "vit_nano", *long, "--set", "checkpoint_seconds=0.2"]
    path = tmp_path / "killed"
    processes = together(*words, "--out", str(path))
    metrics, until = path / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.is_file() and metrics.stat().st_size > 3000) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(processes[1].pid, signal.SIGKILL)
    killed = time.monotonic()
    said = ended(processes)
    assert time.monotonic() - killed < 60
    assert processes[0].returncode == 1 and "another process of this training is gone" in said[0]
    for one in (path, tmp_path / "whole"):
        going_on = one == path
        more = together(*(["-m", "smallvit", "resume", str(one), "-q"] if going_on else [*words, "--out", str(one)]))
        said = ended(more)
        assert [process.returncode for process in more] == [0, 0], said
    for file in ("model.safetensors", "predictions.safetensors"):
        assert (path / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [record["step"] for record in records] == sorted(record["step"] for record in records)


def test_a_batch_that_cannot_be_shared_evenly_is_refused(tmp_path: Path) -> None:
    words = ["-m", "smallvit", "train", "digits", "--model", "vit_nano", "--epochs", "1", "--per-class", "10"]
    processes = together(*words, "--batch-size", "15", "--threads", "1", "--out", str(tmp_path / "a"))
    assert "--batch-size 15 cannot be shared by 2 processes: give a multiple of 2" in ended(processes)[0]
    assert [process.returncode for process in processes] == [2, 2]


def test_checkpointing_of_timms_that_would_norm_otherwise_is_refused(tmp_path: Path) -> None:
    words = ["-m", "smallvit", "train", "digits", "--model", "lcnet_035", "--grad-checkpointing", "--img-size", "32"]
    few = ["--epochs", "1", "--per-class", "10", "--batch-size", "20", "--threads", "1"]
    processes = together(*words, *few, "--out", str(tmp_path / "a"))
    assert "--grad-checkpointing: lcnet_035 has BatchNorm" in ended(processes)[0]
    assert [process.returncode for process in processes] == [2, 2]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("the model is wrong"), "^the model is wrong$"),
        (dist.DistNetworkError("no answer"), r"another process of this training is gone or hangs \(no answer\)"),
    ],
)
def test_only_errors_of_the_group_are_a_lost_process(
    error: RuntimeError, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*words: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(execution, "run_session", fail)
    made = plan("sgd")
    run, t = write_plan(tmp_path, made, "train"), build_training(made.recipe, made.images, made.split)
    with pytest.raises((RuntimeError, SmallvitError), match=told):
        execution.execute(run, made, training=t, world=World(0, 2))
