"""Kills, disks, two at once, hostile files, soak and load: one short turn of each."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import at_once
import disks
import hostile
import kills
import load
import pytest
import soak

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="kills, disks and memory are looked at through /proc"
    ),
]


@pytest.mark.parametrize("kind", kills.KINDS)
def test_a_kill_is_resumed_to_the_same_bits(kind: str) -> None:
    expected, seconds = kills.reference(kills.KINDS[kind])
    found = kills.one(kills.KINDS[kind], expected, seconds, random.Random(kind))
    assert found["same"], found


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("mount"), reason="mounts a disk: takes root"
)
@pytest.mark.parametrize("case", disks.CASES)
def test_a_disk_without_room(case: str, tmp_path: Path) -> None:
    assert disks.CASES[case](tmp_path) == ""


@pytest.mark.parametrize("case", at_once.CASES)
def test_two_at_once(case: str, tmp_path: Path) -> None:
    assert at_once.CASES[case](tmp_path) == ""


def test_hostile_files(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    found = {what: (done.status, done.err) for what, done in hostile.cases(tmp_path, tmp_path / "watched")}
    assert all(status in (1, 2) and "Traceback" not in said for status, said in found.values()), found
    assert list((tmp_path / "watched").iterdir()) == []
    assert hostile.shown_names(tmp_path) == []


def test_trainings_leave_nothing_behind() -> None:
    held = soak.slopes(soak.in_one_process(25))
    assert held["threads"]["last"] <= held["threads"]["first"] and held["files"]["last"] <= held["files"]["first"] + 2
    assert held["memory MB"]["each"] < 3, held


def test_many_files_and_classes() -> None:
    for files, classes in ((3000, 10), (3000, 1000)):
        assert all(found["status"] == 0 for found in load.one(files, classes).values())
