"""Device and threads that nobody gave are settled where a run runs; all else was settled when it was planned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import smallvit
from helpers import ends_well, fails, run_here
from smallvit import Run
from smallvit.errors import Interrupted, OutOfMemory, UsageError
from smallvit.planning import tryout
from smallvit.planning.flags import make_recipe
from smallvit.planning.plan import make_plan, write_plan
from smallvit.planning.whereabouts import Given, whereabouts
from smallvit.runs.group import jobs_of
from smallvit.runs.ray_place import most_of_one
from smallvit.training import session
from smallvit.training.loop import Training

ASKED: dict[str, Any] = {
    "data": "digits", "model": "vit_pico", "per_class": 4, "epochs": 1, "batch_size": 8, "precision": "fp32",
}  # fmt: skip
Cores = Callable[[int], None]


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cores]:
    """Says how many there are for this process. A step takes half as long with twice the threads."""
    before = torch.get_num_threads()
    monkeypatch.setattr(tryout, "step_seconds", lambda training, threads, precision: 0.01 / threads)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def planned(path: Path, **changes: Any) -> Run:
    path.mkdir()
    write_plan(path, make_plan(make_recipe(**{**ASKED, **changes}), with_floors=False), "test")
    return Run(path)


def there(run: Run) -> tuple[int, str]:
    """What the finished run says that it had."""
    assert run.finished
    env = run.read("env.json")
    return env["threads"], env["device"]


@pytest.mark.parametrize(("had", "has"), [(2, 1), (1, 2), (2, 2)])
def test_threads_are_those_of_the_place(cores: Cores, tmp_path: Path, had: int, has: int) -> None:
    cores(had)
    run = planned(tmp_path / "a")
    before = (run.path / "recipe.json").read_bytes()
    assert run.recipe.threads == had
    cores(has)
    smallvit.resume(run.path, show_progress=False)
    assert there(run) == (has, "cpu")
    assert (run.path / "recipe.json").read_bytes() == before
    assert torch.get_num_threads() == has


def test_threads_that_were_given_are_kept(cores: Cores, tmp_path: Path) -> None:
    cores(1)
    run = planned(tmp_path / "a", threads=2)
    smallvit.resume(run.path, show_progress=False)
    assert there(run) == (2, "cpu")


def test_fewer_threads_that_were_faster_stay(cores: Cores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tryout, "step_seconds", lambda training, threads, precision: 0.01 * threads)
    cores(2)
    run = planned(tmp_path / "a")
    assert run.recipe.threads == 1
    smallvit.resume(run.path, show_progress=False)
    assert there(run) == (1, "cpu")


def test_more_cores_than_planning_had_are_taken_where_they_pay(
    cores: Cores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores(1)
    run = planned(tmp_path / "a")
    tried = []

    def slower(training: Training, threads: int, precision: str) -> float:
        tried.append(threads)
        return 0.01 * threads

    monkeypatch.setattr(tryout, "step_seconds", slower)
    cores(2)
    smallvit.resume(run.path, show_progress=False)
    assert there(run) == (1, "cpu") and tried == [1, 2]


@pytest.mark.parametrize(("has", "expected"), [(1, 1), (4, 2)])
def test_a_run_that_has_begun_goes_on_as_it_began_where_it_can(
    cores: Cores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: int, expected: int
) -> None:
    cores(2)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(session, "append_line", stop)
        smallvit.train(**ASKED, out=tmp_path / "a", show_progress=False)
    run = Run(tmp_path / "a")
    began = run.read("env.json")
    assert not run.finished and began["threads"] == 2
    cores(has)
    smallvit.resume(run.path, show_progress=False)
    assert there(run) == (expected, "cpu")
    earlier = f"2 threads on cpu ({began['cpu']}), torch {began['torch']}, smallvit {began['smallvit']}"
    assert run.read("env.json").get("earlier") == (None if expected == 2 else earlier)


def test_a_device_that_is_not_there_is_not_missed(cores: Cores, tmp_path: Path) -> None:
    """Planned where there was a GPU; here is none."""
    run = planned(tmp_path / "a")
    file = run.path / "recipe.json"
    record = json.loads(file.read_text())
    record["resolved"]["device"] = "cuda"
    file.write_text(json.dumps(record))
    assert whereabouts(run, Given(2, gpu=True)).device == "cuda"
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    smallvit.resume(run.path, show_progress=False)
    assert there(run)[1] == "cpu" and run.recipe.device == "cuda"


def test_a_gpu_is_taken_where_nobody_asked_for_the_cpu(tmp_path: Path) -> None:
    with_gpu = Given(2, gpu=True)
    assert whereabouts(planned(tmp_path / "a"), with_gpu).device == "cuda"
    assert whereabouts(planned(tmp_path / "b", device="cpu"), with_gpu).device == "cpu"


def test_folders_that_do_not_say_what_was_asked_stay_as_they_are(tmp_path: Path) -> None:
    run = planned(tmp_path / "a", threads=3)
    file = run.path / "recipe.json"
    record = json.loads(file.read_text())
    del record["asked"], record["cores"]
    file.write_text(json.dumps(record))
    assert whereabouts(run, Given(1, gpu=True)) == ("cpu", 3, 3)


def test_runs_at_once_share_the_cores(cores: Cores, tmp_path: Path) -> None:
    """As they were planned to: for all that is measured when they are planned is measured with as many threads."""
    cores(2)
    words = ("train", "digits", "--model", "vit_pico", "--per-class", "4", "--epochs", "1", "--precision", "fp32")
    done = ends_well(run_here(*words, "--seeds", "2", "--jobs", "2", "--out", tmp_path / "a"))
    assert "2 runs at a time, 1 thread each, on 2 cores" in done.err and "would be faster" not in done.err
    for seed in (0, 1):
        run = Run(tmp_path / "a" / f"seed-{seed}")
        assert there(run) == (1, "cpu") and run.recipe.threads == 1


def test_a_group_goes_on_with_as_many_at_once_as_it_was_planned_for(tmp_path: Path) -> None:
    place = {"data": "digits", "model": "vit_pico", "per_class": 4, "epochs": 1, "threads": 1, "out": tmp_path / "a"}
    smallvit.train_seeds(**place, seeds=2, jobs=2, show_progress=False)
    assert (jobs_of(tmp_path / "a"), jobs_of(tmp_path / "a", 1)) == (2, 1)
    (tmp_path / "a" / "seed-1" / "results.json").unlink()
    assert all(run.finished for run in smallvit.resume(tmp_path / "a", show_progress=False))
    with pytest.raises(UsageError, match="jobs = 0: give 1 or more"):
        smallvit.train_seeds(**place | {"out": tmp_path / "b"}, seeds=2, jobs=0, show_progress=False)


def test_what_a_run_had_is_told_later(cores: Cores, tmp_path: Path) -> None:
    """Not what was planned: other threads give other last bits."""
    cores(2)
    run = planned(tmp_path / "a")
    cores(1)
    smallvit.resume(run.path, show_progress=False)
    assert (run.recipe.threads, run.threads, run.device) == (2, 1, "cpu")
    (run.path / "env.json").unlink()
    assert run.threads == 2


def test_more_threads_than_memory_holds_are_told_in_words(
    cores: Cores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores(1)
    run = planned(tmp_path / "a")

    def too_much(*_: object) -> float:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(tryout, "step_seconds", too_much)
    cores(2)
    with pytest.raises(OutOfMemory, match="out of memory on cpu with vit_pico and batches of 8 images"):
        smallvit.resume(run.path, show_progress=False)


def test_a_single_run_has_no_jobs(tmp_path: Path) -> None:
    run = planned(tmp_path / "a")
    for words in (("--jobs", "2"), ("--on", "ray")):
        fails(run_here("resume", run.path, *words), 2, f"{' '.join(words)} is for several runs, and {run.path} is one")


def node(cpus: float, gpus: float = 0, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus, **({"GPU": gpus} if gpus else {})}}


def test_what_a_cluster_gives_to_each_of_several_runs() -> None:
    assert most_of_one([node(1)], 2) == (1, False)
    assert most_of_one([node(8), node(8)], 4) == (4, False)
    assert most_of_one([node(8), node(8)], 3) == (4, False), "two of five would leave no room for the third"
    assert most_of_one([node(8)] * 4, 6) == (4, False) and most_of_one([node(3), node(3)], 9) == (1, False)
    assert most_of_one([node(8), node(64, alive=False)], 1) == (8, False), "no run is on two machines"
    assert most_of_one([node(64), node(4, gpus=1)], 1) == (4, True), "where the GPU is"
    assert most_of_one([node(64), node(4, gpus=1)], 1, gpu=False) == (64, False), "a run that wants none goes anywhere"
