"""Where several runs are computed: processes of this machine, or a Ray cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from smallvit.errors import UsageError
from smallvit.runs.executor import Launch, Processes, cores_of_one
from smallvit.runs.ray_place import check_cluster, ray_place, room_on_ray
from smallvit.training.session import computing

LOCAL = "local"


def check_place(on: str) -> None:
    """Before anything is planned: there is such a place, it answers, and what it needs is installed."""
    if on == "ray" or on.startswith("ray://"):
        check_cluster(on)
    elif on != LOCAL:
        raise UsageError(f"--on {on}: choices: {LOCAL}, ray, ray://HOST:PORT")


def place_called(on: str, at_once: int) -> Launch:
    """What launches runs there, so many at once."""
    check_place(on)
    return Processes(at_once) if on == LOCAL else ray_place(on, at_once)


def as_one_of(at_once: int, on: str) -> AbstractContextManager[None]:
    """To plan runs with as many cores as each of them will have here; what a machine of a cluster has is seen there."""
    return computing(cores_of_one(at_once)) if on == LOCAL else nullcontext()


def room_at(on: str, threads: int) -> int:
    """How many runs of so many threads have cores of their own there. A cluster is joined to be asked."""
    if on == LOCAL:
        return max(1, torch.get_num_threads() // threads)
    check_place(on)
    return room_on_ray(on, threads)
