"""Kills, disks, two at once, hostile files, soak and load: one short turn of each."""

from __future__ import annotations

import json
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
def test_a_kill_is_resumed_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    found = kills.Case(kills.KINDS[kind], tmp_path).one(random.Random(kind))
    assert found["kills"] and found["same"] and not found["left"] and not found["torn"], json.dumps(found)


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
    *_, (seen, held) = soak.in_one_process(52)
    found = soak.slopes(seen)
    assert (
        found["threads"]["last"] <= found["threads"]["first"] and found["files"]["last"] <= found["files"]["first"] + 2
    )
    first, *_, last = held
    assert last["tensors"] <= first["tensors"], held
    assert last["malloc in use, MB"] < first["malloc in use, MB"] + 2 and last["blocks of Python"] < first["blocks of Python"] + 8000  # fmt: skip


def test_a_group_leaves_nothing_behind() -> None:
    found = soak.as_group(6)
    assert found["status"] == 0 and found["finished"] == 6 and not found["left"], found
    assert found["slopes"]["files"]["last"] <= found["slopes"]["files"]["first"] + 2, found


def test_many_files_and_classes() -> None:
    for files, classes in ((3000, 10), (3000, 1000)):
        assert all(found["status"] == 0 for found in load.one(files, classes).values())
