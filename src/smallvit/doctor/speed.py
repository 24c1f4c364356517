"""Two figures of this machine, measured: a product of matrices in fp32 and bf16, with one thread and with all."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from smallvit.console import bar
from smallvit.training.bf16 import why_not

SIDE = 768  # of the matrices: large enough for all units of a core, a few hundredths of a second on a slow one
SECONDS = 0.4  # for each figure
KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Speed(NamedTuple):
    """Billion multiply-adds a second."""

    one_thread: float
    all_threads: float

    @property
    def gain(self) -> float:
        return self.all_threads / self.one_thread


def measure(threads: int, device: str = "cpu") -> dict[str, Speed]:
    """By precision; bf16 only where it can be. On a GPU the number of threads plays no part."""
    kinds = {name: kind for name, kind in KINDS.items() if name == "fp32" or not why_not(device)}
    before = torch.get_num_threads()
    counts = (1, threads) if device == "cpu" else (1, 1)
    found: dict[str, Speed] = {}
    try:
        with bar("measuring", len(kinds) * len(counts)) as advance:
            for name, kind in kinds.items():
                figures = []
                for count in counts:
                    torch.set_num_threads(count)
                    figures.append(_product(kind, device))
                    advance(1, note=name)
                found[name] = Speed(*figures)
    finally:
        torch.set_num_threads(before)
    return found


def _product(kind: torch.dtype, device: str) -> float:
    """The best of those that fit into the time: others who use the machine only ever slow it down."""
    one, other = (torch.ones(SIDE, SIDE, dtype=kind, device=device) for _ in range(2))
    best, until = float("inf"), time.perf_counter() + SECONDS
    one @ other  # the first builds what the others use
    while True:
        started = time.perf_counter()
        result = one @ other
        if device != "cpu":
            float(result[0, 0])  # waits for the device
        best = min(best, time.perf_counter() - started)
        if time.perf_counter() > until:
            return SIDE**3 / best / 1e9
