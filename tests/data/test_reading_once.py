"""Every image file is opened once, and not at all where the cache knows all about it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from helpers import make_folder, truncate
from smallvit.data import contents
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.errors import DataError

_opened: list[str] = []  # an audit hook cannot be taken away again


@pytest.fixture(scope="module", autouse=True)
def _listening() -> None:
    sys.addaudithook(lambda event, args: _opened.append(str(args[0])) if event == "open" else None)


@pytest.fixture
def opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Counter[str]]:
    """How often each image file below this test's folder was opened since the last call."""
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))

    def counted() -> Counter[str]:
        images = [name for name in _opened if name.startswith(str(tmp_path)) and name.endswith((".png", ".jpg"))]
        _opened.clear()
        return Counter(Path(name).relative_to(tmp_path).as_posix() for name in images)

    return counted


def load(folder: Path, size: int = 8, **more: float) -> ImageSet:
    return open_source(str(folder)).load(size, "crop", 3, **more)  # type: ignore[arg-type]


def pixels(images: ImageSet) -> torch.Tensor:
    return images.images_NCSS[torch.arange(len(images))]


@pytest.mark.parametrize("limit_gb", [1.0, 0.0])
def test_once_then_never_then_once_for_another_size(
    tmp_path: Path, opens: Callable[[], Counter[str]], limit_gb: float
) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 3}, suffix=".jpg")
    make_folder(photos, {"dog": 3})
    files = [f"photos/cat/{n:03d}.jpg" for n in range(3)] + [f"photos/dog/{n:03d}.png" for n in range(3)]
    opens()
    load(photos, limit_gb=limit_gb)
    assert opens() == dict.fromkeys(files, 1)
    load(photos, limit_gb=limit_gb)
    assert opens() == {}
    load(photos, size=10, limit_gb=limit_gb)
    assert opens() == dict.fromkeys(files, 1)


def test_beyond_the_limit_a_file_is_opened_twice_and_gives_the_same_pixels(
    tmp_path: Path, opens: Callable[[], Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 3, "dog": 3}, suffix=".jpg")
    kept = pixels(load(photos))
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(contents.Contents.__init__, "__defaults__", (0,))
    opens()
    assert torch.equal(pixels(load(photos)), kept)
    assert {*opens().values()} == {2}


def test_a_changed_file_is_looked_at_again(tmp_path: Path, opens: Callable[[], Counter[str]]) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 30, "dog": 30})
    assert open_source(str(photos)).side == 12
    opens()
    make_folder(photos, {"cat": 30}, size=(40, 44))
    make_folder(photos, {"dog": 30}, size=(40, 44))
    assert open_source(str(photos)).side == 40


def test_damage_is_remembered_and_what_stops_is_not(tmp_path: Path, opens: Callable[[], Counter[str]]) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 30, "dog": 30})
    (photos / "cat" / "000.png").write_bytes(b"no picture")
    opens()
    for _ in range(2):
        images = load(photos)
        assert [item.file for item in images.skipped] == ["cat/000.png"]
    assert len(images) == 59 and {*opens().values()} == {1}
    for number in range(9):
        truncate(photos / "dog" / f"{number:03d}.png", 0.02)
    for _ in range(2):
        opens()
        with pytest.raises(DataError, match="10 of 60 images"):
            load(photos)
        assert len(opens()) == 60
