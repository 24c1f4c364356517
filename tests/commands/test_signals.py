"""A command that is told to stop, or killed by its memory, ends with a word: before the loop as in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import QUICK
from smallvit.training.session import stop_signals

HARD = "import os, signal; from smallvit import cli; cli.main = lambda: os.kill(os.getpid(), signal.{}); cli.run()"


def test_a_bus_error_is_not_silent() -> None:
    """As a mapped file gives it that somebody cuts short."""
    done = subprocess.run([sys.executable, "-c", HARD.format("SIGBUS")], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGBUS
    assert "Bus error" in done.stderr


@pytest.fixture
def heard() -> Iterator[None]:
    """Signals that the tests' own caller ignores (nohup) would be ignored by every process that they start."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stop_before_the_loop_is_told(tmp_path: Path, number: signal.Signals) -> None:
    words = ["train", "digits", *QUICK, "--out", str(tmp_path / "run")]
    child = subprocess.Popen([sys.executable, "-m", "smallvit", *words], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    deadline = time.monotonic() + 120
    while "smallvit.cli" not in loaded(child.pid) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(number)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 1, said
    assert "smallvit: stopped" in said and "Traceback" not in said


def loaded(pid: int) -> str:
    """Whether the program has begun: it heeds signals then, and torch is being imported."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    except OSError:
        return ""
    return "smallvit.cli" if "libtorch" in maps else ""


@pytest.mark.usefixtures("heard")
def test_a_closed_terminal_stops_after_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(text: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("smallvit.training.session.say", gone)
    with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.is_set()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)
