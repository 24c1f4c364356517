"""The machine and the versions a number came from."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import torch

PACKAGES = ("smallvit", "torchvision", "timm", "numpy", "scikit-learn")


def environment(device: str, threads: int) -> dict[str, str | int]:
    versions: dict[str, str | int] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    # With the build, CPU or CUDA, which the package's own version leaves out.
    versions["torch"] = str(torch.__version__)
    versions |= {
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "device": device,
    }
    if device.startswith("cuda"):
        versions["gpu"] = torch.cuda.get_device_name(device)
    return versions


def _cpu_name() -> str:
    """With its family and model: clouds call processors of very different speed by one name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    name = told.get("model name", platform.machine())
    numbers = [f"{key.removeprefix('cpu ')} {told[key]}" for key in ("cpu family", "model") if key in told]
    return f"{name} ({', '.join(numbers)})" if numbers else name
