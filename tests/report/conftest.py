"""Made-up runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fabricated import fabricate

from smallvit import Run


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """`make_run("a", model=..., accuracy=...)`: a fabricated run in the folder `a`."""
    return lambda folder="a", **about: fabricate(tmp_path / folder, **about)
