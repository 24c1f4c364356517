"""Words and bars: numbers with their nouns, and one bar at a time."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import PROJECT
from smallvit import console
from smallvit.console import are, bar, several


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (several(1, "file"), "1 file"),
        (several(0, "file"), "0 files"),
        (several(1200, "training image"), "1,200 training images"),
        (several(1, "file", 120), "1 of 120 files"),
        (several(1, "file", 1), "1 of 1 file"),
        (several(2, "class"), "2 classes"),
        (several(2, "entry"), "2 entries"),
        (are(1, "file", 120), "1 of 120 files is"),
        (are(1, "image"), "1 image is"),
        (are(3, "image"), "3 images are"),
    ],
)
def test_numbers_with_their_nouns(said: str, expected: str) -> None:
    assert said == expected


def test_one_place_knows_when_a_word_takes_its_s() -> None:
    by_hand = re.compile(r"""\} ?\w*\{["']s["'] (\*|if)""")  # {count} file{'s' * (count > 1)}
    allowed = {Path("runs/axes.py")}  # a word without its number: seeds 0, 1, 2
    source = PROJECT / "src" / "smallvit"
    found = {path.relative_to(source) for path in source.rglob("*.py") if by_hand.search(path.read_text("utf-8"))}
    assert found - allowed == set()


def test_within_a_bar_no_other_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "LOG_SECONDS", -1.0)
    with bar("outer", 2) as outer:
        with bar("inner", 2) as inner:
            inner(1)
        outer(1, note="half")
    with bar("later", 2) as later:
        later(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["outer", "later"] and lines[0].endswith("left  half")


def test_a_bar_that_failed_leaves_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "LOG_SECONDS", -1.0)
    with pytest.raises(ValueError, match="no"), bar("first", 2):
        raise ValueError("no")
    with bar("second", 2) as advance:
        advance(1)
    assert "second" in capsys.readouterr().err


def test_a_line_within_a_moving_bar_stands_above_it() -> None:
    """As where Ctrl-C is answered: on a terminal it must not stick to the bar."""
    pty = pytest.importorskip("pty")
    program = """
import time
from smallvit import console
console.PATIENCE_SECONDS = 0.0
with console.bar("training", 2) as advance:
    time.sleep(0.6)
    console.say("stopping after this step")
    advance(2)
"""
    outer, inner = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stderr=inner, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(inner)
        shown = b""
        with contextlib.suppress(OSError):  # how the other end of a terminal is closed
            while piece := os.read(outer, 4096):
                shown += piece
    os.close(outer)
    assert process.returncode == 0 and b"training" in shown.split(b"stopping")[0]
    assert b"\r\x1b[2Kstopping after this step\r\n" in shown, "the bar's line is cleared first"
