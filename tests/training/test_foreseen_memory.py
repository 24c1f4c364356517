"""What planning foresees of memory is what a run then has, to within a quarter."""

from __future__ import annotations

import sys

import pytest

from helpers import PROJECT

sys.path.insert(0, str(PROJECT / "benchmarks"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the most that a process ever had is told by Linux")
@pytest.mark.parametrize(("model", "size", "batch"), [("vit_nano", 32, 64), ("deit_tiny", 32, 64)])
def test_foreseen_is_measured(model: str, size: int, batch: int) -> None:
    from memory import WITHIN, Case, measure

    found = measure(Case(model, size, batch))
    assert found["foreseen"] == pytest.approx(found["measured"], rel=WITHIN)
