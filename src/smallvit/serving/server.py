"""The server: two addresses, `/` is the page and `/answer` takes the bytes of one image. Nothing on the disk has an address.

Connections are counted, the model's answers are given by one thread, and what is wrong is told in a sentence.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from smallvit.data.images import Unreadable
from smallvit.errors import SmallvitError, UsageError
from smallvit.serving.guard import Refusal, announced, refuse_body, refuse_host, refuse_origin, security_headers


class Limits(NamedTuple):
    file_bytes: int = 20 << 20  # of one image file
    files: int = 24  # that the page takes at a time
    waiting: int = 8  # images on their way to the model or in it
    connections: int = 32
    silent_seconds: float = 30.0  # that a connection may be


class Page(NamedTuple):
    html: bytes
    policy: str  # what the browser may do with it


Answer = Callable[[bytes], dict[str, Any]]


class PageServer(ThreadingHTTPServer):
    """`answer` is called by one thread only: models and their hooks are not made for several."""

    daemon_threads = True

    def __init__(self, host: str, port: int, page: Page, answer: Answer, limits: Limits) -> None:
        self.page, self.answer, self.limits, self.host = page, answer, limits, host
        self.model_thread = ThreadPoolExecutor(1, "model")
        self.waiting = threading.BoundedSemaphore(limits.waiting)
        self.connections = threading.BoundedSemaphore(limits.connections)
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            self.model_thread.shutdown()
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"--host {host} --port {port}: {why}; --port 0 takes one that is free") from None

    def server_bind(self) -> None:
        """Without asking a name server what we are called, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        """An address that this computer's own browser can open."""
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
        name = anywhere.get(self.host, self.host)
        return f"http://{f'[{name}]' if ':' in name else name}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        super().server_close()
        self.model_thread.shutdown(wait=False, cancel_futures=True)


class Handler(BaseHTTPRequestHandler):
    server: PageServer

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.silent_seconds)

    def do_GET(self) -> None:
        if self._refused("GET", "/"):
            return
        self._send(200, "text/html; charset=utf-8", self.server.page.html)

    def do_POST(self) -> None:
        most = self.server.limits.file_bytes
        if self._refused("POST", "/answer") or self._refuse(refuse_origin(self.headers)):
            return
        if self._refuse(refuse_body(self.headers, most)):
            return
        if not self.server.waiting.acquire(blocking=False):  # before the image is read: so many are in memory at most
            self._refuse(Refusal(503, "The model is busy with other images: send this one again in a moment."))
            return
        try:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            self._send_json(*self._answered(content))
        finally:
            self.server.waiting.release()

    def _other(self) -> None:
        self._refused("", "")

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _other

    def _answered(self, content: bytes) -> tuple[int, dict[str, Any]]:
        if len(content) < int(self.headers["Content-Length"]):
            return 400, {"error": "The image did not arrive whole."}
        try:
            future: Future[dict[str, Any]] = self.server.model_thread.submit(self.server.answer, content)
            return 200, future.result()
        except (Unreadable, SmallvitError) as error:
            return 422, {"error": f"This file cannot be looked at: {error}."}
        except MemoryError:
            return 422, {"error": "This image is too large for the memory of this computer."}
        except Exception as error:
            traceback.print_exception(error)
            return 500, {"error": "smallvit could not answer; what went wrong is told where it was started."}

    # ---- what every answer has ----

    def _refused(self, method: str, path: str) -> bool:
        known = {"/": "GET", "/answer": "POST"}
        if self._refuse(refuse_host(self.headers, self.server.host)):
            return True
        asked = self.path.partition("?")[0]
        if asked not in known:
            return self._refuse(Refusal(404, "There is nothing here. The page is at /."))
        if asked != path or method != known[asked]:
            return self._refuse(Refusal(405, f"{asked} takes {known[asked]} only."), {"Allow": known[asked]})
        return False

    def _refuse(self, refusal: Refusal | None, more: dict[str, str] | None = None) -> bool:
        if refusal is None:
            return False
        self._send_json(refusal.status, {"error": refusal.sentence}, more or {})
        self._drain()
        return True

    def _drain(self) -> None:
        """What is under way is taken from the line, within bounds: else the browser sees a broken line, not the sentence."""
        left = announced(self.headers.get("Content-Length", ""), 4 * self.server.limits.file_bytes)
        self.connection.settimeout(2.0)
        while left > 0 and (piece := self.rfile.read1(min(left, 1 << 16))):
            left -= len(piece)

    def _send_json(self, status: int, tree: dict[str, Any], more: dict[str, str] | None = None) -> None:
        # A file name that is no valid text holds lone surrogates: ASCII keeps them.
        self._send(status, "application/json", json.dumps(tree, ensure_ascii=True).encode("ascii"), more or {})

    def _send(self, status: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        policy = self.server.page.policy if kind.startswith("text/html") else "default-src 'none'"
        for name, value in {**security_headers(policy), **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.wfile.flush()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Python's own refusals (a request line that is none, headers without end), as ours are."""
        self.command = self.command or ""
        self.close_connection = True
        self._send_json(int(code), {"error": "This is no request that the server takes."})

    def version_string(self) -> str:
        return "smallvit"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal tells what went wrong, not what was asked for."""
