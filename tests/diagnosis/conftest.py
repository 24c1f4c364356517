from __future__ import annotations

from collections.abc import Callable

import pytest

import smallvit
from smallvit import Run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """`trained("vit_pico")`: a run of that model on the 8 x 8 digits, made once and trained for a moment."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def get(model: str) -> Run:
        if model not in made:
            made[model] = smallvit.train(
                "digits", model=model, out=folder / model, epochs=1, per_class=12, threads=1, show_progress=False
            )
        return made[model]

    return get
