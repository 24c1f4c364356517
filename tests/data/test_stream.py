"""Sets above the limit are read from their files batch by batch: the same images, and the same model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers import make_folder, noise_image, truncate
from smallvit import api
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.data.stream import StreamedImages
from smallvit.errors import DataError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", {"cat": 30, "dog": 30}, size=(20, 16))


def load(path: Path, limit_gb: float, size: int = 12) -> ImageSet:
    return open_source(str(path)).load(size, "crop", 3, limit_gb=limit_gb)


def streamed(path: Path) -> tuple[ImageSet, StreamedImages]:
    images = load(path, 0)
    assert isinstance(images.images_NCSS, StreamedImages)
    return images, images.images_NCSS


def test_limit_decides(photos: Path) -> None:
    gigabytes = 60 * 3 * 12 * 12 / 1e9
    assert isinstance(load(photos, gigabytes * 0.99).images_NCSS, StreamedImages)
    assert isinstance(load(photos, gigabytes).images_NCSS, torch.Tensor)


def test_streamed_set_is_the_cached_set(photos: Path) -> None:
    images, pixels = streamed(photos)
    cached = load(photos, 8)
    assert pixels.shape == cached.images_NCSS.shape
    assert (images.fingerprint, images.files, images.class_names) == (cached.fingerprint, cached.files, cached.class_names)  # fmt: skip
    assert torch.equal(images.labels_N, cached.labels_N)
    for rows in (torch.tensor([3, 3, 59, 0]), torch.arange(60), torch.tensor([], dtype=torch.int64)):
        assert torch.equal(pixels[rows], cached.images_NCSS[rows])
    assert torch.equal(pixels[7], cached.images_NCSS[torch.tensor(7)])
    assert torch.equal(pixels[5:9], cached.images_NCSS[torch.arange(5, 9)])


def test_prefetched_rows_are_the_same_rows(photos: Path) -> None:
    _, pixels = streamed(photos)
    expected = load(photos, 8).images_NCSS
    pixels.prefetch(torch.tensor([1, 2, 3, 3]))
    pixels.prefetch(torch.tensor([3, 4]))  # 1 and 2 are not wanted any more
    for rows in (torch.tensor([3, 4, 3]), torch.tensor([1, 2])):
        assert torch.equal(pixels[rows], expected[rows])


def test_damaged_files_are_skipped_as_from_the_cache(photos: Path) -> None:
    truncate(photos / "cat" / "011.png")
    (photos / "dog" / "003.png").write_bytes(b"")
    one, other = load(photos, 0), load(photos, 8)
    assert {item.file for item in one.skipped} == {str(Path("cat", "011.png")), str(Path("dog", "003.png"))}
    assert (one.skipped, one.files, one.fingerprint) == (other.skipped, other.files, other.fingerprint)
    rows = torch.arange(58)
    assert torch.equal(one.images_NCSS[rows], other.images_NCSS[rows])


def test_many_files_damaged_inside_stop_with_the_list(photos: Path) -> None:
    for number in range(4):
        truncate(photos / "cat" / f"{number:03d}.png", 0.9)
    with pytest.raises(DataError, match=r"4 of 60 images of .* cannot be read:\n.*000\.png: damaged"):
        load(photos, 0)


def test_second_look_decodes_nothing(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(photos, 0)
    monkeypatch.setattr("smallvit.data.files.read_image", None)
    assert load(photos, 0).fingerprint == first.fingerprint


@pytest.mark.parametrize("ahead", [False, True])
def test_changed_file_is_an_error_never_an_image(photos: Path, ahead: bool) -> None:
    images, pixels = streamed(photos)
    noise_image("other").save(photos / "cat" / "007.png")
    row = torch.tensor([images.files.index(str(Path("cat", "007.png")))])
    if ahead:
        pixels.prefetch(row)
    with pytest.raises(DataError, match=r"007\.png was changed while it was in use"):
        pixels[row]
    assert load(photos, 0).fingerprint != images.fingerprint


def test_removed_file_is_named(photos: Path) -> None:
    images, pixels = streamed(photos)
    (photos / "cat" / "007.png").unlink()
    with pytest.raises(DataError, match=r"007\.png could be read before, and cannot any more: No such file"):
        pixels[torch.tensor([images.files.index(str(Path("cat", "007.png")))])]


def test_same_seed_same_model_streamed_or_cached(photos: Path, tmp_path: Path) -> None:
    """Bit for bit, through two epochs with augmentation, validation and the floors."""
    runs = [
        api.train(
            photos, out=tmp_path / name, model="vit_pico", epochs=2, threads=1, show_progress=False, batch_size=8,
            settings={"data.cache_limit_gb": limit, "augment.crop": "resized", "augment.hue": 0.1, "augment.erase": 0.2},
        )
        for name, limit in (("streamed", 0.0), ("cached", 8.0))
    ]  # fmt: skip
    one, other = ((run.path / "model.safetensors").read_bytes() for run in runs)
    assert one == other
    assert runs[0].results["parts"] == runs[1].results["parts"]
    assert api.evaluate(runs[0].path)["accuracy"] == api.evaluate(runs[1].path)["accuracy"]
