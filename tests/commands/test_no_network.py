"""Nothing is asked of the network, and nothing is sent, unless the user says so: every command with sockets cut."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers import QUICK

# A socket to anything but this machine's own files ends the process: neither an address is looked up nor a connection made.
CUT = """
import os, socket, sys
def refuse(*arguments, **more):
    os.write(2, b"ASKED THE NETWORK\\n")
    os._exit(77)
class Cut(socket.socket):
    def __init__(self, family=socket.AF_INET, *more, **others):
        if family != getattr(socket, "AF_UNIX", None):
            refuse()
        super().__init__(family, *more, **others)
socket.socket, socket.create_connection, socket.getaddrinfo, socket.gethostbyname = Cut, refuse, refuse, refuse
from smallvit.cli import main
for words in WORDS:
    sys.argv = ["smallvit", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def cut_off(*commands: list[str]) -> subprocess.CompletedProcess[str]:
    program = CUT.replace("WORDS", repr([list(map(str, words)) for words in commands]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "WANDB"))}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment, check=False
    )


def test_no_command_asks_the_network(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    done = cut_off(
        ["train", "digits", *QUICK, "--per-class", "5", "--quiet", "--out", run],
        ["report", run],
        ["evaluate", run],
        ["diagnose", run, "--images", "16", "--quiet"],
        ["list", "recipes"],
        ["check", "digits", "--fast"],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ASKED THE NETWORK" not in done.stderr


def test_the_cut_is_one(tmp_path: Path) -> None:
    """The same with a program that asks: it ends there."""
    program = (
        CUT.partition("from smallvit.cli")[0] + "import urllib.request; urllib.request.urlopen('http://example.com')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 77 and "ASKED THE NETWORK" in done.stderr
