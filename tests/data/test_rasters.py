"""Images of any number of channels, .npy and TIFF, and 16 bits: read, bounded, and never mixed up."""

from __future__ import annotations

import io
import os
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from safetensors.torch import load_file

from helpers import make_folder, noise_image, truncate, write_npz
from smallvit import api
from smallvit.data.images import (
    Unreadable,
    pixels_of_picture,
    read_header,
    read_image,
    read_sent,
    square_of_picture,
)
from smallvit.data.sources import open_source
from smallvit.errors import DataError, UsageError


def pixels(seed: int, shape: tuple[int, ...] = (10, 12, 5), dtype: Any = np.uint8, most: int = 256) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, most, shape).astype(dtype)


def npy(path: Path, array: np.ndarray, **options: Any) -> Path:
    np.save(path, array, **options)
    return path


def cropped(array_HWC: np.ndarray) -> np.ndarray:
    """C x 10 x 10: the middle of 10 x 12."""
    return np.moveaxis(array_HWC[:, 1:11], 2, 0)


def tiff(path: Path, array: np.ndarray, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tifffile.imwrite(path, array, **options)
    return path


# ---- the ways to store channels ----------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 13, 64])
def test_npy_pixels_arrive_unchanged(tmp_path: Path, channels: int) -> None:
    array = pixels(0, (70, 84, channels))
    path = npy(tmp_path / "x.npy", array)
    assert read_header(path) == (70, channels, False)
    found = read_image(path, 70, "crop", channels)
    assert np.array_equal(found.numpy(), np.moveaxis(array[:, 7:77], 2, 0))
    assert found.is_contiguous()


def test_npy_layouts(tmp_path: Path) -> None:
    array = pixels(0)
    for other in (np.asfortranarray(array), array[::-1][::-1]):
        assert np.array_equal(read_image(npy(tmp_path / "x.npy", other), 10, "crop", 5).numpy(), cropped(array))
    grey = npy(tmp_path / "grey.npy", array[..., 0])
    assert read_header(grey) == (10, 1, False)
    assert np.array_equal(read_image(grey, 10, "crop", 1).numpy(), cropped(array[..., :1]))


@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_npy_of_either_byte_order(tmp_path: Path, dtype: str) -> None:
    array = pixels(0, dtype=np.uint16, most=1 << 16)
    path = npy(tmp_path / "x.npy", array.astype(dtype))
    assert read_header(path).wide
    assert np.array_equal(read_image(path, 10, "crop", 5).numpy(), cropped(np.rint(array / 257).astype(np.uint8)))


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("kind", ["contiguous", "planar", "pages", "imagej", "tiled"])
def test_tiff_layouts(tmp_path: Path, kind: str, compression: str | None) -> None:
    array = pixels(0, (32, 32, 5))
    planes = np.moveaxis(array, 2, 0)
    path = tmp_path / "x.tif"
    options: dict[str, Any] = {"photometric": "minisblack", "compression": compression}
    if kind == "contiguous":
        tiff(path, array, planarconfig="contig", **options)
    elif kind == "planar":
        tiff(path, planes, planarconfig="separate", **options)
    elif kind == "pages":
        tiff(path, planes, **options)
    elif kind == "imagej":
        tiff(path, planes, imagej=True, metadata={"axes": "CYX"}, compression=compression)
    else:
        tiff(path, array, planarconfig="contig", tile=(16, 16), **options)
    assert read_header(path) == (32, 5, False)
    assert np.array_equal(read_image(path, 32, "crop", 5).numpy(), planes)


def test_four_bands_are_not_taken_for_transparency(tmp_path: Path) -> None:
    array = pixels(0, (10, 10, 4))
    path = tiff(tmp_path / "x.tif", array, photometric="minisblack", planarconfig="contig")
    assert read_header(path).channels == 4
    assert np.array_equal(read_image(path, 10, "crop", 4).numpy(), np.moveaxis(array, 2, 0))


def test_bands_beside_rgb_are_not_dropped(tmp_path: Path) -> None:
    array = pixels(0, (10, 10, 5))
    path = tiff(tmp_path / "x.tif", array, photometric="rgb", planarconfig="contig", extrasamples=(0, 0))
    assert read_header(path).channels == 5
    assert np.array_equal(read_image(path, 10, "crop", 5).numpy(), np.moveaxis(array, 2, 0))


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "P", "1"])
def test_ordinary_tiff_files_are_still_photos(tmp_path: Path, mode: str) -> None:
    picture = noise_image("x", (10, 10)).convert(mode)
    picture.save(tmp_path / "x.tif")
    channels = 1 if mode in {"L", "LA", "1"} else 3
    assert read_header(tmp_path / "x.tif") == (10, channels, False)
    read_image(tmp_path / "x.tif", 10, "crop", 3)


def test_lzw_photo_needs_no_further_package(tmp_path: Path) -> None:
    noise_image("x", (10, 10)).save(tmp_path / "x.tif", compression="tiff_lzw")
    assert np.array_equal(
        read_image(tmp_path / "x.tif", 10, "crop", 3).permute(1, 2, 0).numpy(), np.asarray(noise_image("x", (10, 10)))
    )


def test_16_bit_rgb_tiff(tmp_path: Path) -> None:
    array = pixels(0, (10, 10, 3), np.uint16, 4096)
    path = tiff(tmp_path / "x.tif", array, photometric="rgb")
    assert read_header(path) == (10, 3, True)
    found = read_image(path, 10, "crop", 3, white=4095)
    assert np.array_equal(found.permute(1, 2, 0).numpy(), np.rint(array * (255 / 4095)).astype(np.uint8))
    assert torch.equal(read_sent(path.read_bytes(), 10, "crop", 3, white=4095), found), "the same bytes, sent"
    with Image.open(path) as picture:  # Pillow keeps the upper 8 of its 16 bits
        with pytest.raises(
            Unreadable, match="16 bits a colour, of which Pillow keeps 8, and white is 4095: give the file"
        ):
            square_of_picture(picture, 10, "crop", 3, white=4095)
        with pytest.raises(Unreadable, match="it has 16 bits, and nothing says what is white"):
            pixels_of_picture(picture)
        full = square_of_picture(picture, 10, "crop", 3)
    assert (full.int() - read_image(path, 10, "crop", 3).int()).abs().max() <= 1


@pytest.mark.parametrize("fit", ["crop", "squash", "pad"])
def test_any_number_of_channels_is_resized_channel_by_channel(tmp_path: Path, fit: Any) -> None:
    array = pixels(0, (30, 40, 7))
    whole = read_image(npy(tmp_path / "x.npy", array), 16, fit, 7)
    for channel in range(7):
        alone = read_image(npy(tmp_path / "y.npy", array[..., channel]), 16, fit, 1)
        assert (whole[channel].int() - alone[0].int()).abs().max() <= 1


# ---- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((8, 8), np.float32), "its pixels are float32.*save it as uint8 or uint16"),
        (np.zeros((8, 8, 3), np.int64), "its pixels are int64"),
        (np.zeros((8, 8), bool), "its pixels are bool"),
        (np.zeros((8, 8), np.complex64), "its pixels are complex64"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"its shape is \(2, 8, 8, 3\); it must be H x W or H x W x C"),
        (np.zeros(8, np.uint8), r"its shape is \(8,\)"),
        (np.zeros((0, 8), np.uint8), "it is empty: 0 x 8"),
        (np.zeros((5, 64, 64), np.uint8), r"looks like C x H x W; save it as H x W x C"),
        (np.zeros((80, 80, 65), np.uint8), "65 channels, more than 64"),
        (np.array([[object()]]), "pixels are object"),
    ],
)
def test_npy_that_is_no_image(tmp_path: Path, array: np.ndarray, message: str) -> None:
    path = npy(tmp_path / "x.npy", array)
    for read in (lambda: read_header(path), lambda: read_image(path, 8, "crop", 1)):
        with pytest.raises(Unreadable, match=message):
            read()


def test_npy_that_promises_more_than_it_may(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (1_000_000, 1_000_000)}
    )
    (tmp_path / "x.npy").write_bytes(header.getvalue())
    with pytest.raises(Unreadable, match="is more than 268,435,455 values"):
        read_header(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x09\x00\x00\x00", b"PK\x03\x04"])
def test_npy_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(Unreadable):
        read_header(tmp_path / "x.npy")


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
@pytest.mark.parametrize("suffix", [".npy", ".tif", ".png"])
def test_pipe_is_refused_not_waited_for(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"x{suffix}")
    with pytest.raises(Unreadable, match="the file is empty"):
        read_header(tmp_path / f"x{suffix}")


def test_truncated_arrays(tmp_path: Path) -> None:
    for path in (npy(tmp_path / "x.npy", pixels(0)), tiff(tmp_path / "x.tif", pixels(0), photometric="minisblack", planarconfig="contig")):  # fmt: skip
        truncate(path, 0.7)
        with pytest.raises(Unreadable):
            read_image(path, 8, "crop", 5)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 5, 10, 10), np.uint8, "a stack of images"),
        ((70, 10, 10), np.uint8, "70 channels, more than 64"),
        ((5, 10, 10), np.float32, "its pixels are float32"),
    ],
)
def test_tiff_that_is_no_image(tmp_path: Path, shape: tuple[int, ...], dtype: Any, message: str) -> None:
    path = tiff(tmp_path / "x.tif", np.zeros(shape, dtype), photometric="minisblack")
    with pytest.raises(Unreadable, match=message):
        read_header(path)


def test_tiff_that_unpacks_to_more_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of 5 x 64 x 64, and a strip of zeros without end behind it."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)
    array = np.zeros((64, 64, 5), np.uint8)
    path = tiff(tmp_path / "x.tif", array, photometric="minisblack", planarconfig="contig", compression="zlib")
    assert read_image(path, 64, "crop", 5).max() == 0
    bomb = zlib.compress(bytes(10_000_000), 9)
    with tifffile.TiffFile(path) as file:
        offsets = file.pages[0].tags["StripOffsets"]
        counts = file.pages[0].tags["StripByteCounts"]
        assert len(file.pages[0].dataoffsets) == 1
    end = path.stat().st_size
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages[0].tags["StripOffsets"].overwrite((end,) if offsets.count > 1 else end)
        file.pages[0].tags["StripByteCounts"].overwrite((len(bomb),) if counts.count > 1 else len(bomb))
    with path.open("ab") as raw:
        raw.write(bomb)
    with pytest.raises(Unreadable, match="it unpacks to more than 600,000 bytes"):
        read_image(path, 64, "crop", 5)


def test_other_tiff_compressions_are_refused_by_name(tmp_path: Path) -> None:
    path = tiff(tmp_path / "x.tif", pixels(0), photometric="minisblack", planarconfig="contig", compression="lzma")
    with pytest.raises(Unreadable, match=r"its compression is LZMA \(accepted: ADOBE_DEFLATE, "):
        read_header(path)


def test_other_channel_counts_do_not_convert(tmp_path: Path) -> None:
    noise_image("x").save(tmp_path / "x.png")
    npy(tmp_path / "x.npy", pixels(0))
    with pytest.raises(Unreadable, match="it has 5 channels, 3 are asked for"):
        read_image(tmp_path / "x.npy", 8, "crop", 3)
    with pytest.raises(Unreadable, match="it has 3 channels, 5 are asked for"):
        read_image(tmp_path / "x.png", 8, "crop", 5)


# ---- sets --------------------------------------------------------------------------------------------


def folder_of(root: Path, channels: int, dtype: Any = np.uint8, most: int = 256, count: int = 12) -> Path:
    for klass in ("a", "b"):
        (root / klass).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            npy(
                root / klass / f"{number:02d}.npy",
                pixels(number + (klass == "b") * 99, (10, 12, channels), dtype, most),
            )
    return root


def test_a_set_of_five_channels(tmp_path: Path) -> None:
    source = open_source(str(folder_of(tmp_path, 5)))
    assert source.channels == 5
    images = source.load(10, "crop", 5)
    assert images.images_NCSS.shape == (24, 5, 10, 10)
    assert np.array_equal(images.images_NCSS[torch.tensor([3])][0].numpy(), cropped(pixels(3)))


def test_mixed_channel_counts_say_which_files_have_which(tmp_path: Path) -> None:
    folder_of(tmp_path, 5)
    npy(tmp_path / "a" / "other.npy", pixels(0, (10, 12, 4)))
    noise_image("x").save(tmp_path / "b" / "photo.png")
    with pytest.raises(DataError) as error:
        open_source(str(tmp_path))
    first, *lines = str(error.value).splitlines()
    assert "differ in their channels" in first
    assert lines == [
        f"  3 channels: 1 file, {Path('b', 'photo.png')}",
        f"  4 channels: 1 file, {Path('a', 'other.npy')}",
        f"  5 channels: 24 files, {Path('a', '00.npy')}, {Path('a', '01.npy')}, {Path('a', '02.npy')}, ...",
    ]


def test_grey_and_colour_mix_whatever_they_are_stored_in(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 2, "b": 2})
    npy(tmp_path / "a" / "grey.npy", pixels(0, (12, 12)))
    npy(tmp_path / "a" / "colour.npy", pixels(0, (12, 12, 3)))
    source = open_source(str(tmp_path))
    assert source.channels == 3
    assert source.load(12, "crop", 1).images_NCSS.shape == (6, 1, 12, 12)


@pytest.mark.parametrize(("has", "asked"), [(5, 3), (5, 1), (3, 5), (1, 2)])
def test_asking_for_other_channels_is_refused(tmp_path: Path, has: int, asked: int) -> None:
    for source in (folder_of(tmp_path, has), write_npz(tmp_path / "x.npz", channels=has)):
        with pytest.raises(UsageError, match=f"--in-chans {asked}: the images of .* have {has} channel"):
            open_source(str(source)).load(10, "crop", asked)


@pytest.mark.parametrize("channels", [2, 5])
def test_npz_of_any_channel_count(tmp_path: Path, channels: int) -> None:
    source = open_source(str(write_npz(tmp_path / "x.npz", channels=channels)))
    assert source.channels == channels
    with np.load(tmp_path / "x.npz") as arrays:
        found = source.load(8, "crop", channels).images_NCSS[torch.arange(20)]
        assert np.array_equal(found.permute(0, 2, 3, 1).numpy(), arrays["x_train"])


# ---- white -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peak", "white"), [(90, 255), (255, 255), (256, 511), (4000, 4095), (4096, 8191), (65535, 65535)]
)
def test_white_is_the_bit_depth_that_the_files_use(tmp_path: Path, peak: int, white: int) -> None:
    for klass in ("a", "b"):
        (tmp_path / klass).mkdir()
        for number in range(3):
            array = np.full((8, 8), peak if (klass, number) == ("b", 1) else 7, np.uint16)
            Image.fromarray(array).save(tmp_path / klass / f"{number}.png")
    source = open_source(str(tmp_path))
    assert source.white == white
    images = source.load(8, "crop", 1).images_NCSS[torch.arange(6)]
    assert images.max() == round(peak * 255 / white)


def test_12_bits_keep_their_levels_and_their_brightness_to_each_other(tmp_path: Path) -> None:
    folder_of(tmp_path, 1, np.uint16, 4096)
    images = open_source(str(tmp_path)).load(10, "crop", 1).images_NCSS[torch.arange(24)]
    assert len(images.unique()) > 250


def test_8_bit_sets_have_no_white_to_measure(tmp_path: Path) -> None:
    source = open_source(str(make_folder(tmp_path, {"a": 2, "b": 2})))
    assert (len(source.wide), source.white) == (0, 65535)


def test_8_bit_files_among_16_stay_as_they_are(tmp_path: Path) -> None:
    folder_of(tmp_path, 1, np.uint16, 1024)
    npy(tmp_path / "a" / "zz.npy", np.full((10, 10), 200, np.uint8))
    images = open_source(str(tmp_path)).load(10, "crop", 1)
    row = images.files.index(str(Path("a", "zz.npy")))
    assert images.images_NCSS[torch.tensor([row])].unique().tolist() == [200]


def test_white_is_measured_anew_when_a_file_changes(tmp_path: Path) -> None:
    folder_of(tmp_path, 1, np.uint16, 1000)
    assert open_source(str(tmp_path)).white == 1023
    npy(tmp_path / "a" / "00.npy", np.full((10, 12), 5000, np.uint16))
    assert open_source(str(tmp_path)).white == 8191


# ---- the whole way -----------------------------------------------------------------------------------


def test_train_predict_evaluate_with_five_channels_of_12_bits(tmp_path: Path) -> None:
    """The model's own white scales what it predicts, however bright that is."""
    for klass, scale in (("dark", 0.4), ("light", 1.0)):
        (tmp_path / "set" / klass).mkdir(parents=True)
        for number in range(16):
            array = (pixels(number, (16, 16, 5), np.float64, 4096) * scale).astype(np.uint16)
            if number % 2:
                npy(tmp_path / "set" / klass / f"{number}.npy", array)
            else:
                tiff(tmp_path / "set" / klass / f"{number}.tif", array, photometric="minisblack", planarconfig="contig")
    settings = {"augment.brightness": 0.1, "augment.hue": 0.1, "augment.saturation": 0.1, "augment.erase": 0.1}
    run = api.train(
        tmp_path / "set", out=tmp_path / "run", model="vit_pico", epochs=2, threads=1, settings=settings,
        show_progress=False,
    )  # fmt: skip
    data = run.recipe.data
    assert (data.in_chans, data.white, len(data.mean), len(data.std)) == (5, 4095, 5, 5)
    assert (tmp_path / "run" / "report.html").is_file()
    found = api.predict(run.path, [tmp_path / "set"])
    assert len(found) == 32
    assert not [item.problem for item in found if item.problem]
    (dim,) = api.predict(run.path, tmp_path / "set" / "dark" / "1.npy")  # alone, its own bit depth would be 11
    assert dim == next(item for item in found if item.file == dim.file)
    noise_image("x").save(tmp_path / "photo.png")
    assert api.predict(run.path, tmp_path / "photo.png")[0].problem == "it has 3 channels, 5 are asked for"
    assert api.evaluate(run.path, "all", data=tmp_path / "set")["n"] == 32
    tested = load_file(run.path / "predictions.safetensors")
    files = open_source(str(tmp_path / "set")).load(data.cache_size, data.fit, 5).files
    for row, probabilities in zip(tested["rows"].tolist(), tested["probabilities"], strict=True):
        (alone,) = api.predict(run.path, tmp_path / "set" / files[row])  # the same pixels as in training
        assert alone.probability == pytest.approx(float(probabilities.max()), abs=1e-5)
