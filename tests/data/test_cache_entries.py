"""`smallvit cache list` and `smallvit cache clear`."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from helpers import make_folder, noise_image, run_here
from smallvit.data.cache_entries import clear, stored
from smallvit.data.sources import open_source
from smallvit.errors import UsageError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def photos(tmp_path: Path, cache: Path) -> Path:
    folder = make_folder(tmp_path / "photos", {"cat": 3, "dog": 3})
    for size in (8, 12):
        open_source(str(folder)).load(size, "crop", 3)
    return folder


@pytest.fixture
def table(photos: Path) -> Path:
    rows = [f"{klass}/{number:03d}.png,{klass}\n" for klass in ("cat", "dog") for number in range(3)]
    path = photos / "labels.csv"
    path.write_text("path,label\n" + "".join(rows))
    open_source(str(path)).load(16, "pad", 1)
    return path


def test_list_of_an_empty_cache(cache: Path) -> None:
    assert stored() == []
    outcome = run_here("cache", "list")
    assert (outcome.status, outcome.err) == (0, "")
    assert f"0 entries in {cache}" in outcome.out


def test_list_says_what_each_entry_is(photos: Path, table: Path) -> None:
    found = {entry.size: entry for entry in stored()}
    assert {entry.source for entry in found.values()} == {str(photos), str(table)}
    entry = found[16]
    assert (entry.source, entry.images, entry.fit, entry.channels, entry.stale) == (str(table), 6, "pad", 1, False)
    assert entry.bytes >= 6 * 16 * 16
    assert abs(time.time() - entry.last_used) < 60
    outcome = run_here("cache", "list")
    line = next(line for line in outcome.out.splitlines() if "16 px" in line)
    assert "6 images" in line
    assert str(table) in line
    assert "stale" not in outcome.out
    assert "3 entries" in outcome.out


def test_last_used_moves_with_every_load(photos: Path) -> None:
    long_ago = time.time() - 1e6
    for entry in stored():
        for path in (entry.path, entry.path / "meta.json"):
            os.utime(path, (long_ago, long_ago))
    open_source(str(photos)).load(12, "crop", 3)
    first, second = stored()
    assert (first.size, second.size) == (12, 8)
    assert first.last_used - second.last_used > 9e5


def test_relative_spelling_is_no_other_entry(photos: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    open_source("labels.csv").load(16, "pad", 1)
    assert len(stored()) == 3
    assert len(clear("labels.csv")) == 1


@pytest.mark.parametrize("change", ["new file", "changed file", "no folder", "renamed"])
def test_stale_entries_are_marked_and_removed(photos: Path, change: str) -> None:
    if change == "new file":
        noise_image("x").save(photos / "cat" / "x.png")
    elif change == "changed file":
        noise_image("x").save(photos / "cat" / "000.png")
    elif change == "no folder":
        shutil.rmtree(photos)
    else:
        (photos / "cat").rename(photos / "owl")
    assert [entry.stale for entry in stored()] == [True, True]
    assert "stale" in run_here("cache", "list").out
    outcome = run_here("cache", "clear", "--stale")
    assert outcome.status == 0
    assert "removed, 2 entries" in outcome.out
    assert stored() == []


def test_clear_stale_keeps_what_is_current(photos: Path, table: Path) -> None:
    table.write_text(table.read_text() + "gone.png,cat\n")
    assert [entry.source for entry in clear(stale=True)] == [str(table)]
    assert len(stored()) == 2


def test_clear_of_one_source(photos: Path, table: Path) -> None:
    outcome = run_here("cache", "clear", photos)
    assert outcome.status == 0
    assert "removed, 2 entries" in outcome.out
    assert [entry.source for entry in stored()] == [str(table)]


def test_clear_of_a_source_that_is_gone(photos: Path) -> None:
    shutil.rmtree(photos)
    assert len(clear(photos)) == 2


def test_clear_of_a_mistyped_source(photos: Path) -> None:
    with pytest.raises(UsageError, match="no such folder or file, and the cache holds nothing of it"):
        clear(str(photos) + "x")
    assert len(stored()) == 2


def test_clear_all_removes_notes_and_leftovers_too(photos: Path, cache: Path) -> None:
    for klass in ("cat", "dog"):
        np.save(photos / klass / "wide.npy", np.full((12, 12, 3), 999, np.uint16))
    open_source(str(photos)).load(12, "crop", 3)
    assert list(cache.glob("facts-*.json"))
    assert len(clear()) == 3
    assert list(cache.iterdir()) == []


def test_images_in_use_survive_a_clear(photos: Path) -> None:
    images = open_source(str(photos)).load(12, "crop", 3)
    clear()
    again = open_source(str(photos)).load(12, "crop", 3)
    assert images.images_NCSS.equal(again.images_NCSS)  # type: ignore[attr-defined]


def test_damaged_entry_is_stale(photos: Path) -> None:
    (stored()[0].path / "meta.json").write_text("{}")
    assert sorted(entry.stale for entry in stored()) == [False, True]
    assert len(clear(stale=True)) == 1
