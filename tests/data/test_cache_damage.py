"""What a disk, a kill or a power cut does to the cache is noticed, said in one line, and made good."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import make_folder
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source

WHOLE, STREAMED = 8.0, 0.0  # gigabytes that may be decoded


def load(path: Path, limit_gb: float = WHOLE, size: int = 12) -> ImageSet:
    return open_source(str(path)).load(size, "crop", 3, limit_gb=limit_gb)


def pixels(images: ImageSet) -> torch.Tensor:
    return images.images_NCSS[torch.arange(len(images))].clone()


def facts_with(cache: Path, content: bytes) -> Path:
    """The one file among those about headers, white and surveys that holds this."""
    (facts,) = (path for path in cache.glob("facts-*.json") if content in path.read_bytes())
    return facts


def write_anew(path: Path, content: bytes) -> None:
    """Not in place: images that were loaded before are mapped."""
    path.unlink()
    path.write_bytes(content)


def flip(path: Path, place: int, bits: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= bits
    write_anew(path, bytes(content))


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content and len(old) == len(new)
    write_anew(path, content.replace(old, new))


def replace_by_a_file(entry: Path) -> None:
    shutil.rmtree(entry)
    entry.touch()


def fewer_rows(entry: Path) -> None:
    tree = json.loads((entry / "meta.json").read_text())
    (entry / "meta.json").write_text(json.dumps({**tree, "kept": [0, 1]}))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no meta": lambda entry: (entry / "meta.json").unlink(),
    "no images": lambda entry: (entry / "images.npy").unlink(),
    "empty images": lambda entry: write_anew(entry / "images.npy", b""),
    "empty meta": lambda entry: (entry / "meta.json").write_bytes(b""),
    "cut images": lambda entry: write_anew(entry / "images.npy", (entry / "images.npy").read_bytes()[:200]),
    "cut header": lambda entry: write_anew(entry / "images.npy", (entry / "images.npy").read_bytes()[:9]),
    "a byte less": lambda entry: write_anew(entry / "images.npy", (entry / "images.npy").read_bytes()[:-1]),
    "cut meta": lambda entry: (entry / "meta.json").write_text((entry / "meta.json").read_text()[:20]),
    "other meta": lambda entry: (entry / "meta.json").write_text("[]"),
    "fewer rows": fewer_rows,
    "a bit of the first pixel": lambda entry: flip(entry / "images.npy", 128),
    "a bit of the last pixel": lambda entry: flip(entry / "images.npy", -1, 128),
    "a header of signed bytes": lambda entry: change(entry / "images.npy", b"|u1", b"|i1"),
    "a header with the axes turned": lambda entry: change(entry / "images.npy", b"(6, 3, 12, 12)", b"(6, 12, 12, 3)"),
    "a header of nonsense": lambda entry: change(entry / "images.npy", b"'shape'", b"'\x00\xffape'"),
    "rows in another order": lambda entry: change(entry / "meta.json", b"[0, 1, 2, ", b"[0, 2, 1, "),
    "a file where the folder was": replace_by_a_file,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry_is_decoded_anew_once_and_said(
    cache: Path, photos: Path, decoded: list[Path], capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    before = load(photos)
    expected = pixels(before)
    (entry,) = cache.glob("images-*")
    assert capsys.readouterr().err == ""
    DAMAGES[damage](entry)
    for line in (f"the decoded images in {entry} are damaged: they are decoded anew\n", ""):
        again = load(photos)
        assert torch.equal(pixels(again), expected)
        assert (again.fingerprint, again.files) == (before.fingerprint, before.files)
        assert capsys.readouterr().err == line
    assert len(decoded) == 12


def test_entry_of_other_images_is_not_taken(cache: Path, photos: Path, tmp_path: Path, decoded: list[Path]) -> None:
    """Two entries that were exchanged, by hand or by a file system that was repaired: each is whole."""
    other = make_folder(tmp_path / "other", {"cat": 3, "dog": 3}, size=(14, 14))
    expected = pixels(load(photos))
    (one,) = cache.glob("images-*")
    load(other)
    (two,) = (entry for entry in cache.glob("images-*") if entry != one)
    for source, target in ((one, tmp_path / "aside"), (two, one), (tmp_path / "aside", two)):
        source.rename(target)
    assert torch.equal(pixels(load(photos)), expected)
    assert len(decoded) == 18


@pytest.mark.parametrize("damage", ["empty", "cut", "rows in another order", "other facts"])
def test_damaged_survey_of_a_streamed_set(
    cache: Path, photos: Path, decoded: list[Path], capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    before = load(photos, STREAMED)
    facts = facts_with(cache, b"[0, 1, 2, ")
    content = facts.read_bytes()
    changed = {
        "empty": b"",
        "cut": content[:-30],
        "rows in another order": content.replace(b"[0, 1, 2, ", b"[0, 2, 1, "),
        "other facts": b"{}",
    }
    facts.write_bytes(changed[damage])
    for line in (f"what was known of the images, in {facts}, is damaged: they are looked at anew\n", ""):
        again = load(photos, STREAMED)
        assert (again.fingerprint, again.files) == (before.fingerprint, before.files)
        assert capsys.readouterr().err == line
    assert len(decoded) == 12


def test_damaged_white_is_measured_anew(cache: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for klass in ("cat", "dog"):
        np.save(photos / klass / "wide.npy", np.full((12, 12, 3), 999, np.uint16))
    assert open_source(str(photos)).white == 1023
    facts = facts_with(cache, b"1023")
    facts.write_bytes(facts.read_bytes().replace(b"1023", b"4095"))
    assert open_source(str(photos)).white == 1023
    assert "damaged" in capsys.readouterr().err


def test_undamaged_entry_is_looked_through_once(cache: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of many gigabytes takes seconds: a second look in the same process believes the first one."""
    expected = pixels(load(photos))
    monkeypatch.setattr("smallvit.data.cache.pixel_digest", None)
    assert torch.equal(pixels(load(photos)), expected)


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be synced")
def test_entry_is_safe_on_disk_before_it_has_its_name(
    cache: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []  # what, and whether the entry had its name by then
    fsync = os.fsync

    def syncing(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, bool(list(cache.glob("images-*")))))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", syncing)
    load(photos)
    (entry,) = cache.glob("images-*")
    (headers,) = cache.glob("facts-*.json")  # remembered before anything is decoded
    earlier = [headers, cache, entry / "images.npy", entry / "meta.json", entry]
    assert {path.stat().st_ino for path in earlier} == {number for number, named in synced if not named}
    assert [number for number, named in synced if named] == [cache.stat().st_ino]
