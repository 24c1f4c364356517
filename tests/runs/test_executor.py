"""The executor: room, order, what a source may add, failures and stops. Runs are computed elsewhere: the seam is tried
with jobs that take no time, and once with a real process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from smallvit.errors import Interrupted, SmallvitError
from smallvit.planning.flags import make_recipe
from smallvit.planning.plan import make_plan, write_plan
from smallvit.runs import executor
from smallvit.runs.beside import Room
from smallvit.runs.executor import Ended, Exit, Listed, PlaceLost, Process, run_all


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "POLL_SECONDS", 0.001)


class Machine:
    """Runs jobs that end after some looks, each later than the one before, with the status that its name has here."""

    def __init__(self, **statuses: int) -> None:
        self.statuses = statuses
        self.running: set[Path] = set()
        self.order: list[str] = []
        self.most = 0
        self.stopped: list[str] = []

    def launch(self, path: Path) -> MachineJob:
        self.running.add(path)
        self.order.append(path.name)
        self.most = max(self.most, len(self.running))
        return MachineJob(self, path)


class MachineJob:
    def __init__(self, machine: Machine, path: Path) -> None:
        self.machine, self.path, self.looks = machine, path, 2 + len(machine.order)

    def poll(self) -> Exit | None:
        self.looks -= 1
        if self.looks:
            return None
        self.machine.running.discard(self.path)
        return Exit(self.machine.statuses.get(self.path.name, 0), 1.5)

    def stop(self) -> None:
        self.machine.stopped.append(self.path.name)


class Telling(Listed):
    """A list that hears of every run, and may do something then."""

    def __init__(self, root: Path, names: Iterable[str], then: Callable[[Telling, Ended], None] | None = None) -> None:
        super().__init__(root / name for name in names)
        self.root, self.then = root, then
        self.heard: list[Ended] = []

    def tell(self, ended: Ended) -> None:
        self.heard.append(ended)
        if self.then:
            self.then(self, ended)


def test_as_many_at_a_time_as_there_is_room_in_order(tmp_path: Path) -> None:
    machine, source = Machine(), Telling(tmp_path, "abcdef")
    assert run_all(source, 2, go_on="", launch=machine.launch) == []
    assert machine.order == list("abcdef") and machine.most == 2
    assert [ended.cpu_seconds for ended in source.heard] == [1.5] * 6


def planned(root: Path, **needs: float) -> None:
    """Run folders whose plans say how many GB they need."""
    plan = make_plan(make_recipe(data="digits", model="vit_pico", per_class=4, epochs=1, threads=1), with_floors=False)
    for name, need in needs.items():
        (root / name).mkdir()
        write_plan(root / name, plan._replace(memory=int(need * 1e9)), "test")


def test_runs_that_do_not_fit_together_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(tmp_path, a=2, b=2, c=2, d=7, e=2)
    machine = Machine()
    assert (
        run_all(Listed(tmp_path / n for n in "abcde"), 4, go_on="", launch=machine.launch, room=Room(lambda _: 5e9))
        == []
    )
    assert machine.order == list("abcde") and machine.most == 2, "two of 2 GB fit into 0.9 of 5 GB, three do not"
    said = capsys.readouterr().err
    assert (
        said.count(
            "fewer runs at a time than asked for: 1.0 GB are left beside 2 runs, and the next one needs about 2.0 GB"
        )
        == 1
    )


def test_what_others_take_in_the_meantime_counts(tmp_path: Path) -> None:
    planned(tmp_path, a=1, b=1, c=1)
    free = iter([9e9, 0.5e9, *[9e9] * 99])  # before a, then for b, which waits for one look
    machine, looks = Machine(), []

    def look(device: object) -> float:
        looks.append(next(free))
        return looks[-1]

    run_all(Listed(tmp_path / n for n in "abc"), 2, go_on="", launch=machine.launch, room=Room(look))
    assert machine.order == list("abc") and machine.most == 2 and looks[:3] == [9e9, 0.5e9, 9e9]


def test_plans_without_a_need_hold_nobody_up(tmp_path: Path) -> None:
    machine = Machine()
    run_all(Telling(tmp_path, "abc"), 3, go_on="", launch=machine.launch, room=Room(lambda _: 0.0))
    assert machine.most == 3


def test_a_source_adds_runs_when_it_hears_of_others(tmp_path: Path) -> None:
    """As a search does, or the second stage of an arm: even when nothing else is left."""

    def then(source: Telling, ended: Ended) -> None:
        if len(source.heard) < 4:
            source.waiting.append(source.root / f"{ended.path.name}x")

    machine = Machine()
    run_all(Telling(tmp_path, "a", then), 3, go_on="", launch=machine.launch)
    assert machine.order == ["a", "ax", "axx", "axxx"]


def test_the_first_failure_stops_the_others(tmp_path: Path) -> None:
    machine = Machine(a=1)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "log.txt").write_text("one\ntwo\nthree\nfour\n")
    source = Telling(tmp_path, "abc")
    with pytest.raises(SmallvitError, match=r"a failed: two\nthree\nfour\ngo on with `again`"):
        run_all(source, 2, go_on="again", launch=machine.launch)
    assert machine.order == ["a", "b"] and machine.stopped == ["b"]
    assert not machine.running


def test_failures_are_returned_where_the_others_go_on(tmp_path: Path) -> None:
    machine = Machine(b=1, d=-9)
    failed = run_all(Telling(tmp_path, "abcde"), 2, go_on="again", keep_going=True, launch=machine.launch)
    assert machine.order == list("abcde") and [ended.path.name for ended in failed] == ["b", "d"]


def test_a_stop_lets_all_save_and_says_how_to_go_on(tmp_path: Path) -> None:
    def then(source: Telling, ended: Ended) -> None:
        if len(source.heard) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    machine, source = Machine(c=1), Telling(tmp_path, "abcdef", then)
    with pytest.raises(Interrupted, match="stopped; go on with `again`"):
        run_all(source, 2, go_on="again", launch=machine.launch)
    assert machine.stopped and not machine.running
    assert sorted(ended.path.name for ended in source.heard) == sorted(machine.order), "the source hears of each"


def test_what_ends_while_all_are_stopped_has_not_failed(tmp_path: Path) -> None:
    """A signal to all processes at once, as a queue of jobs sends it, reaches the children, too."""

    class Struck(MachineJob):
        def poll(self) -> Exit | None:
            os.kill(os.getpid(), signal.SIGTERM)
            return Exit(1, None)

    machine, source = Machine(), Telling(tmp_path, "a")
    with pytest.raises(Interrupted, match="stopped; go on with `again`"):
        run_all(source, 1, go_on="again", keep_going=True, launch=lambda path: Struck(machine, path))
    assert [(ended.path.name, ended.stopped) for ended in source.heard] == [("a", True)]


@pytest.mark.parametrize("status", [executor.STOPPED, -signal.SIGTERM])
def test_a_run_that_somebody_stops_has_not_failed(
    status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, source = Machine(a=status), Telling(tmp_path, "abc")
    assert run_all(source, 2, go_on="again", keep_going=True, launch=machine.launch) == []
    assert [ended.stopped for ended in source.heard] == [True, False, False] and machine.stopped == []
    assert f"`smallvit resume {tmp_path / 'a'}` goes on with it" in capsys.readouterr().err
    with pytest.raises(Interrupted, match="a was stopped; go on with `again`"):
        run_all(Telling(tmp_path, "abc"), 2, go_on="again", launch=Machine(a=status).launch)


def test_a_real_process_that_is_stopped_says_so_by_its_status(tmp_path: Path) -> None:
    plan = make_plan(
        make_recipe(data="digits", model="vit_pico", per_class=4, epochs=9999, threads=1), with_floors=False
    )
    run = tmp_path / "run"
    run.mkdir()
    write_plan(run, plan, "test")
    process = Process(run, 1)
    while not (run / "metrics.jsonl").is_file():
        assert process.poll() is None, (run / "log.txt").read_text()
        time.sleep(0.1)
    process.stop()
    while not (ended := process.poll()):
        time.sleep(0.1)
    assert ended.status == executor.STOPPED and ended.stopped
    assert "smallvit: stopped after step" in (run / "log.txt").read_text()


def test_a_place_that_is_lost_is_no_failure_of_its_runs(tmp_path: Path) -> None:
    """A search would take it for a result, and try something else."""

    class Lost(MachineJob):
        def poll(self) -> Exit | None:
            if self.path.name not in self.machine.stopped:
                raise PlaceLost("nobody answers")
            return Exit(1, None)

    machine, source = Machine(), Telling(tmp_path, "ab")
    with pytest.raises(PlaceLost, match="nobody answers\ngo on with `again`"):
        run_all(source, 1, go_on="again", keep_going=True, launch=lambda path: Lost(machine, path))
    assert [(ended.path.name, ended.stopped) for ended in source.heard] == [("a", True)]


def test_a_source_gives_up_runs_and_the_others_go_on(tmp_path: Path) -> None:
    """As a search ends what falls behind: it is stopped once, and that is no failure."""

    class Choosy(Telling):
        def given_up(self) -> list[Path]:
            return [self.root / "b"]

    machine, source = Machine(b=1), Choosy(tmp_path, "abc")
    assert run_all(source, 2, go_on="", launch=machine.launch) == []
    assert machine.order == list("abc") and machine.stopped == ["b"]
    assert {ended.path.name: ended.stopped for ended in source.heard} == {"a": False, "b": True, "c": False}


def test_a_real_process_says_what_went_wrong(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    source = Telling(tmp_path, ["run"])
    failed = run_all(source, 1, go_on="", keep_going=True)
    assert len(failed) == 1 and "recipe.json is damaged: it has no resolved" in failed[0].problem
    assert source.heard == failed and (failed[0].cpu_seconds or 1.0) > 0.01


def test_a_process_that_ended_before_it_was_stopped_is_collected(tmp_path: Path) -> None:
    """`terminate` looks whether it has ended, and nobody else hears of it then."""
    process = Process(tmp_path, 1)  # no run: it ends at once
    os.waitid(os.P_PID, process.child.pid, os.WEXITED | os.WNOWAIT)
    process.stop()
    ended = process.poll()
    assert ended is not None and ended.status == 1 and not ended.stopped


def test_a_killed_run_has_no_words_of_an_earlier_session(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "log.txt").write_text("smallvit: stopped after step 120\n")
    runs = Telling(tmp_path, "a")
    run_all(runs, 1, go_on="", keep_going=True, launch=Machine(a=-signal.SIGKILL).launch)
    assert runs.heard[0].problem == "killed by signal 9, as a machine does that runs out of memory"
