from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from processes import Warm


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads wait for each other, and long where other tests want the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def smallvit_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    warm = Warm(tmp_path_factory.mktemp("commands"))
    yield warm
    warm.close()
