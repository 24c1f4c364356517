"""Where several runs are computed: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import os

from smallvit.errors import UsageError
from smallvit.runs.executor import Launch, Process
from smallvit.runs.ray_place import check_cluster, ray_place, room_on_ray

LOCAL = "local"


def check_place(on: str) -> None:
    """Before anything is planned: there is such a place, it answers, and what it needs is installed."""
    if on == "ray" or on.startswith("ray://"):
        check_cluster(on)
    elif on != LOCAL:
        raise UsageError(f"--on {on}: choices: {LOCAL}, ray, ray://HOST:PORT")


def place_called(on: str) -> Launch:
    check_place(on)
    return Process if on == LOCAL else ray_place(on)


def room_at(on: str, threads: int) -> int:
    """How many runs of so many threads have cores of their own there. A cluster is joined to be asked."""
    if on == LOCAL:
        return max(1, (os.cpu_count() or 1) // threads)
    place_called(on)
    return room_on_ray(threads)
