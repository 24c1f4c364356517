"""`app` as it is typed: it says its address, ends with Ctrl-C, and refuses what it cannot serve."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest

import smallvit
from helpers import Outcome, fails, run_here
from smallvit.console import quiet


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to a process of its own there")
def test_it_serves_until_ctrl_c(place: Path) -> None:
    words = ["-m", "smallvit", "app", str(place / "runs" / "a"), "--no-browser", "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, *words], stderr=subprocess.PIPE, text=True, env={**os.environ, "DISPLAY": ""}
    ) as served:
        killed = threading.Timer(100, served.kill)  # a test that fails must end, too
        killed.start()
        assert served.stderr
        said = next(line for line in served.stderr if "http" in line)  # before it, what is to be said of the data
        found = re.match(r"(http://127\.0\.0\.1:\d+/)  \(Ctrl-C ends it\)$", said)
        assert found, said
        with urlopen(found[1]) as page:
            assert b"Drop images here" in page.read()
        served.send_signal(signal.SIGINT)
        assert served.wait() == 0
        killed.cancel()
        assert served.stderr.read() == "ended\n"


def test_a_port_that_is_taken_or_none_at_all(place: Path) -> None:
    run = place / "runs" / "a"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ("app", run, "--no-browser", "--port", str(port))
        fails(
            run_here(*words),
            2,
            f"--host 127.0.0.1 --port {port}: Address already in use; --port 0 takes one that is free",
        )
    with pytest.raises(smallvit.UsageError, match=r"--port 70000: should be 0 \(any that is free\) to 65535"):
        smallvit.app(run, port=70000)


def test_an_address_of_another_computer(place: Path) -> None:
    fails(
        run_here("app", place / "runs" / "a", "--host", "no.such.invalid"),
        2,
        "--host no.such.invalid: no address of this computer",
    )
    fails(run_here("app", place / "runs" / "a", "--host", "192.0.2.1"), 2, "--host 192.0.2.1 --port 0: ")


def test_a_page_for_the_network_is_warned_of(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for host, warned in (("127.0.0.1", False), ("0.0.0.0", True)):
        with smallvit.app(place / "runs" / "a", host=host, browser=False, wait=False, nearest=0) as app:
            assert app.url.startswith("http://127.0.0.1:")
            with urlopen(app.url) as page:
                assert page.status == 200
        assert ("whoever can reach 0.0.0.0 can use the model" in capsys.readouterr().err) == warned
    with quiet(), smallvit.app(place / "runs" / "a", browser=False, wait=False, nearest=0):
        assert capsys.readouterr().err == ""


def test_a_group_has_several_models(group: tuple[Path, Outcome]) -> None:
    fails(
        run_here("app", group[0], "--no-browser"), 2, "is a group: the page looks into one model, give one of its runs"
    )


def test_no_run(tmp_path: Path) -> None:
    fails(run_here("app", tmp_path / "none", "--no-browser"), 1, "not a run folder: there is no such folder")
