"""What the machine says of itself: cores, memory and disks, and what a container allows of them. No torch is needed.

A container may be allowed less than there is, and only its control group says so.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GROUPS = Path("/sys/fs/cgroup")
GB = 1e9


class Cores(NamedTuple):
    """`there` on the machine, `ours` to be used by this process, `allowed` by its control group (may be half a core)."""

    there: int
    ours: int
    allowed: float | None

    @property
    def usable(self) -> float:
        return self.ours if self.allowed is None else min(float(self.ours), self.allowed)


class Space(NamedTuple):
    """Bytes."""

    total: int
    free: int


def cores(groups: Path = GROUPS) -> Cores:
    there = os.cpu_count() or 1
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    return Cores(there, ours, _quota(groups))


def _quota(groups: Path) -> float | None:
    """Of version 2 of control groups, or of version 1; None where nothing is limited."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (groups / "cpu.max").read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError, ZeroDivisionError):
        amount, span = (int((groups / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return None if amount < 0 else amount / span
    return None


def memory(groups: Path = GROUPS, facts: Path = Path("/proc/meminfo")) -> Space | None:
    """Of the machine, or what a control group allows of it; None where the system does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in facts.read_text().splitlines() if ":" in line)
        total, free = (1024 * int(lines[key].split()[0]) for key in ("MemTotal", "MemAvailable"))
    except (OSError, ValueError, KeyError):
        try:  # macOS has no such file
            total = free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            if (most := int((groups / limit).read_text())) < total:
                total, free = most, min(free, most - int((groups / used).read_text()))
    return Space(total, max(0, free))


def disk(folder: Path) -> Space | None:
    """Of the disk that a folder is on, or will be."""
    there = next((place for place in (folder, *folder.absolute().parents) if place.exists()), None)
    try:
        usage = shutil.disk_usage(there) if there else None
    except OSError:
        return None
    return Space(usage.total, usage.free) if usage else None


def size_below(folder: Path) -> int:
    """Bytes of all files in it."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(base, name).lstat().st_size
    return total


def load() -> float | None:
    """Processes that want a core, on average over the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
