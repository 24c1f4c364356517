"""Following runs by what they append: nothing is read twice, and nothing at all where nothing was written."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from smallvit.console import make_progress
from smallvit.runs.following import Bars, Follower, Lines
from smallvit.runs.ownership import is_owned, owner_of, sole_owner, this_host


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


def test_what_is_left_is_reckoned_from_the_first_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is gone on with has steps that took no time here."""
    clock = [100.0]
    monkeypatch.setattr("smallvit.runs.following.time.monotonic", lambda: clock[0])
    follower = Follower(tmp_path)
    append(tmp_path, step=50, steps=100)
    follower.look()
    assert follower.left is None
    clock[0] = 110.0
    append(tmp_path, step=60, steps=100)
    follower.look()
    assert follower.left == pytest.approx(40)
    view = Lines(total=1)
    view.active[tmp_path] = follower
    assert view.line().endswith(f"{tmp_path.name} 60%  40 s left") or view.line().endswith("60% 40 s left")


def test_where_a_run_is_and_why_one_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("here", "there"):
        (tmp_path / name / "state").mkdir(parents=True)
        append(tmp_path / name, step=1, steps=4)
    with sole_owner(tmp_path / "here"):
        pass
    (tmp_path / "there" / "state" / "lock").write_text("other-machine 17\n")
    view = Lines(total=2, jobs=2)
    for name in ("here", "there"):
        view.started(tmp_path / name)
    assert view.line() == "0 of 2 done   here 25%   there on other-machine 25%"
    view.ended(tmp_path / "there", "first\nsmallvit: the loss became NaN")
    assert "there failed: the loss became NaN" in capsys.readouterr().err
    assert view.line() == "1 of 2 done, 1 of them failed   here 25%"


def test_looking_leaves_the_name_of_the_machine_that_worked_there(tmp_path: Path) -> None:
    lock, part = tmp_path / "state" / "lock", tmp_path / ".report.html.99999999.part"
    lock.parent.mkdir()
    lock.write_text("other-machine 17\n")
    part.touch()
    assert not is_owned(tmp_path)
    assert owner_of(tmp_path) == "other-machine" and lock.read_text() == "other-machine 17\n"
    assert part.exists(), "tidying up is the next owner's"
    with sole_owner(tmp_path):
        assert is_owned(tmp_path) and owner_of(tmp_path) == this_host() and not part.exists()


def test_a_bar_that_failed_says_why(tmp_path: Path) -> None:
    screen = io.StringIO()
    progress = make_progress(Console(file=screen, force_terminal=True, width=160))
    bars = Bars(progress, total=2)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        append(tmp_path / name, step=2, steps=4)
        bars.started(tmp_path / name)
    bars.ended(tmp_path / "one", "smallvit: out of memory\x1b[2J")  # the log of a stranger's run may say anything
    bars.ended(tmp_path / "two")
    notes = {task.description: task.fields["note"] for task in progress.tasks}
    assert notes["one"] == "failed: out of memory\\x1b[2J" and "failed" not in notes["two"]


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


def test_what_waits_has_no_bar(tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    progress = make_progress(screen)
    bars = Bars(progress, total=4, jobs=2)
    for name in ("seed-0", "seed-1"):
        (tmp_path / name).mkdir()
        bars.started(tmp_path / name)
    append(tmp_path / "seed-0", step=10, steps=40)
    bars.update()

    def shown() -> list[str]:
        with screen.capture() as captured:
            screen.print(progress.get_renderable())
        return [" ".join(line.split()) for line in captured.get().splitlines()]

    first, second, last = shown()
    assert first.startswith("seed-0 ━") and " 25% " in first
    assert second == "seed-1 loading torch and its images"
    assert last == "2 wait for one of these to end (--jobs 2)"
    append(tmp_path / "seed-1", step=20, steps=40)
    bars.update()
    assert " 50% " in shown()[1]
