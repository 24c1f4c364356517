from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from smallvit.training.bf16 import LIMIT

# No units for bf16: where there are some, every run tries both precisions, and the clock would say which. Units that a machine announces
# and does not let be used (AMX) would end the tests.
os.environ[LIMIT] = "AVX512_CORE"


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Decoded images of the tests stay out of the user's cache; child processes inherit it."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMALLVIT_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads wait for each other, and long where other tests want the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless browser; missing, the tests are skipped, except on CI, where that would hide them."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        message = "no chromium, chromium-browser or google-chrome on the PATH"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    quiet = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]
    camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # a moving test picture
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", *quiet, *camera]
        )
        yield browser
        browser.close()
