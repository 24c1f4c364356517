"""Made-up runs, and a browser to look at their pages with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fabricated import fabricate

from smallvit import Run


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """`make_run("a", model=..., accuracy=...)`: a fabricated run in the folder `a`."""
    return lambda folder="a", **about: fabricate(tmp_path / folder, **about)


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
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu", *quiet])
        yield browser
        browser.close()
