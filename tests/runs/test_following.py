"""Following runs by what they append: nothing is read twice, and nothing at all where nothing was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smallvit.runs.following import Follower, Lines


def append(path: Path, **record: object) -> None:
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def test_only_what_was_appended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(tmp_path)
    assert not follower.look() and follower.note == "starting"
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
    assert view.line().startswith("1 of 200 done   r1 5%   r2 10%") and view.line().endswith("and 11 more")
