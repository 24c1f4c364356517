from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers import make_folder
from smallvit.data import files


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", {"cat": 3, "dog": 3})


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were decoded, as they are."""
    found: list[Path] = []
    read_image = files.read_image

    def reading(path: Path, *rest: object) -> torch.Tensor:
        found.append(path)
        return read_image(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "read_image", reading)
    return found
