"""Where several runs are computed: processes of this machine, or a Ray cluster."""

from __future__ import annotations

from smallvit.errors import UsageError
from smallvit.runs.executor import Launch, Process
from smallvit.runs.ray_place import load_ray, ray_place

LOCAL = "local"


def check_place(on: str) -> None:
    """Before anything is planned: there is such a place, and what it needs is installed."""
    if on == "ray" or on.startswith("ray://"):
        load_ray()
    elif on != LOCAL:
        raise UsageError(f"--on {on}: choices: {LOCAL}, ray, ray://HOST:PORT")


def place_called(on: str) -> Launch:
    check_place(on)
    return Process if on == LOCAL else ray_place(on)
