"""Runs with and without attention on images whose class and file names hold markup, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from markup import HOSTILE

import smallvit
from helpers import make_folder
from smallvit.serving.app import App


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    make_folder(root / "photos", {"cat": 10, "dog & co": 10, HOSTILE: 10}, size=(20, 16))
    first = root / "photos" / "cat" / "000.png"
    first.rename(first.with_name("<script>alert(2)<|script>.png"))
    return root / "photos"


@pytest.fixture(scope="session")
def runs(photos: Path) -> dict[str, smallvit.Run]:
    """`vit_pico` attends, `resnet_nano` does not."""
    common: dict[str, Any] = {"epochs": 1, "threads": 1, "show_progress": False}
    return {
        model: smallvit.train(photos, model=model, out=photos.parent / model, **common)
        for model in ("vit_pico", "resnet_nano")
    }


@pytest.fixture
def serve() -> Iterator[Callable[..., App]]:
    """`serve(run, ...)`: its page, until the test ends."""
    opened: list[App] = []

    def get(run: Any, **more: Any) -> App:
        opened.append(smallvit.app(run, browser=False, wait=False, threads=1, **more))
        return opened[-1]

    yield get
    for app in opened:
        app.close()


@pytest.fixture(scope="session")
def served(runs: dict[str, smallvit.Run]) -> Iterator[App]:
    with smallvit.app(runs["vit_pico"], browser=False, wait=False, threads=1) as app:
        yield app
