"""How much memory there is for this process, whoever limits it: the machine, a container, a limit of the shell, a GPU."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import torch

SYSTEM = Path("/")


def used_bytes(device: torch.device) -> int:
    """That the process has; of a GPU where it trains on one."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return int(total - free)
    return _in_status("VmRSS")


def free_bytes(device: torch.device, system: Path = SYSTEM) -> float:
    """More that it can have; infinite where nothing tells."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return min(_of_the_machine(system), _of_the_container(system), _of_the_shell())


def held_by_children() -> int:
    """Bytes of the processes that this one has started: runs that go on while the next is planned. 0 where nothing tells."""
    found = 0
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError, ValueError):
            found += sum(_in_status("RssAnon", child) for child in task.read_text().split())
    return found


def _of_the_machine(system: Path) -> float:
    with suppress(OSError, ValueError, IndexError):
        for line in (system / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    return math.inf


def _of_the_container(system: Path) -> float:
    """The tightest limit of the control groups that this process is in.

    File pages can be dropped, those of images that were read twice, too: they are free, as in MemAvailable.
    """
    found = [math.inf]
    root = system / "sys/fs/cgroup"
    for folder, limit, usage, prefix in (
        *((folder, "memory.max", "memory.current", "") for folder in _groups(system, root, "0::")),
        *(
            (folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            for folder in _groups(system, root / "memory", ":memory:")
        ),
    ):
        with suppress(OSError, ValueError):  # `max` is no number: no limit
            most, now = int((folder / limit).read_text()), int((folder / usage).read_text())
            dropped = (_from_stat(folder / "memory.stat", f"{prefix}{key}") for key in ("inactive_file", "active_file"))
            found.append(float(most - now + sum(dropped)))
    return max(0.0, min(found))


def _groups(system: Path, root: Path, mark: str) -> list[Path]:
    """The folder of this process under `root`, and those around it. In a container its own is the root."""
    with suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text().splitlines():
            if mark in line:
                own = root / line.split(mark, 1)[1].lstrip("/")
                return [root, *(folder for folder in (own, *own.parents) if folder.is_relative_to(root))]
    return [root]


def _from_stat(file: Path, key: str) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{key} "):
                return int(line.split()[1])
    return 0


def _of_the_shell() -> float:
    """ulimit -v counts addresses, not pages."""
    try:
        import resource
    except ImportError:  # Windows
        return math.inf
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if most == resource.RLIM_INFINITY else float(max(0, most - _in_status("VmSize")))


def _in_status(key: str, process: str = "self") -> int:
    """Bytes, from Linux's own account; 0 where there is none."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return 1024 * int(line.split()[1])
    return 0
