from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from miniatures import BUILDERS, as_large_as

from smallvit.data.named.declared import named_sets


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes the miniature of a set and declares its counts; returns the data folder."""

    def make(name: str) -> Path:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        BUILDERS[name][2](folder)
        monkeypatch.setitem(named_sets(), name, as_large_as(name))
        return folder

    return make
