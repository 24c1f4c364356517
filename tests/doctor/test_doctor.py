"""`smallvit doctor`: what it finds, what it calls wrong, and the limits of containers."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from helpers import ends_well, run_here
from smallvit.doctor import doctor, machine
from smallvit.doctor.machine import Cores, Space


def test_what_it_finds() -> None:
    found = json.loads(ends_well(run_here("doctor", "--json")).out)
    assert found["ok"] and found["versions"]["torch"] == metadata.version("torch")
    assert set(found["extras"]) == {"hf", "onnx", "ray", "tensorboard", "tune", "wandb"} or len(found["extras"]) >= 6
    assert found["cores"]["usable"] >= 0.1 and found["memory"]["total"] > found["memory"]["free"] > 0
    speeds = found["gflops"]
    assert all(speeds[kind][count] > 0 for kind in ("fp32", "bf16") for count in ("one_thread", "all_threads"))
    assert {"versions", "cores", "memory", "disk here", "cache", "GPU", "speed", "bf16"} <= {
        finding["topic"] for finding in found["findings"]
    }


def test_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "cores", lambda: Cores(8, 8, 1.5))
    outcome = ends_well(run_here("doctor"))
    assert "8 cores, of which 1.5 may be used" in outcome.out
    assert "slow: a container limits it; more threads than that wait for each other: --threads 1" in outcome.out
    assert "fit for training" in outcome.out.splitlines()[-1]


def test_a_full_disk_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "disk", lambda folder: Space(10**12, 10**6))
    outcome = run_here("doctor")
    assert outcome.status == 1
    assert "0.0 of 1000 GB free" in outcome.out and "wrong: runs are written here: free some" in outcome.out
    assert outcome.out.splitlines()[-1] == "2 things are wrong"


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def without(package: str) -> str:
        if package == "torch":
            raise metadata.PackageNotFoundError
        return version(package)

    monkeypatch.setattr(metadata, "version", without)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    outcome = run_here("doctor")
    assert outcome.status == 1
    assert "wrong: torch must be installed" in outcome.out and "torch              cannot be loaded" in outcome.out


def test_what_a_container_allows(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.cores(tmp_path).allowed == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cores(tmp_path).allowed is None
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert machine.cores(tmp_path).usable == 0.5
    (tmp_path / "meminfo").write_text("MemTotal: 8000000 kB\nMemFree: 1 kB\nMemAvailable: 6000000 kB\n")
    assert machine.memory(tmp_path, tmp_path / "meminfo") == (8_192_000_000, 6_144_000_000)
    (tmp_path / "memory.max").write_text("2000000000")
    (tmp_path / "memory.current").write_text("500000000")
    assert machine.memory(tmp_path, tmp_path / "meminfo") == (2_000_000_000, 1_500_000_000)


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    there, later = machine.disk(tmp_path), machine.disk(tmp_path / "a" / "b")
    assert there is not None and later is not None and there.total == later.total
