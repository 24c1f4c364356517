"""Memory: reckoned before the start, refused or reduced where it cannot fit, and told of where it runs out."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import training

import smallvit
from helpers import QUICK, fails, run_here
from smallvit.errors import UsageError
from smallvit.planning import plan, room
from smallvit.planning.plan import make_plan, write_plan
from smallvit.planning.room import fitting_pieces
from smallvit.training.loop import take_step
from smallvit.training.machine_memory import free_bytes, held_by_children, used_bytes
from smallvit.training.memory import Living, Need, measure_need

CPU = torch.device("cpu")
MB = 2**20


# ---- what a step needs -------------------------------------------------------------------------------


def test_living_counts_tensors_while_they_live() -> None:
    t = training()
    with Living(t) as living:
        first = torch.zeros(1000)
        second = first + 1  # 4,000 bytes each
        view = second[:10]
        view.add_(1)
        del first
        assert (living.now, living.peak) == (4000, 8000)
        del second
        assert living.now == 4000, "a view keeps its storage"
        del view
        next(t.step.parameters()).detach().add_(0)  # was there before
    assert (living.now, living.peak) == (0, 8000)


def test_what_a_model_keeps_is_found() -> None:
    """By two steps of few images, as a whole step has it."""
    t = training(batch_size=8, model="vit_pico")
    need = measure_need(t, t.step.objective.views)
    numbers = sum(parameter.numel() for parameter in t.step.parameters())
    assert need.state == pytest.approx(2 * 4 * numbers, rel=0.01), "AdamW has two numbers for each"
    assert need.gradients >= 4 * numbers
    take_step(t, 0, 0, 0.0)
    with Living(t) as living:  # a whole step, as it is
        take_step(t, 0, 1, 0.0)
    foreseen = need.gradients + 8 * need.activations
    assert living.peak + 4 * numbers == pytest.approx(foreseen, rel=0.1), "with the gradients of the step before"


def test_nothing_of_the_training_is_used_up() -> None:
    t = training()
    before = {name: tensor.clone() for name, tensor in t.step.state_dict().items()}
    measure_need(t, t.step.objective.views)
    assert t.done == 0 and not t.optimizer.state and t.loader.batch_size == 8
    assert all(torch.equal(tensor, before[name]) for name, tensor in t.step.state_dict().items())


# ---- what there is -----------------------------------------------------------------------------------


def test_what_is_used_grows_with_what_is_held() -> None:
    before = used_bytes(CPU)
    with mmap.mmap(-1, 64 * MB) as held:  # new pages: an array might lie where another was
        held.write(b"1" * len(held))
        assert used_bytes(CPU) - before > 50 * MB


@pytest.mark.skipif(sys.platform != "linux", reason="children as Linux tells them")
def test_what_children_hold_is_found() -> None:
    """A run that is planned while others go on is planned as if alone, or its pieces would hang on the moment."""
    before = held_by_children()
    hold = "held = b'1' * (64 << 20); print('there', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdin and child.stdout.readline() == "there\n"
        assert held_by_children() - before > 60 * MB
        child.stdin.write("\n")
    assert held_by_children() <= before + MB


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MACHINE = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8000 * 1024),
        # A container whose own group is the root of what it sees; what the cache can give back is free.
        ({"sys/fs/cgroup/memory.max": "3000000\n", "sys/fs/cgroup/memory.current": "1000000\n",
          "sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 200000\nactive_file 30000\n"}, 2_230_000),
        ({"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "1\n"}, 8000 * 1024),
        # A limit of a group around this one counts.
        ({"proc/self/cgroup": "0::/user/job\n", "sys/fs/cgroup/user/memory.max": "500\n", "sys/fs/cgroup/user/memory.current": "100\n",
          "sys/fs/cgroup/user/job/memory.max": "max\n", "sys/fs/cgroup/user/job/memory.current": "90\n"}, 400),
        ({"proc/self/cgroup": "4:memory:/box\n", "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "700\n",
          "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "900\n"}, 0),
        # In version 1 the sums over the groups inside have names of their own.
        ({"proc/self/cgroup": "4:memory:/box\n", "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "700\n",
          "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "600\n",
          "sys/fs/cgroup/memory/box/memory.stat": "active_file 1\ntotal_inactive_file 20\ntotal_active_file 300\n"}, 420),
    ],
    ids=["machine", "container", "no limit", "around", "version 1", "version 1 with files"],
)  # fmt: skip
def test_the_tightest_limit_counts(files: dict[str, str], expected: float, tmp_path: Path) -> None:
    assert free_bytes(CPU, put(tmp_path, MACHINE | files)) == expected


def test_where_nothing_tells_there_is_no_limit(tmp_path: Path) -> None:
    assert free_bytes(CPU, tmp_path) == float("inf")


# ---- reduced or refused ------------------------------------------------------------------------------

NEED = Need(here=10**9, weights=10**7, state=2 * 10**7, gradients=10**7, activations=10**8, outside=10**5, update=0)


def test_pieces_are_the_fewest_that_fit() -> None:
    assert fitting_pieces(NEED, 64, NEED.more(64)) == 1
    assert fitting_pieces(NEED, 64, NEED.more(64) - 1) == 2
    assert fitting_pieces(NEED, 64, NEED.more(64, 8)) == 8
    assert fitting_pieces(NEED, 64, 0) == 32, "a piece has two images at least"


def test_a_batch_that_does_not_fit_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, pieces=2)
    found = smallvit.explain(
        "digits", model="vit_nano", per_class=10, batch_size=32, threads=1, epochs=1, show_progress=False
    )
    assert found.plan.recipe.grad_accum == 2
    (choice,) = [choice for choice in found.plan.choices if choice.key == "grad_accum"]
    assert "are free; the step is that of the whole batch" in choice.why


def test_what_cannot_fit_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, pieces=4)
    with pytest.raises(
        UsageError,
        match=r"vit_nano needs about 3.7 GB more memory .* 1.2 GB are free: try --batch-size 8, --grad-accum 4, --grad-c",
    ):
        training(model="vit_nano", batch_size=32, grad_accum=1)
    monkeypatch.setattr(room, "free_bytes", lambda device: 1e6)
    with pytest.raises(UsageError, match=r"1 MB are free: try --grad-checkpointing, a smaller --img-size than 8"):
        training(model="vit_nano", batch_size=32)


def with_room(monkeypatch: pytest.MonkeyPatch, pieces: int) -> list[float]:
    """A machine on which a batch fits in so many pieces, and in no fewer."""
    free: list[float] = []
    measure = room.measure_need

    def reckon(*given: Any) -> Need:
        need = measure(*given)._replace(activations=10**8)
        free.append(1.001 * need.more(32, pieces) / room.COMFORT)
        return need

    monkeypatch.setattr(room, "measure_need", reckon)
    monkeypatch.setattr(room, "free_bytes", lambda device: free[-1])
    monkeypatch.setattr(room, "held_by_children", lambda: 0)  # processes of other tests
    return free


# ---- a real failure ----------------------------------------------------------------------------------

SHORT = """
import resource, sys, smallvit
from smallvit import api, cli
from smallvit.training.machine_memory import _in_status
import smallvit.runs.execution, smallvit.training.session, sklearn, timm
limit = _in_status("VmSize") + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.argv = ["smallvit", *sys.argv[2:], "-q"]
cli.main()
"""


def in_short(room: int, *words: str) -> str:
    """What a command says that has so many bytes beside the code that it needs."""
    ended = subprocess.run(
        [sys.executable, "-c", SHORT, str(room), *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits and sizes as Linux tells them")
def test_memory_that_runs_out_is_told_with_what_to_try(tmp_path: Path) -> None:
    recipe = smallvit.make_recipe(
        data="digits", model="vit_nano", batch_size=256, epochs=1, threads=1, img_size=32, precision="fp32"
    )
    folder = tmp_path / "run"
    folder.mkdir()
    write_plan(folder, make_plan(recipe, with_floors=False), "test")
    said = in_short(150 * MB, "resume", str(folder))
    for phrase in (
        "out of memory on cpu with vit_nano and batches of 256 images of 32 px", "--grad-accum 2", "--batch-size 128",
        "--grad-checkpointing", f"smallvit resume {folder}", "allocate",
    ):  # fmt: skip
        assert phrase in said, said
    assert "alloc_cpu.cpp" not in said, "the place in torch's code helps nobody"


@pytest.mark.skipif(sys.platform != "linux", reason="limits and sizes as Linux tells them")
@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (200 * MB, "out of memory: model vit_base_patch16_224 (img_size=32) for 1 channel of 32 px does not fit"),
        (600 * MB, "out of memory on cpu before the first step: vit_base_patch16_224 with gradients, optimizer and two images"),
    ],
)  # fmt: skip
def test_a_model_that_does_not_fit_is_told_without_a_batch_to_try(room: int, expected: str, tmp_path: Path) -> None:
    words = ("--model", "vit_base_patch16_224", "--img-size", "32", "--epochs", "1", "--threads", "1")
    said = in_short(room, "train", "digits", *words, "--precision", "fp32", "--out", str(tmp_path / "a"))
    assert expected in said and "a smaller model" in said and "--batch-size" not in said, said


def test_memory_that_runs_out_elsewhere_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing closer to it has words: numpy's own error, while the floors are fitted."""
    monkeypatch.setattr(plan, "pixel_floors", lambda *_: np.empty(2**56, np.uint8))
    outcome = run_here("train", "digits", *QUICK, "--out", tmp_path / "run")
    fails(outcome, 1, "out of memory (Unable to allocate 64.0 PiB", "--fraction", "--img-size", "smallvit resume RUN")
