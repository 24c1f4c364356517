"""The page's server as whoever sends requests to it sees it: what it answers, and all that it refuses."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
from markup import HOSTILE

import smallvit
from helpers import forged_png, noise_image
from smallvit.errors import RunError
from smallvit.serving.app import App
from smallvit.serving.server import Limits, Page, PageServer


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def tree(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert list(self.tree) == ["error"]
        return str(self.tree["error"])


def ask(app: App, method: str = "GET", path: str = "/", body: bytes | None = None, **headers: str | None) -> Reply:
    """As the page itself would; a header that is None is left out."""
    place = urlsplit(app.url).netloc
    usual = {"Host": place}
    if method == "POST":
        usual |= {"Origin": f"http://{place}", "Content-Type": "application/octet-stream"}
        usual |= {"Content-Length": str(len(body or b""))}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    line = HTTPConnection(place, timeout=60)
    line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {**usual, **given}.items():
        if value is not None:
            line.putheader(name, value)
    line.endheaders(body)
    answer = line.getresponse()
    found = Reply(answer.status, dict(answer.getheaders()), answer.read())
    line.close()
    return found


def send(app: App, content: bytes, **headers: str | None) -> Reply:
    return ask(app, "POST", "/answer", content, **headers)


def png(seed: str = "x", size: tuple[int, int] = (20, 16), kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    noise_image(seed, size).save(file, kind)
    return file.getvalue()


# ---- what it answers -----------------------------------------------------------------------------------


def test_the_page_is_one_file_that_may_run_its_own_script_only(served: App) -> None:
    page = ask(served)
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and page.headers["X-Content-Type-Options"] == "nosniff"
    text = page.body.decode()
    assert HOSTILE not in text and "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "http://" not in text and "https://" not in text and "//" + "cdn" not in text


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("size", [(20, 16), (300, 200)])
def test_its_answer_is_what_the_run_predicts(
    served: App, runs: dict[str, smallvit.Run], tmp_path: Path, kind: str, size: tuple[int, int]
) -> None:
    content = png("y", size, kind)
    (tmp_path / "file").with_suffix(f".{kind.lower()}").write_bytes(content)
    (file,) = tmp_path.iterdir()
    (expected,) = smallvit.predict(runs["vit_pico"].path, file, nearest=6)
    answer = send(served, content)
    assert answer.status == 200
    assert [tuple(pair) for pair in answer.tree["classes"]] == expected.top(3)
    near = [(one["file"], one["label"], one["similarity"]) for one in answer.tree["nearest"]]
    assert near == [(one.file, one.label, one.similarity) for one in expected.nearest]
    assert all(one["image"]["uri"].startswith("data:image/png;base64,") for one in answer.tree["nearest"])


def test_where_a_model_looks(served: App, runs: dict[str, smallvit.Run], serve: Callable[..., App]) -> None:
    looks = send(served, png()).tree["looks"]
    assert looks["attends"] and looks["layers"] and {"rollout", "head 1"} <= {kind["name"] for kind in looks["kinds"]}
    for kind in looks["kinds"]:
        assert [(mask["rows"], mask["columns"]) for mask in kind["masks"]] == [(4, 4)] * len(looks["layers"])
    other = send(serve(runs["resnet_nano"]), png()).tree
    assert not other["looks"]["attends"] and [kind["name"] for kind in other["looks"]["kinds"]] == ["strength"]
    assert 1 < len(other["looks"]["layers"]) <= 12
    assert 0 <= other["hangs_on"]["most"] <= 1 and other["hangs_on"]["mask"]["rows"] == 8


def test_a_model_file_has_all_but_the_training_images(runs: dict[str, smallvit.Run], serve: Callable[..., App]) -> None:
    answer = send(serve(runs["vit_pico"].path / "model.safetensors"), png()).tree
    assert answer["classes"] and answer["looks"]["kinds"] and answer["nearest"] == []
    assert "start the page with the run folder" in answer["missing"]


def test_training_images_that_were_moved_are_named_without_pictures(
    runs: dict[str, smallvit.Run], serve: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_run: Any) -> None:
        raise RunError("the images that it was trained on cannot be read: no such folder or file: photos")

    smallvit.nearest(runs["vit_pico"].path, np.zeros((16, 16, 3), np.uint8))  # kept from here on
    monkeypatch.setattr("smallvit.serving.looking.read_plan", gone)
    answer = send(serve(runs["vit_pico"]), png()).tree
    assert [one["image"] for one in answer["nearest"]] == [None] * 6
    assert "no such folder or file: photos" in answer["missing"]


# ---- what it refuses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403), ("evil.example:80", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil.example", 403),
        ("192.168.1.7", 403), ("user@127.0.0.1", 400), ("127.0.0.1:port", 400), ("", 400), (None, 400),
        ("localhost", 200), ("localhost:9000", 200), ("127.0.0.1", 200), ("[::1]:8000", 200),
    ],
)  # fmt: skip
def test_names_under_which_it_answers(served: App, host: str | None, status: int) -> None:
    """A tunnel may lead to it from another port; a name that a stranger's DNS points here is none of ours."""
    assert ask(served, Host=host).status == status
    reply = ask(served, "POST", "/answer", png(), Host=host, Origin=f"http://{host}")
    assert reply.status == status


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": None}, {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ],
)  # fmt: skip
def test_pages_of_others_may_not_send_images(served: App, headers: dict[str, str | None]) -> None:
    refused = send(served, png(), **headers)
    assert refused.status == 403 and refused.error == "Only the page of this server may send images to it."
    assert "Access-Control-Allow-Origin" not in refused.headers


@pytest.mark.parametrize("path", ["/answers", "/favicon.ico", "/../recipe.json", "/%2e%2e/recipe.json", "/answer/", "http://evil.example/"])  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_paths_that_do_not_exist(served: App, method: str, path: str) -> None:
    refused = ask(served, method, path, b"x" if method == "POST" else None)
    assert refused.status == 404 and refused.error == "There is nothing here. The page is at /."


@pytest.mark.parametrize(("method", "path", "allowed"), [("POST", "/", "GET"), ("GET", "/answer", "POST"), ("PUT", "/answer", "POST"), ("DELETE", "/", "GET"), ("OPTIONS", "/answer", "POST")])  # fmt: skip
def test_methods_that_an_address_does_not_take(served: App, method: str, path: str, allowed: str) -> None:
    refused = ask(served, method, path)
    assert refused.status == 405 and refused.headers["Allow"] == allowed
    assert refused.error == f"{path} takes {allowed} only."


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "multipart/form-data"}, 415), ({"Content_Type": "text/plain"}, 415), ({"Content_Type": None}, 415),
        ({"Content_Length": None}, 411), ({"Content_Length": "-1"}, 411), ({"Content_Length": "many"}, 411), ({"Content_Length": "9" * 5000}, 413),
        ({"Content_Length": None, "Transfer_Encoding": "chunked"}, 411),
    ],
)  # fmt: skip
def test_bodies_of_another_kind(served: App, headers: dict[str, str | None], status: int) -> None:
    assert send(served, png() if "Content_Type" in headers else b"", **headers).status == status


def test_files_that_are_too_large_or_no_images(
    runs: dict[str, smallvit.Run], serve: Callable[..., App], tmp_path: Path
) -> None:
    app = serve(runs["vit_pico"], limits=Limits(file_bytes=1 << 16))
    large = send(app, bytes((1 << 16) + 1))
    assert large.status == 413 and large.error == "The file is larger than 0.0625 MB."
    for content, sentence in (
        (b"", "the file is empty"),
        (b"no image at all", "not a readable image (formats: JPEG, PNG"),
        (png("z", (64, 64))[:2000], "damaged: "),
        (forged_png(tmp_path / "bomb.png", 100_000, 100_000).read_bytes(), "more than 89,478,485 pixels"),
        (forged_png(tmp_path / "bomb.png", 10_000, 9_000).read_bytes(), "more than 89,478,485 pixels"),
        (b"\x89PNG\r\n\x1a\n" + b"/etc/passwd", "This file cannot be looked at"),
    ):
        refused = send(app, content)
        assert refused.status == 422 and sentence in refused.error, refused
    assert send(app, png()).status == 200, "it goes on"


def test_an_image_that_does_not_arrive_whole(served: App) -> None:
    place = urlsplit(served.url).netloc
    host, port = place.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        head = f"POST /answer HTTP/1.1\r\nHost: {place}\r\nOrigin: http://{place}\r\nContent-Length: 100\r\nContent-Type: application/octet-stream\r\n\r\n"
        line.sendall(head.encode() + b"abc")
        line.shutdown(socket.SHUT_WR)
        assert b"The image did not arrive whole." in line.makefile("rb").read()


def test_what_is_no_request(served: App) -> None:
    host, port = urlsplit(served.url).netloc.split(":")
    for words in (b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70000 + b"\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall(words)
            said = line.makefile("rb").read()
        assert b"This is no request that the server takes." in said and b"<" not in said


def test_one_image_at_a_time_and_few_that_wait() -> None:
    at_work, most, go_on = threading.Semaphore(0), [], threading.Event()
    inside: list[int] = []

    def slow(content: bytes) -> dict[str, Any]:
        inside.append(1)
        most.append(len(inside))
        at_work.release()
        go_on.wait(60)
        inside.pop()
        return {"said": len(content)}

    server = PageServer("127.0.0.1", 0, Page(b"page", "default-src 'none'"), slow, Limits(waiting=2))
    with App(server) as app:
        replies: list[Reply] = []
        threads = [threading.Thread(target=lambda: replies.append(send(app, b"ab"))) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert at_work.acquire(timeout=60)
        while server.waiting._value:  # the second is on its way in
            pass
        busy = send(app, b"abc")
        assert busy.status == 503 and "busy" in busy.error
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert [reply.status for reply in replies] == [200, 200] and most == [1, 1]


def test_a_fault_of_ours_is_a_sentence_there_and_a_traceback_here(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(content: bytes) -> dict[str, Any]:
        raise ZeroDivisionError("secret path")

    with App(PageServer("127.0.0.1", 0, Page(b"", ""), broken, Limits())) as app:
        refused = send(app, b"x")
    assert refused.status == 500 and "secret" not in refused.error
    assert "ZeroDivisionError: secret path" in capfd.readouterr().err


def test_connections_are_counted() -> None:
    with App(PageServer("127.0.0.1", 0, Page(b"page", ""), lambda content: {}, Limits(connections=1))) as app:
        host, port = urlsplit(app.url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as idle:
            idle.sendall(b"GET / HTT")  # never ends its request
            with socket.create_connection((host, int(port)), timeout=60) as other:
                assert other.recv(1) == b""
