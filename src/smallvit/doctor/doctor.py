"""Everything that a question about an installation begins with, in a few seconds: findings, and which of them stop a training."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

from smallvit.console import are, quiet, several
from smallvit.data.cache_folder import cache_folder
from smallvit.doctor.machine import GB, Cores, Space, cores, disk, load, memory, size_below

State = Literal["ok", "note", "slow", "wrong"]
PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn")
LEAST_DISK, LITTLE_DISK = 0.5 * GB, 5 * GB
LITTLE_MEMORY = 1.5 * GB  # free: torch and a small set take about one
LEAST_GAIN = 0.6  # of the number of threads, that all of them should make of one


class Finding(NamedTuple):
    topic: str
    value: str
    state: State = "ok"
    why: str = ""  # what is the matter, and what to do


class Health(NamedTuple):
    findings: list[Finding]
    numbers: dict[str, Any]  # the same, for programs

    @property
    def ok(self) -> bool:
        """Nothing keeps a training from running."""
        return not any(finding.state == "wrong" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [finding._asdict() for finding in self.findings], **self.numbers}


def doctor(show_progress: bool = True) -> Health:
    """Look at versions, cores, memory, disks and cache, and measure how fast a matrix product is."""
    numbers: dict[str, Any] = {}
    with quiet(not show_progress):
        findings = [*_versions(numbers), *_machine(numbers), *_disks(numbers), *_torch(numbers)]
    return Health(findings, numbers)


# ---- what is installed -------------------------------------------------------------------------------


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def extras() -> dict[str, list[str]]:
    """Name of an extra -> the packages that it brings, as the installed smallvit says."""
    found: dict[str, list[str]] = {}
    try:
        needed = metadata.requires("smallvit") or []
    except metadata.PackageNotFoundError:
        return {}
    for line in needed:
        package, sign, marker = line.partition(";")
        if sign and "extra" in marker:
            extra = marker.rpartition("==")[2].strip(" '\"")
            name = package.strip()
            end = next(
                (place for place, letter in enumerate(name) if not (letter.isalnum() or letter in "-_.")), len(name)
            )
            found.setdefault(extra, []).append(name[:end])
    return found


def _versions(numbers: dict[str, Any]) -> Iterator[Finding]:
    from smallvit import __version__

    versions = {"smallvit": __version__, "python": platform.python_version()}
    versions |= {package: version_of(package) or "missing" for package in PACKAGES}
    numbers["versions"] = versions
    missing = [package for package, version in versions.items() if version == "missing"]
    told = ", ".join(f"{package} {version}" for package, version in versions.items())
    why = f"{', '.join(missing)} must be installed: install smallvit anew, with what it needs" if missing else ""
    yield Finding("versions", told, "wrong" if missing else "ok", why)
    here = {name: all(version_of(package) for package in packages) for name, packages in extras().items()}
    numbers["extras"] = here
    if absent := [name for name, there in here.items() if not there]:
        present = [name for name, there in here.items() if there]
        why = f"where you need one: pip install 'smallvit[{absent[0]}]'"
        yield Finding("extras", f"{', '.join(present) or 'none'}; not installed: {', '.join(absent)}", "note", why)
    elif here:
        yield Finding("extras", ", ".join(here))


# ---- the machine -------------------------------------------------------------------------------------


def _machine(numbers: dict[str, Any]) -> Iterator[Finding]:
    own, room = cores(), memory()
    numbers["cores"] = {**own._asdict(), "usable": own.usable, "load": load()}
    yield _about_cores(own, load())
    numbers["memory"] = room._asdict() if room else None
    if room is None:
        yield Finding("memory", "unknown: this system does not tell", "note")
    else:
        little = room.free < LITTLE_MEMORY
        why = "close other programs, or give --batch-size and --img-size smaller values" if little else ""
        yield Finding(
            "memory", f"{room.free / GB:.1f} of {room.total / GB:.1f} GB free", "slow" if little else "ok", why
        )
    if os.environ.get("PYTHONDONTWRITEBYTECODE") or sys.dont_write_bytecode:
        why = "Python keeps no compiled code, so that every command imports torch three times as slowly: unset it"
        yield Finding("Python", "PYTHONDONTWRITEBYTECODE is set", "slow", why)


def _about_cores(own: Cores, wanted: float | None) -> Finding:
    told = several(own.ours, "core", own.there) if own.ours < own.there else several(own.there, "core")
    if own.allowed is not None and own.allowed < own.ours:
        why = f"a container limits it; more threads than that wait for each other: --threads {max(1, int(own.allowed))}"
        return Finding("cores", f"{told}, of which {own.allowed:g} may be used", "slow", why)
    if wanted is not None and wanted > 0.75 * own.there:
        why = "others use them, too: what is measured now is slower than it could be, and a budget buys fewer steps"
        return Finding("cores", f"{told}, load {wanted:.1f}", "slow", why)
    return Finding("cores", told if wanted is None else f"{told}, load {wanted:.1f}")


def _disks(numbers: dict[str, Any]) -> Iterator[Finding]:
    cache = cache_folder()
    for topic, folder, way_out in (
        ("disk here", Path.cwd(), "runs are written here: free some, or give --out on another disk"),
        (
            "disk of the cache",
            cache,
            "free some (`smallvit cache clear --stale`), or set SMALLVIT_CACHE to another disk",
        ),
    ):
        space = disk(folder)
        numbers[topic] = {"folder": str(folder), **(space._asdict() if space else {})}
        yield _about_disk(topic, folder, space, way_out)
    size = size_below(cache)
    numbers["cache bytes"] = size
    if cache.is_dir() and not os.access(cache, os.W_OK):
        why = "images are decoded anew by every command: set SMALLVIT_CACHE to a folder that you may write to"
        yield Finding("cache", f"{cache} cannot be written", "slow", why)
    else:
        yield Finding("cache", f"{size / GB:.2f} GB of decoded images in {cache}")


def _about_disk(topic: str, folder: Path, space: Space | None, way_out: str) -> Finding:
    if space is None:
        return Finding(topic, f"{folder}: unknown", "note")
    told = f"{space.free / GB:.1f} of {space.total / GB:.0f} GB free ({folder})"
    state: State = "wrong" if space.free < LEAST_DISK else "slow" if space.free < LITTLE_DISK else "ok"
    return Finding(topic, told, state, way_out if state != "ok" else "")


# ---- torch, and how fast it is here ------------------------------------------------------------------


def _torch(numbers: dict[str, Any]) -> Iterator[Finding]:
    started = time.monotonic()
    try:
        import torch
    except (ImportError, OSError) as error:
        numbers["torch"] = None
        yield Finding(
            "torch",
            f"cannot be loaded: {error}",
            "wrong",
            "install torch anew: its own page says which build suits this machine",
        )
        return
    seconds = time.monotonic() - started
    from smallvit.doctor.speed import measure
    from smallvit.training.bf16 import why_not

    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "Apple GPU" if device == "mps" else ""
    numbers["torch"] = {"device": device, "gpu": name, "seconds_to_import": round(seconds, 2)}
    if device == "cpu":
        yield Finding(
            "GPU",
            "none that torch can use",
            "note",
            "everything works on the CPU; models and images of a laptop's size are chosen",
        )
    else:
        yield Finding("GPU", f"{name} ({device})")
    threads = max(1, int(cores().usable))
    speeds = measure(threads, device)
    numbers["gflops"] = {kind: {**speed._asdict(), "threads": threads} for kind, speed in speeds.items()}
    fast = speeds["fp32"]
    told = f"fp32 {fast.one_thread:.0f} billion multiply-adds a second with 1 thread"
    if device == "cpu" and threads > 1:
        told += f", {fast.all_threads:.0f} with {threads}"
    few = device == "cpu" and threads > 1 and fast.gain < LEAST_GAIN * threads
    why = (
        f"{several(threads, 'thread')} make {fast.gain:.1f} of one: others use the cores, or they share one; --threads 1 may be as fast"
        if few
        else ""
    )
    yield Finding("speed", told, "slow" if few else "ok", why)
    if problem := why_not(device):
        yield Finding("bf16", "not to be used", "note", problem)
        return
    ratio = speeds["bf16"].one_thread / fast.one_thread
    slow = ratio < 1
    words = "this processor has no units for it, and `auto` takes fp32" if slow else "`auto` tries it before a run"
    yield Finding("bf16", f"{ratio:.1f} times as fast as fp32", "note" if slow else "ok", words)


def lines_of(health: Health) -> Iterator[str]:
    """As the terminal shows it."""
    width = max(len(finding.topic) for finding in health.findings)
    for finding in health.findings:
        mark = {"ok": "", "note": "", "slow": "slow: ", "wrong": "wrong: "}[finding.state]
        yield f"{finding.topic:<{width}}  {finding.value}"
        if finding.why:
            yield f"{'':<{width}}    {mark}{finding.why}"
    count = {state: sum(finding.state == state for finding in health.findings) for state in ("wrong", "slow")}
    if count["wrong"]:
        yield f"{are(count['wrong'], 'thing')} wrong"
    else:
        yield (
            f"fit for training; {are(count['slow'], 'thing')} slower than need be"
            if count["slow"]
            else "fit for training"
        )
