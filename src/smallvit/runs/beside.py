"""Whether a run fits into memory beside those that go on already.

Planning has seen that each fits alone (planning/room.py) and written what it will have at most; here these are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from smallvit.console import say, several
from smallvit.errors import RunError
from smallvit.planning.room import COMFORT, gb
from smallvit.planning.whereabouts import Given, whereabouts
from smallvit.runs.folder import RunFolder
from smallvit.training.machine_memory import free_bytes


class Foreseen(NamedTuple):
    bytes: int = 0
    device: str = "cpu"


def foreseen(path: Path) -> Foreseen:
    """What a run will have at most, as its plan says. Nothing where it does not (earlier versions, stages to come), or where
    it cannot be read: the run itself will say what is wrong with it."""
    try:
        run = RunFolder(path)
        memory = run.read("recipe.json", "resolved").get("memory") or 0
        return Foreseen(memory, whereabouts(run, Given.here()).device)
    except RunError:
        return Foreseen()


class Room:
    """The memory of this machine and its devices."""

    def __init__(self, free: Callable[[torch.device], float] = free_bytes) -> None:
        self.free = free
        self.needs: dict[Path, Foreseen] = {}  # of the runs that were asked for, each read once
        self.at_first: dict[str, float] = {}  # device -> what was free there when none of these runs was under way
        self.told = False

    def has_place(self, path: Path, active: Iterable[Path]) -> bool:
        """A run alone has: it was planned here. Beside others, what all need is to fit into what was free before them, and
        what this one needs into what is free now: others may have taken some of it."""
        need, device = self.need(path)
        now = self.free(torch.device(device))
        beside = [own.bytes for own in map(self.need, active) if own.device == device]
        if not beside:
            self.at_first[device] = now
            return True
        before, taken = self.at_first[device], sum(beside)
        if need <= COMFORT * now and need + taken <= COMFORT * before:
            return True
        self._tell(len(beside), need, min(before - taken, now))
        return False

    def need(self, path: Path) -> Foreseen:
        if path not in self.needs:
            self.needs[path] = foreseen(path)
        return self.needs[path]

    def _tell(self, beside: int, need: int, left: float) -> None:
        if not self.told:
            says = f"{gb(max(0.0, left))} are left beside {several(beside, 'run')}, and the next one needs about {gb(need)}"
            say(f"fewer runs at a time than asked for: {says}; it waits for one to end")
            self.told = True
