"""`smallvit app RUN`: a local page on which a trained model is tried out."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smallvit.console import say, warn
from smallvit.errors import UsageError
from smallvit.runs.folder import RunFolder
from smallvit.runs.relocation import relocate
from smallvit.serving.guard import check_host, is_loopback
from smallvit.serving.looking import Looker
from smallvit.serving.page import make_page
from smallvit.serving.server import Limits, PageServer

LIMITS = Limits()


class App:
    """A page that is being served, until `close`. In a notebook its address is shown."""

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="page", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"App({self.url!r})"

    @property
    def url(self) -> str:
        return self._server.url

    def wait(self) -> None:
        """Until somebody closes it; Ctrl-C ends the waiting."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def app(
    run: RunFolder | str | Path, *, host: str = "127.0.0.1", port: int = 0, browser: bool = True, nearest: int = 6,
    data: str | Path | None = None, threads: int | None = None, device: str = "auto", wait: bool = True,
    limits: Limits = LIMITS,
) -> App:  # fmt: skip
    """Serve a page on which images are dropped: their classes, where the model looks, the nearest training images.

    `run` is a run, its folder or a model file. It is served until Ctrl-C; with `wait=False` at once, until `close()` of what
    is returned, for notebooks. Only this computer can open it, unless `host` is another of its addresses. `port` 0 is one
    that is free. `data` is where the training images are now, if they were moved.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"--port {port}: should be 0 (any that is free) to 65535")
    check_host(host)
    path = run.path if isinstance(run, RunFolder) else Path(run)
    relocate(path, data)
    looker = Looker(path, nearest, threads, device)
    server = PageServer(host, port, make_page(looker.about(), limits), looker.answer, limits)
    if not is_loopback(host):
        warn(f"whoever can reach {host} can use the model and see training images: there is no password")
    served = App(server)
    say(f"{served.url}  (Ctrl-C ends it)" if wait else served.url)
    if browser and _has_browser():
        webbrowser.open(served.url)
    if wait:
        try:
            with _ended_by_signals():
                served.wait()
        except KeyboardInterrupt:
            say("ended")
        finally:
            served.close()
    return served


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ctrl-C, which a shell tells the commands behind an & to ignore, and SIGTERM alike."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_browser() -> bool:
    """Where there is no screen, Python would start one inside the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
