"""Decoded once; a changed file or setting is another entry; a broken or unwritable cache costs time, never a result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import make_folder, noise_image
from smallvit.data import files
from smallvit.data.cache_folder import cache_folder
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.errors import DataError


def load(path: str | Path, size: int = 12, fit: str = "crop", channels: int = 3) -> ImageSet:
    return open_source(str(path)).load(size, fit, channels)  # type: ignore[arg-type]


def beside_the_notes(cache: Path) -> list[str]:
    """All in the cache but the small files that remember what was found out about images, such as their headers."""
    return [path.name for path in cache.iterdir() if not path.match("facts-*.json")]


def pixels(images: ImageSet) -> torch.Tensor:
    return images.images_NCSS[torch.arange(len(images))]


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob("images-*"))


def test_second_load_decodes_nothing_and_is_bit_equal(cache: Path, photos: Path, decoded: list[Path]) -> None:
    first = load(photos)
    assert len(decoded) == 6
    second = load(photos)
    assert len(decoded) == 6
    assert torch.equal(first.images_NCSS, second.images_NCSS)
    assert torch.equal(first.labels_N, second.labels_N)
    assert (first.fingerprint, first.files, first.class_names) == (second.fingerprint, second.files, second.class_names)


def test_writing_to_the_images_leaves_the_cache_as_it_is(cache: Path, photos: Path) -> None:
    images = load(photos).images_NCSS
    before = images.clone()
    images.zero_()
    assert torch.equal(load(photos).images_NCSS, before)


@pytest.mark.parametrize("change", [{"size": 10}, {"fit": "squash"}, {"channels": 1}])
def test_another_setting_is_another_entry(
    cache: Path, photos: Path, decoded: list[Path], change: dict[str, object]
) -> None:
    load(photos)
    load(photos, **change)  # type: ignore[arg-type]
    assert len(decoded) == 12
    assert len(entries(cache)) == 2


def test_changed_file_is_another_entry(cache: Path, photos: Path) -> None:
    before = load(photos)
    noise_image("other").save(photos / "cat" / "001.png")
    after = load(photos)
    assert after.fingerprint != before.fingerprint
    different = [not torch.equal(a, b) for a, b in zip(before.images_NCSS, after.images_NCSS, strict=True)]
    assert different == [False, True, False, False, False, False]


def test_new_and_renamed_files_are_seen(cache: Path, photos: Path) -> None:
    load(photos)
    noise_image("new").save(photos / "dog" / "new.png")
    (photos / "cat" / "000.png").rename(photos / "dog" / "was_cat.png")
    images = load(photos)
    assert torch.bincount(images.labels_N).tolist() == [2, 5]
    assert str(Path("dog", "was_cat.png")) in images.files


def test_however_the_folder_is_spelled(
    cache: Path, photos: Path, decoded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(photos)
    monkeypatch.chdir(photos.parent)
    load("photos")
    load("./photos/../photos/")
    assert len(decoded) == 6
    assert len(entries(cache)) == 1


def test_same_names_in_two_places_are_two_entries(cache: Path, tmp_path: Path, photos: Path) -> None:
    other = make_folder(tmp_path / "other" / "photos", {"dog": 3, "cat": 3})
    noise_image("changed").save(other / "cat" / "000.png")
    assert load(photos).fingerprint != load(other).fingerprint


def test_half_built_entry_is_ignored(cache: Path, photos: Path) -> None:
    """As a kill leaves it: a folder being built, whole or not."""
    cache.mkdir()
    half = cache / ".building-killed"
    half.mkdir()
    np.save(half / "images.part.npy", np.zeros((6, 3, 12, 12), np.uint8))
    assert load(photos).images_NCSS.float().mean() > 10
    assert len(entries(cache)) == 1


def test_old_leftovers_of_kills_are_swept(cache: Path, photos: Path) -> None:
    old, new = cache / ".building-old", cache / ".building-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "images.part.npy").write_bytes(b"x")
    long_ago = time.time() - 2 * 86_400
    os.utime(old, (long_ago, long_ago))
    load(photos)
    assert not old.exists()
    assert new.exists()  # another process may be at it


def test_nothing_is_left_beside_the_entry(cache: Path, photos: Path) -> None:
    load(photos)
    assert beside_the_notes(cache) == [path.name for path in entries(cache)]
    assert sorted(path.name for path in entries(cache)[0].iterdir()) == ["images.npy", "meta.json"]


def test_failed_decoding_leaves_no_entry(cache: Path, photos: Path) -> None:
    (photos / "cat" / "000.png").write_bytes((photos / "cat" / "000.png").read_bytes()[:100])
    with pytest.raises(DataError):
        load(photos)
    assert beside_the_notes(cache) == []


def test_unwritable_cache_works_with_a_note(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = load(photos)
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("SMALLVIT_CACHE", str(blocked / "cache"))
    images = load(photos)
    assert torch.equal(images.images_NCSS, expected.images_NCSS)
    assert images.fingerprint == expected.fingerprint
    said = capsys.readouterr().err
    assert f"note: the cache {blocked / 'cache'} cannot be written" in said
    assert "decoded for this run only" in said


@contextmanager
def small_files_only() -> Iterator[None]:
    """As on a full disk: no file may grow beyond 4 kB; nor may the log of the tests, so only around what is tested."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_is_an_error_not_a_crash(cache: Path, photos: Path) -> None:
    with small_files_only(), pytest.raises(DataError, match=r"no room for the decoded images.*set SMALLVIT_CACHE"):
        load(photos, size=64)
    assert beside_the_notes(cache) == []


def test_processes_that_build_the_same_entry_at_once(cache: Path, photos: Path) -> None:
    code = textwrap.dedent("""
        import sys
        from smallvit.data.sources import open_source
        source = open_source(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        for size in range(8, 24):
            print(source.load(size, "crop", 3).fingerprint)
    """)
    command = [sys.executable, "-c", code, str(photos)]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=120)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert answers[0] == answers[1]
    assert len(answers[0].split()) == 16
    assert len(entries(cache)) == 16


def decoding_process(photos: Path, size: int) -> subprocess.Popen[str]:
    """A process that decodes slowly and says so once it is in the middle of it."""
    code = textwrap.dedent("""
        import sys, time
        from smallvit.data import files
        read_image, count = files.read_image, 0
        def slowly(*arguments):
            global count
            count += 1
            if count == 4:
                print("half-way", flush=True)
            if count >= 4:
                time.sleep(60)
            return read_image(*arguments)
        files.read_image = slowly
        from smallvit.data.sources import open_source
        open_source(sys.argv[1]).load(int(sys.argv[2]), "crop", 3)
    """)
    command = [sys.executable, "-c", code, str(photos), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_killed_half_way(cache: Path, photos: Path, decoded: list[Path]) -> None:
    """The half-built entry is never taken for a whole one, and is gone after the next build."""
    process = decoding_process(photos, 12)
    assert process.stdout is not None
    assert process.stdout.readline() == "half-way\n"
    assert len(list(cache.glob(".building-*"))) == 1
    process.kill()
    process.wait()
    images = load(photos)
    assert len(decoded) == 6
    for row, file in enumerate(images.files):
        klass, name = Path(file).parts
        expected = np.asarray(noise_image(f"{klass}/{int(Path(name).stem)}"))
        assert np.array_equal(pixels(images)[row].permute(1, 2, 0).numpy(), expected)
    assert not list(cache.glob(".building-*"))
    assert len(entries(cache)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_what_a_living_process_builds_is_left_alone(cache: Path, photos: Path) -> None:
    process = decoding_process(photos, 12)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "half-way\n"
        load(photos, size=10)
        load(photos)
        assert len(list(cache.glob(".building-*"))) == 1
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("victim", ["000.png", "002.png"])
def test_file_changed_while_decoding(cache: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, victim: str) -> None:
    """Before it is decoded or after: what was read is used, with its own fingerprint, and never kept as something else."""
    before = load(photos, size=11)
    read_image, seen = files.read_image, [0]

    def reading(path: Path, *rest: object) -> torch.Tensor:
        seen[0] += 1
        if seen[0] == 4:
            noise_image("changed").save(photos / "cat" / victim)
        return read_image(path, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(files, "read_image", reading)
        patch.setattr(os, "cpu_count", lambda: 1)
        during = load(photos)
    assert len(entries(cache)) == 1  # that of `before`
    after = load(photos)
    fresh = [files.read_image(photos / file, 12, "crop", 3) for file in after.files]
    assert torch.equal(pixels(after), torch.stack(fresh))
    same = torch.equal(pixels(during), pixels(after))
    assert (during.fingerprint == after.fingerprint) == same
    assert load(photos, size=11).fingerprint != before.fingerprint


def test_files_that_change_all_the_time(cache: Path, photos: Path) -> None:
    """Another process writes while this one loads; when it has stopped, what is loaded is what is there."""
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from helpers import noise_image
        print("ready", flush=True)
        for number in range(100_000):
            file = Path(sys.argv[1], "cat" if number % 2 else "dog", f"{number % 3:03d}.png")
            noise_image(str(number)).save(file.with_suffix(".new"), "png")
            file.with_suffix(".new").replace(file)
    """)
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(photos)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for _ in range(30):
            load(photos)
    finally:
        writer.kill()
        writer.wait()
    for _ in range(2):
        images = load(photos)
        fresh = [files.read_image(photos / file, 12, "crop", 3) for file in images.files]
        assert torch.equal(pixels(images), torch.stack(fresh))


def test_copy_that_keeps_size_and_time_is_another_file(cache: Path, photos: Path) -> None:
    """As `cp -p` or an archive does it; uncompressed, so that the size stays too."""
    for number in range(2):
        noise_image(f"bmp {number}").save(photos / "cat" / f"{number}.bmp")
    load(photos)
    old, new = photos / "cat" / "0.bmp", photos / "cat" / "1.bmp"
    status = old.stat()
    assert new.stat().st_size == status.st_size
    time.sleep(0.05)
    old.write_bytes(new.read_bytes())
    os.utime(old, ns=(status.st_atime_ns, status.st_mtime_ns))
    images = load(photos)
    rows = [images.files.index(str(Path("cat", name))) for name in ("0.bmp", "1.bmp")]
    assert torch.equal(*(pixels(images)[row] for row in rows))


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("SMALLVIT_CACHE")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg" / "smallvit"
    assert cache_folder().name == "smallvit"


def test_moved_cache_is_simply_rebuilt(cache: Path, photos: Path, decoded: list[Path]) -> None:
    load(photos)
    shutil.rmtree(cache)
    load(photos)
    assert len(decoded) == 12
