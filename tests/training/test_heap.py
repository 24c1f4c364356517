"""Memory that torch frees stays with the process while a model computes, and goes back afterwards."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from smallvit.training.heap import freed_memory_kept
from smallvit.training.machine_memory import used_bytes

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")

FLOATS = 25_000_000
BYTES = 4 * FLOATS


def use_and_free() -> int:
    """Page faults of it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(FLOATS)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


FRESH = """
from test_heap import use_and_free
from smallvit.training.heap import freed_memory_kept
from smallvit.training.session import computing

usual = min(use_and_free() for _ in range(3))
for context in (freed_memory_kept(), computing(1)):
    with context:
        use_and_free()
        print(usual, min(use_and_free() for _ in range(3)))
"""


def test_the_next_batch_takes_the_memory_of_the_one_before() -> None:
    """In a process of its own: what malloc has learned stays."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=Path(__file__).parent, check=True, capture_output=True, text=True
    )
    for line in done.stdout.splitlines():
        usual, kept = map(int, line.split())
        assert usual > 10 * kept  # every page is new, or every huge page


def test_what_is_free_goes_back_when_the_outermost_ends() -> None:
    cpu = torch.device("cpu")
    with freed_memory_kept():
        before = used_bytes(cpu)
        with freed_memory_kept():
            use_and_free()
        assert used_bytes(cpu) > before + 0.8 * BYTES
    assert used_bytes(cpu) < before + 0.2 * BYTES


def test_it_goes_back_after_an_error_too() -> None:
    before = used_bytes(torch.device("cpu"))
    with pytest.raises(KeyError), freed_memory_kept():
        use_and_free()
        raise KeyError
    assert used_bytes(torch.device("cpu")) < before + 0.2 * BYTES
