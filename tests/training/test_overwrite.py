"""`--overwrite` replaces what lies there, never what another process is at work on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
from processes import Command, Warm
from tiny_runs import Reference, assert_same_run, command, records

from helpers import run_here
from smallvit.errors import RunError
from smallvit.runs.folder import claimed
from smallvit.runs.ownership import owner_in_words, sole_owner

KILLED = -signal.SIGKILL


def assert_refused(ended: Command, folder: Path) -> None:
    assert ended.wait() == 1, ended.output
    who = owner_in_words(folder)
    assert who.startswith("process ")
    assert f"smallvit: {who} is at work on {folder}: wait for it, or stop it first" in ended.output
    assert "Traceback" not in ended.output


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stopped_group(reference: Reference, folder: Path) -> Path:
    """A group of two seeds, the second one as a kill before its first step leaves it."""
    for name in ("seed-0", "seed-1"):
        shutil.copytree(reference("sgd"), folder / name)
    for path in (folder / "seed-1").iterdir():
        if path.name not in ("recipe.json", "split.json", "floors.json", "env.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "group.json").write_text(json.dumps({"members": ["seed-0", "seed-1"]}))
    return folder


def test_running_run_goes_on(smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = smallvit_command.start(*command("vit"), "--out", folder)
    first.wait_until(lambda: (folder / "metrics.jsonl").exists())
    first.send(signal.SIGSTOP)  # or it might end while the second one is patient
    second = smallvit_command.start(*command("vit", epochs=2), "--out", folder, "--overwrite")
    assert_refused(second, folder)
    first.send(signal.SIGCONT)
    assert first.wait() == 0, first.output
    assert_same_run(folder, reference("vit"))


def test_run_that_was_started_while_the_other_one_planned(
    smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    """Both may overwrite the finished run that they see; the one that begins first has it."""
    folder = shutil.copytree(reference("sgd"), tmp_path / "run")
    second = smallvit_command.start(
        *command("vit", epochs=2), "--out", folder, "--overwrite", moment=("enter", "claimed", 1), number=signal.SIGSTOP
    )
    second.wait_until(lambda: "T (stopped)" in Path(f"/proc/{second.pid}/status").read_text())
    first = smallvit_command.start(*command("vit"), "--out", folder, "--overwrite")
    first.wait_until(lambda: bool((folder / "metrics.jsonl").exists() and len(records(folder)) < 5))
    first.send(signal.SIGSTOP)
    second.send(signal.SIGCONT)
    assert_refused(second, folder)
    first.send(signal.SIGCONT)
    assert first.wait() == 0, first.output
    assert_same_run(folder, reference("vit"))


def test_finished_run_is_replaced_and_its_lock_stays(
    smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    """A lock that was made anew would be another one to a process that had opened the old one."""
    folder = shutil.copytree(reference("vit"), tmp_path / "run")
    (folder / "findings").mkdir()
    (folder / "findings" / "depth.json").write_text("{}")
    lock = (folder / "state" / "lock").stat().st_ino
    smallvit_command.run(*command("sgd"), "--out", folder, "--overwrite")
    assert_same_run(folder, reference("sgd"))
    assert (folder / "state" / "lock").stat().st_ino == lock


@pytest.mark.parametrize("moment", [("enter", "unlink", 3), ("enter", "unlink", 17), ("leave", "_empty", 1)])
def test_killed_while_the_old_run_is_deleted(
    moment: tuple[str, str, int], smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    folder = shutil.copytree(reference("vit"), tmp_path / "run")
    words = [*command("sgd"), "--out", str(folder), "--overwrite"]
    killed = smallvit_command.start(*words, moment=moment)
    assert killed.wait() == KILLED, killed.output
    smallvit_command.run(*words)
    assert_same_run(folder, reference("sgd"))


def test_killed_before_anything_was_written(smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    """A folder with a lock and nothing else is a free one."""
    folder = tmp_path / "run"
    words = [*command("sgd"), "--out", str(folder)]
    killed = smallvit_command.start(*words, moment=("enter", "write_plan", 1))
    assert killed.wait() == KILLED, killed.output
    assert [str(path.relative_to(folder)) for path in folder.rglob("*")] == ["state", "state/lock"]
    smallvit_command.run(*words)
    assert_same_run(folder, reference("sgd"))


def test_group_at_work_is_left_alone(smallvit_command: Warm, tmp_path: Path) -> None:
    """As a whole, by one of its runs, and by a second `resume`; also in the moments when none of its runs is held."""
    group = tmp_path / "group"
    words = [*command("sgd"), "--seeds", "2", "--out", str(group)]
    first = smallvit_command.start(*words, moment=("enter", "run_members", 1), number=signal.SIGSTOP)
    first.wait_until(lambda: "T (stopped)" in Path(f"/proc/{first.pid}/status").read_text())
    before = content(group)
    assert_refused(smallvit_command.start(*words, "--overwrite"), group)
    assert_refused(smallvit_command.start(*command("sgd"), "--out", group, "--overwrite"), group)
    assert_refused(smallvit_command.start(*command("sgd"), "--out", group / "seed-1", "--overwrite"), group)
    assert_refused(smallvit_command.start("resume", group), group)
    assert content(group) == before
    first.send(signal.SIGCONT)
    assert first.wait() == 0, first.output
    assert all((group / name / "results.json").is_file() for name in ("seed-0", "seed-1"))


@pytest.mark.parametrize("new", [["--seeds", "2"], []])
def test_group_with_one_run_at_work(
    new: list[str], smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    group = stopped_group(reference, tmp_path / "group")
    first = smallvit_command.start("resume", group / "seed-1")
    first.wait_until(lambda: (group / "seed-1" / "metrics.jsonl").exists())
    first.send(signal.SIGSTOP)
    assert_refused(smallvit_command.start(*command("vit"), *new, "--out", group, "--overwrite"), group / "seed-1")
    first.send(signal.SIGCONT)
    assert first.wait() == 0, first.output
    for name in ("seed-0", "seed-1"):
        assert_same_run(group / name, reference("sgd"))


def test_group_is_replaced_by_a_run(smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    group = stopped_group(reference, tmp_path / "group")
    smallvit_command.run(*command("vit"), "--out", group, "--overwrite")
    assert_same_run(group, reference("vit"))


def test_what_lies_behind_links_is_not_deleted(smallvit_command: Warm, reference: Reference, tmp_path: Path) -> None:
    group = stopped_group(reference, tmp_path / "group")
    (group / "seed-1").rename(tmp_path / "elsewhere")
    (group / "seed-1").symlink_to(tmp_path / "elsewhere")
    before = content(tmp_path / "elsewhere")
    smallvit_command.run(*command("vit"), "--out", group, "--overwrite")
    assert_same_run(group, reference("vit"))
    assert content(tmp_path / "elsewhere") == before

    (group / "state").rename(tmp_path / "behind")
    (group / "state").symlink_to(tmp_path / "behind")
    before = content(tmp_path / "behind")
    refused = smallvit_command.start(*command("sgd"), "--out", group, "--overwrite")
    assert refused.wait() == 1
    assert f"{group} holds what no run wrote (state): nothing was deleted" in refused.output
    assert content(tmp_path / "behind") == before


def test_demo_that_is_running_is_not_replaced(reference: Reference, tmp_path: Path) -> None:
    """It overwrites without being asked to. The lock is this process's here, and no less in the way."""
    group = stopped_group(reference, tmp_path / "demo")
    for held in (group, group / "seed-0"):
        with sole_owner(held):
            before = content(group)  # with the lock, which tells who holds it
            outcome = run_here("demo", "--quick", "--out", group)
            assert content(group) == before
        assert outcome.status == 1
        who = f"process {os.getpid()} on {socket.gethostname()}"
        assert outcome.err == f"smallvit: {who} is at work on {held}: wait for it, or stop it first\n"


def test_a_study_and_a_search_with_a_trial_that_could_not_be_planned_are_ours(tmp_path: Path) -> None:
    for name in ("study.json", "asked.json", "group.json", "tune.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "trial-001").mkdir()
    (tmp_path / "trial-001" / "trial.json").write_text("{}")
    (tmp_path / "trial-002").mkdir()
    (tmp_path / "trial-002" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds what no run wrote \(trial-002\)"), claimed(tmp_path, overwrite=True):
        pass
    (tmp_path / "trial-002" / "notes.txt").unlink()
    (tmp_path / "trial-002").rmdir()
    with claimed(tmp_path, overwrite=True):
        assert {path.name for path in tmp_path.iterdir()} <= {"state"}
