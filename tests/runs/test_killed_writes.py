"""What a kill leaves of a write is removed, blocks nothing, and a folder in which nothing began says so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from helpers import PROJECT, fails, run_here
from smallvit.evaluation.model_file import write_tensors
from smallvit.runs.atomic import replacing
from smallvit.runs.folder import claimed
from smallvit.runs.ownership import sole_owner

GONE = 4_190_000  # above the usual largest number of a process


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return shutil.copytree(PROJECT / "tests" / "runs_0_1" / "finished", tmp_path / "run")


def test_a_kill_inside_a_write_of_tensors_leaves_nothing_that_stays(tmp_path: Path) -> None:
    """A child is killed again and again while it writes; who holds the folder next finds it tidy."""
    write = (
        "import sys, torch; from pathlib import Path; from smallvit.evaluation.model_file import write_tensors\n"
        "print('ready', flush=True)\n"
        "while True: write_tensors(Path(sys.argv[1]) / 'state' / 'latest.safetensors', {'w': torch.zeros(4_000_000)}, {})\n"
    )
    (tmp_path / "state").mkdir()
    child = subprocess.Popen([sys.executable, "-c", write, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    deadline = time.monotonic() + 60
    while not list((tmp_path / "state").glob(".*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with sole_owner(tmp_path):
        left = {path.name for path in (tmp_path / "state").iterdir()}
    assert left <= {"lock", "latest.safetensors"}


def test_writing_tensors_makes_no_file_that_we_do_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    fsync = os.fsync

    def look(handle: int) -> None:
        seen.extend(path.name for path in tmp_path.iterdir())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", look)
    write_tensors(tmp_path / "a.safetensors", {"w": torch.zeros(3)}, {})
    assert seen == [f".a.safetensors.{os.getpid()}.part"]


@pytest.mark.parametrize("name", [".tmpA1b2C3", f".latest.safetensors.{GONE}.part"])
def test_leftovers_block_neither_overwriting_nor_holding(finished: Path, name: str) -> None:
    for folder in (finished, finished / "state"):
        (folder / name).write_bytes(b"half")
    with claimed(finished, overwrite=True):
        assert {path.name for path in finished.iterdir()} == {"state"}


def test_the_next_report_removes_what_a_killed_one_left(finished: Path) -> None:
    left, under_way = (finished / f".report.html.{number}.part" for number in (GONE, os.getppid()))
    left.touch()
    under_way.touch()
    assert run_here("report", finished).status == 0
    assert not left.exists() and under_way.exists()  # a process that lives may be writing it


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_part_of_a_process_that_has_ended_and_was_not_asked_for(tmp_path: Path) -> None:
    """In a container without an init the runs that a killed group leaves stay in the list of processes when they end."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        state = Path(f"/proc/{child.pid}/stat")
        while ") Z " not in state.read_text():
            time.sleep(0.01)
        (tmp_path / f".a.{child.pid}.part").touch()
        with sole_owner(tmp_path):
            assert {path.name for path in tmp_path.iterdir()} == {"state"}


def test_an_old_part_goes_even_if_another_process_has_its_number(tmp_path: Path) -> None:
    left = tmp_path / f".a.{os.getppid()}.part"
    left.touch()
    os.utime(left, (1, 1))
    with replacing(tmp_path / "a") as part:
        part.touch()
    assert {path.name for path in tmp_path.iterdir()} == {"a"}


def test_a_folder_in_which_nothing_was_started_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder):
        (folder / "env.json").write_text("{}")
        (folder / f".split.json.{GONE}.part").touch()
    for command in ("resume", "report", "evaluate"):
        fails(run_here(command, folder), 1, f"nothing was started in {folder} yet", "again")
    with claimed(folder):  # as the same command would, without --overwrite
        assert {path.name for path in folder.iterdir()} == {"state"}


def test_files_of_others_are_never_taken_for_that(tmp_path: Path) -> None:
    with sole_owner(tmp_path):
        (tmp_path / "thesis.txt").touch()
    fails(run_here("train", "digits", "--out", tmp_path), 1, "already used")


def test_a_group_that_was_not_planned_to_its_end(tmp_path: Path) -> None:
    group = shutil.copytree(PROJECT / "tests" / "runs_0_1" / "seeds", tmp_path / "group")
    shutil.rmtree(group / "seed-1")
    (group / "seed-1").mkdir()
    fails(run_here("resume", group), 1, "seed-1", "--overwrite")
