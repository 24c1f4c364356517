"""The sets that are checked: clean ones, and copies of them to be spoilt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from textures import fill


@pytest.fixture(autouse=True)
def short_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the steps that the printed time is reckoned from."""
    monkeypatch.setattr("smallvit.planning.tryout.MEASURED_SECONDS", 0.05)


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Big enough for nothing to be wrong: 500 images, 100 to test on."""
    return fill(tmp_path_factory.mktemp("clean"), {"a": 250, "b": 250})


@pytest.fixture(scope="session")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = {"train": 30, "val": 10, "test": 50}
    counts = {f"{part}/{name}": count for part, count in parts.items() for name in ("cat", "dog")}
    return fill(tmp_path_factory.mktemp("parted"), counts)


@pytest.fixture
def own(parted: Path, tmp_path: Path) -> Path:
    """A copy of the set with parts, to be spoilt."""
    return shutil.copytree(parted, tmp_path / "set")
