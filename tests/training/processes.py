"""`smallvit` commands in processes of their own, forked from one that has imported everything (warm.py)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# ("enter" | "leave" | "after", function, count): the count-th time it is entered or left, or that many calls later.
Moment = tuple[str, str, int]
SECONDS = 120.0  # more than any command of these tests takes on a busy machine


class Command:
    """One `smallvit ...` in a process of its own."""

    def __init__(self, warm: Warm, pid: int, log: Path) -> None:
        self.warm = warm
        self.pid = pid
        self.log = log
        self.status: int | None = None

    def wait(self, seconds: float = SECONDS) -> int:
        """The exit status; minus the signal's number where one ended it."""
        if self.status is None:
            self.status = self.warm.ask({"wait": self.pid, "seconds": seconds})
        assert self.status is not None, f"still running after {seconds} s:\n{self.output}"
        return self.status

    @property
    def is_alive(self) -> bool:
        if self.status is None:
            self.status = self.warm.ask({"wait": self.pid, "seconds": 0})
        return self.status is None

    def send(self, number: signal.Signals) -> None:
        assert self.pid > 1  # 0 and less are groups
        os.kill(self.pid, number)

    def wait_until(self, happened: Callable[[], bool], seconds: float = SECONDS) -> None:
        until = time.monotonic() + seconds
        while not happened():
            assert self.is_alive, f"ended with {self.status} too early:\n{self.output}"
            assert time.monotonic() < until, f"nothing happened in {seconds} s:\n{self.output}"

    @property
    def output(self) -> str:
        """What it has said so far: nothing, before it has begun."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""


class Warm:
    """The client of warm.py."""

    def __init__(self, folder: Path) -> None:
        script = Path(__file__).with_name("warm.py")
        self.folder = folder
        self.started: list[Command] = []
        self.server = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        self.asked = 0
        assert self._answer() == "ready"

    def start(
        self,
        *command: str | Path,
        moment: Moment | None = None,
        number: signal.Signals = signal.SIGKILL,
        largest_file: int | None = None,
    ) -> Command:
        """A command that is killed at a moment of its own, or cannot write files larger than `largest_file`."""
        log = self.folder / f"{len(self.started)}.log"
        request = {"command": [str(word) for word in command], "log": str(log), "moment": moment}
        pid = self.ask({**request, "signal": number, "largest_file": largest_file})
        self.started.append(Command(self, pid, log))
        return self.started[-1]

    def run(self, *command: str | Path) -> Command:
        """A command that must succeed."""
        done = self.start(*command)
        assert done.wait() == 0, done.output
        return done

    def ask(self, request: dict[str, Any]) -> Any:
        assert self.server.stdin
        self.asked += 1
        self.server.stdin.write(json.dumps([self.asked, request]) + "\n")
        self.server.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        """To the last question: a test that was timed out may have left an earlier answer unread."""
        assert self.server.stdout
        number = -1
        while number != self.asked:
            number, answer = json.loads(self.server.stdout.readline())
        return answer

    def close(self) -> None:
        for command in self.started:
            if command.status is None:
                with suppress(ProcessLookupError):
                    command.send(signal.SIGKILL)
        self.server.communicate()
