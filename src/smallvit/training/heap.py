"""Memory that torch frees stays with the process while a model trains or answers, for the next batch.

glibc asks the system for every block above 32 MB anew, and gives the end of its heap back as soon as it is free; every page that comes
anew is zeroed first. On the CPU that is about an eighth of a step (docs/speed/freed_memory.md).
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
MOST = 2**31 - 1  # bytes: the largest value that mallopt takes
USUAL = 32 * 2**20  # blocks above it are the system's; as far as glibc's own rule goes, which no call brings back

_inside = 0  # such contexts; the outermost alone has an effect
_counting = threading.Lock()  # the page that shows a model answers in threads


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Without effect where malloc is not glibc's. At the end what is free goes back to the system."""
    global _inside
    with _counting:
        _inside += 1
        if _inside == 1:
            _set_thresholds(MOST, MOST)
    try:
        yield
    finally:
        with _counting:
            _inside -= 1
            if _inside == 0:
                _set_thresholds(USUAL, 2 * USUAL)
                if libc := _glibc():
                    libc.malloc_trim(0)


def _set_thresholds(mapped: int, trimmed: int) -> None:
    if libc := _glibc():
        libc.mallopt(M_MMAP_THRESHOLD, mapped)
        libc.mallopt(M_TRIM_THRESHOLD, trimmed)


@cache
def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
