from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Warm
from tiny_runs import Reference, command


@pytest.fixture(scope="session")
def smallvit_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    warm = Warm(tmp_path_factory.mktemp("commands"))
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def reference(smallvit_command: Warm, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The run of a recipe that nobody killed, made once."""
    made: dict[str, Path] = {}

    def get(recipe: str) -> Path:
        if recipe not in made:
            folder = tmp_path_factory.mktemp("reference") / recipe
            smallvit_command.run(*command(recipe), "--out", folder)
            made[recipe] = folder
        return made[recipe]

    return get
