"""The run that is exported, and its exports, each made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from shipped_runs import trained

import smallvit


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, and a run `a` on them."""
    root = tmp_path_factory.mktemp("shipping")
    trained(root)
    return root


@pytest.fixture(scope="session")
def run(root: Path) -> Path:
    return root / "a"


@pytest.fixture(scope="session")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], smallvit.Export]:
    """The run in a format, written once."""
    made: dict[str, smallvit.Export] = {}
    folder = tmp_path_factory.mktemp("exports")

    def in_format(format: str) -> smallvit.Export:
        if format not in made:
            made[format] = smallvit.export(run, format, folder / format, show_progress=False)
        return made[format]

    return in_format
