"""Following runs by what they append: nothing is read twice, and nothing at all where nothing was written."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from smallvit.console import make_progress
from smallvit.runs.following import Bars, Follower, Lines


def append(path: Path, **record: object) -> None:
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def test_only_what_was_appended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(tmp_path)
    assert not follower.look() and follower.note == "loading torch and its images"
    append(tmp_path, step=10, steps=40)
    assert follower.look() and follower.share == 0.25 and follower.note == ""
    append(tmp_path, step=20, val_accuracy=0.5)
    assert follower.look() and follower.share == 0.5 and follower.note == "val 50.0%"

    read: list[int] = []
    take = Follower._take
    monkeypatch.setattr(Follower, "_take", lambda self, line: (read.append(len(line)), take(self, line)))
    append(tmp_path, step=30)
    assert follower.look() and len(read) == 1
    monkeypatch.setattr(Path, "open", lambda *_, **__: pytest.fail("nothing is new: the file stays closed"))
    assert not follower.look()


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    follower, file = Follower(tmp_path), tmp_path / "metrics.jsonl"
    file.write_text('{"step": 5, "steps": 10}\n{"step": 6')
    assert follower.look() and follower.step == 5
    with file.open("a") as more:
        more.write("}\nnot json\n")
    assert follower.look() and follower.step == 6
    follower.look()
    assert follower.offset == file.stat().st_size


def test_a_resumed_run_writes_its_records_anew(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    for step in range(1, 9):
        append(tmp_path, step=step, steps=10)
    follower.look()
    part = tmp_path / "part"
    part.write_text("".join(json.dumps({"step": step, "steps": 10}) + "\n" for step in (1, 2, 3)))
    part.replace(tmp_path / "metrics.jsonl")
    assert follower.look() and follower.step == 3


def test_many_runs_in_one_line(tmp_path: Path) -> None:
    view = Lines(total=200)
    for number in range(20):
        (tmp_path / f"r{number}").mkdir()
        append(tmp_path / f"r{number}", step=number, steps=20)
        view.started(tmp_path / f"r{number}")
    view.ended(tmp_path / "r0")
    assert view.line().startswith("1 of 200 done   r1 5%   r2 10%") and "and 11 more   180 wait for" in view.line()


def test_a_run_says_what_it_does_and_what_the_others_wait_for(tmp_path: Path) -> None:
    view = Lines(total=3, jobs=2)
    for name in ("seed-0", "seed-1"):
        (tmp_path / name).mkdir()
        view.started(tmp_path / name)
    append(tmp_path / "seed-0", step=20, steps=20)
    assert view.line() == (
        "0 of 3 done   seed-0 100% judging the model, writing the report   seed-1 loading torch and its images   "
        "1 waits for one of these to end (--jobs 2)"
    )
    view.ended(tmp_path / "seed-0")
    view.started(tmp_path / "seed-0")
    assert "wait" not in view.line()


def test_the_same_as_bars(tmp_path: Path) -> None:
    progress = make_progress(Console(file=io.StringIO()))
    bars = Bars(progress, total=4, jobs=1)
    (tmp_path / "seed-0").mkdir()
    bars.started(tmp_path / "seed-0")
    notes = {task.description: task.fields["note"] for task in progress.tasks if task.visible}
    assert notes == {"": "3 wait for one of these to end (--jobs 1)", "seed-0": "loading torch and its images"}
