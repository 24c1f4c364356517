"""Runs that outlive the command that started them: a resumed group waits for them, and nothing is trained twice."""

from __future__ import annotations

import signal
from pathlib import Path

from processes import Command, Warm
from test_overwrite import stopped_group
from tiny_runs import Reference, assert_same_run


def stopped_at_work(smallvit_command: Warm, run: Path) -> Command:
    """A run that holds its folder and does not come on: what a test does then is not a matter of milliseconds."""
    at_work = smallvit_command.start("resume", run, moment=("enter", "take_step", 5), number=signal.SIGSTOP)
    at_work.wait_until(lambda: "T (stopped)" in Path(f"/proc/{at_work.pid}/status").read_text())
    return at_work


def test_a_resumed_group_waits_for_what_is_left_of_the_killed_one(
    smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    group = stopped_group(reference, tmp_path / "group")
    orphan = stopped_at_work(smallvit_command, group / "seed-1")
    resumed = smallvit_command.start("resume", group)
    resumed.wait_until(lambda: f"waiting for seed-1 (process {orphan.pid} on " in resumed.output)
    orphan.send(signal.SIGCONT)
    assert orphan.wait() == 0, orphan.output
    assert resumed.wait() == 0, resumed.output
    assert not (group / "seed-1" / "log.txt").exists(), "a second process was started on the run"
    assert_same_run(group / "seed-1", reference("sgd"))


def test_a_run_that_is_waited_for_is_not_trained_again(
    smallvit_command: Warm, reference: Reference, tmp_path: Path
) -> None:
    """As members of a group are started: an orphan may take its folder after the group has looked, when it has loaded torch."""
    run = stopped_group(reference, tmp_path / "group") / "seed-1"
    orphan = stopped_at_work(smallvit_command, run)
    refused, second = smallvit_command.start("resume", run), smallvit_command.start("resume", run, "--wait")
    assert refused.wait() == 1
    assert f"smallvit: process {orphan.pid} on " in refused.output
    assert second.is_alive, "it waits longer than one that may be refused"
    orphan.send(signal.SIGCONT)
    assert orphan.wait() == 0, orphan.output
    trained = (run / "metrics.jsonl").stat().st_mtime_ns
    assert second.wait() == 0 and "already finished" in second.output
    assert (run / "metrics.jsonl").stat().st_mtime_ns == trained
    assert_same_run(run, reference("sgd"))
