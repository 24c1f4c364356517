"""Who holds a run folder: a process that is being taken apart is waited for, one that goes on is named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smallvit.errors import RunError
from smallvit.runs.ownership import is_owned, owner_of, patient, refuse_owned, sole_owner

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
ME = f"process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def held_for(seconds: float, folder: Path) -> Iterator[threading.Thread]:
    """Another opening of the lock's file, as another process has; it lets go after a while."""
    is_held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with sole_owner(folder):
            is_held.set()
            let_go.wait(seconds)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(10)
    try:
        yield holder
    finally:
        let_go.set()
        holder.join()


def test_one_that_lets_go_within_a_moment_is_waited_for(tmp_path: Path) -> None:
    with held_for(0.5, tmp_path) as holder:
        assert is_owned(tmp_path), "whoever only asks does not wait"
        refuse_owned(tmp_path)
        assert not holder.is_alive()
    with held_for(0.5, tmp_path), sole_owner(tmp_path):
        assert is_owned(tmp_path)


def test_one_that_goes_on_is_named(tmp_path: Path) -> None:
    with (
        held_for(60, tmp_path),
        patient(0.1),
        pytest.raises(RunError, match=rf"^{ME} is at work on {tmp_path}: wait for it, or stop it"),
        sole_owner(tmp_path),
    ):
        pytest.fail("two hold it")


def test_a_lock_of_another_version_names_nobody(tmp_path: Path) -> None:
    with held_for(60, tmp_path), patient(0):
        for content in ("", "0\n", "host\x1b[2J 12\n", "host 1x2\n"):
            (tmp_path / "state" / "lock").write_text(content)
            with pytest.raises(RunError, match="another process is at work"):
                refuse_owned(tmp_path)


def test_whoever_looks_leaves_no_name(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lock").write_text("elsewhere 12\n")
    assert not is_owned(tmp_path)
    refuse_owned(tmp_path)
    assert owner_of(tmp_path) == "elsewhere"


def test_a_process_with_much_memory_is_killed(tmp_path: Path) -> None:
    """The system gives its memory back before it closes its files: a second after a kill, or more, the lock is still held."""
    program = """
import sys, time
from pathlib import Path
from smallvit.runs.ownership import sole_owner
much = bytearray(600 << 20)
much[::4096] = bytes(len(much[::4096]))
with sole_owner(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        holder.kill()
        with sole_owner(tmp_path):
            assert owner_of(tmp_path) == socket.gethostname()
