"""`smallvit WORDS...` in processes that are forked from one that has imported everything.

They are processes like all others, to be killed, to hold locks and files; only the seconds that importing torch takes are spared,
which is most of what these small commands do. Runs of a group are forked by their parent in the same way.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from storing import Done

IMPORTED = (
    "torch", "timm", "scipy.stats", "sklearn.linear_model", "sklearn.neighbors", "sklearn.datasets", "matplotlib.figure",
    "matplotlib.backends.backend_svg", "jinja2", "optuna", "hypothesis.strategies", "smallvit.api", "smallvit.cli",
    "smallvit.models", "smallvit.report.tables", "smallvit.serving.app", "smallvit.tuning.tune", "smallvit.studies.study",
)  # fmt: skip
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(list(IMPORTED))


class Started:
    """A command that runs."""

    def __init__(self, words: tuple[Any, ...], environment: dict[str, str]) -> None:
        self.began = time.monotonic()
        self.folder = tempfile.TemporaryDirectory()
        self.logs = [Path(self.folder.name, name) for name in ("out", "err", "usage")]
        for log in self.logs:
            log.touch()
        given = ([str(word) for word in words], environment, [str(log) for log in self.logs])
        self.process: ForkServerProcess = CONTEXT.Process(target=_child, args=given)
        self.process.start()

    def ended_within(self, seconds: float) -> bool:
        self.process.join(seconds)
        return self.process.exitcode is not None

    def kill(self) -> None:
        """kill -9, with all that it started, also what is in a session of its own."""
        assert self.process.pid is not None
        killed = list(halted(self.process.pid))
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.join()
        while any(map(lives, killed)):  # until it is taken apart, which takes a while on a busy machine
            time.sleep(0.01)

    def done(self, timeout: float = 300) -> Done:
        """Its end. A status of -999 is one that had to be ended."""
        in_time = self.ended_within(timeout)
        if not in_time:
            self.kill()
        out, err, usage = (log.read_text(encoding="utf-8", errors="replace") for log in self.logs)
        self.folder.cleanup()
        status = self.process.exitcode if in_time and self.process.exitcode is not None else -999
        cpu, memory = map(float, usage.split() or (0, 0))
        return Done(status, out, err, time.monotonic() - self.began, cpu, memory)


def start(*words: Any, **environment: str) -> Started:
    return Started(words, environment)


def command(*words: Any, timeout: float = 300, **environment: str) -> Done:
    return start(*words, **environment).done(timeout)


def halted(pid: int) -> Iterator[int]:
    """A process and all that it started, each at rest before its children are counted.

    A signal does not end a fork that is under way, which takes milliseconds where much is in memory: a child that appears
    after the count would outlive the kill, hold its run, and the resumed group would be refused.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    while any(status(task)[0] not in "TZX" for task in Path(f"/proc/{pid}/task").glob("*")):
        time.sleep(0.001)
    yield pid
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and status(entry)[1] == str(pid):
            yield from halted(int(entry.name))


def lives(pid: int) -> bool:
    """Not ended, or ended and not yet taken apart; a process that nobody has asked for (Z) holds nothing any more."""
    return status(Path(f"/proc/{pid}"))[0] not in "ZX"


def status(entry: Path) -> list[str]:
    """What /proc says of a process or a thread after its name: its state, its parent, ...; X where it is gone."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", ""]


# ---- in the child --------------------------------------------------------------------------------------


def _child(words: list[str], environment: dict[str, str], logs: list[str]) -> None:
    """As if `python -m smallvit WORDS...` had been called; never returns."""
    status = 70
    try:
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _speak_into(*logs[:2])
        atexit.register(_tell_usage, *logs[2:])
        sys.argv = ["smallvit", *words]
        import torch

        from smallvit.cli import run
        from smallvit.commands import train, tune
        from smallvit.runs import executor

        torch.set_num_threads(1)
        train.STARTED = tune.STARTED = time.monotonic()  # the clock of a budget: this process began with the fork
        executor.Process.__init__ = _forked  # type: ignore[method-assign]
        run()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _tell_usage(file: str = os.devnull) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    Path(file).write_text(f"{usage.ru_utime + usage.ru_stime:.2f} {usage.ru_maxrss / 1024:.0f}")


def _speak_into(out: str, err: str) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, log in ((1, out), (2, err)):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)


class _Fork:
    """What `executor.Process` uses of a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def terminate(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)


def _forked(self: Any, path: Path, cores: int) -> None:
    """`executor.Process`: a child of the group, in a session of its own. Every run has one thread here."""
    pid = os.fork()
    if not pid:
        os.setsid()
        os.closerange(3, 1024)  # as a process that is started anew: a lock of the group is not the run's
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        from smallvit.runs.executor import words_for

        _child(words_for(path), {}, [str(path / "log.txt")] * 2)
    self.child = _Fork(pid)
