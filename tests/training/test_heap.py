"""Memory that torch frees stays with the process while a model computes, and goes back afterwards."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")

FLOATS = 25_000_000
BYTES = 4 * FLOATS


def use_and_free() -> int:
    """Page faults of it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(FLOATS)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


FRESH = """
from contextlib import suppress

import torch

from smallvit.training.heap import freed_memory_kept
from smallvit.training.machine_memory import used_bytes
from smallvit.training.session import computing
from test_heap import use_and_free

here = torch.device("cpu")
usual, start = min(use_and_free() for _ in range(3)), used_bytes(here)
for context in (freed_memory_kept(), computing(1)):
    with context:
        use_and_free()
        again = min(use_and_free() for _ in range(3))
        with freed_memory_kept():
            pass
        kept = used_bytes(here)
    print(usual, again, kept - start, used_bytes(here) - start)
with suppress(KeyError), freed_memory_kept():
    use_and_free()
    raise KeyError
print(used_bytes(here) - start)
"""


def test_the_next_batch_takes_the_memory_of_the_one_before_until_the_outermost_ends() -> None:
    """In a process of its own: what malloc has learned stays, and holes are filled first."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=Path(__file__).parent, check=True, capture_output=True, text=True
    )
    *contexts, after_an_error = done.stdout.splitlines()
    assert len(contexts) == 2
    for line in contexts:
        usual, again, kept, left = map(int, line.split())
        assert usual > 10 * again  # every page is new, or every huge page
        assert kept > 0.8 * BYTES and left < 0.2 * BYTES
    assert int(after_an_error) < 0.2 * BYTES
