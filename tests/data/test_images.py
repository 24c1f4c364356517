"""One file -> one square uint8 tensor, whatever its mode; and what is refused, with the reason."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import forged_png, noise_image, truncate
from smallvit.data.images import Unreadable, fit_square, many_reads, read_header, read_image, square_of_picture

RED = (200, 30, 40)


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def colours(path: Path, channels: int = 3) -> list[int]:
    """The mean of each channel, rounded."""
    return read_image(path, 8, "crop", channels).float().mean((1, 2)).round().int().tolist()


# ---- modes -------------------------------------------------------------------------------------------


def test_rgb_pixels_arrive_unchanged(tmp_path: Path) -> None:
    image = noise_image("x", (9, 9))
    found = read_image(saved(tmp_path / "x.png", image), 9, "crop", 3)
    assert found.dtype == torch.uint8
    assert np.array_equal(found.permute(1, 2, 0).numpy(), np.asarray(image))


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA"])
def test_a_picture_of_the_asked_size_is_taken_as_a_file_and_left_as_it_was(tmp_path: Path, mode: str) -> None:
    """Files of the right size take a shorter way, and are turned in place; a picture of the caller's must not be."""
    exif = Image.Exif()
    exif[274] = 6  # turned by a quarter
    path = saved(tmp_path / "x.png", noise_image("x", (9, 9)).convert(mode), exif=exif)
    upright = np.asarray(Image.open(path).convert("RGB").transpose(Image.Transpose.ROTATE_270))
    with Image.open(path) as picture:
        before = np.asarray(picture).copy()
        found = square_of_picture(picture, 9, "crop", 3)
        assert picture.getexif()[274] == 6 and np.array_equal(np.asarray(picture), before)
    assert found.is_contiguous() and torch.equal(found, read_image(path, 9, "crop", 3))
    assert np.array_equal(found.permute(1, 2, 0).numpy(), upright)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "tif", "webp", "ppm"])
def test_every_format_gives_the_colour_back(tmp_path: Path, suffix: str) -> None:
    path = saved(tmp_path / f"x.{suffix}", Image.new("RGB", (16, 16), RED))
    assert np.allclose(colours(path), RED, atol=4)


def test_palette_image_is_its_colours_not_its_indices(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.png", Image.new("RGB", (8, 8), RED).convert("P", palette=Image.Palette.ADAPTIVE))
    assert Image.open(path).mode == "P"
    assert np.allclose(colours(path), RED, atol=2)


def test_cmyk_is_converted(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.jpg", Image.new("CMYK", (16, 16), (0, 255, 255, 0)), quality=95)
    red, green, blue = colours(path)
    assert red > 200
    assert green < 60
    assert blue < 60


def test_transparent_pixels_are_paper_not_what_lies_below(tmp_path: Path) -> None:
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))  # a black drawing on transparent black would else be all black
    image.paste((0, 0, 0, 255), (0, 0, 4, 8))
    found = read_image(saved(tmp_path / "x.png", image), 8, "crop", 3)
    assert found[:, :, :4].max() == 0
    assert found[:, :, 4:].min() == 255


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_opaque_alpha_changes_nothing(tmp_path: Path, mode: str) -> None:
    plain = noise_image("x", (8, 8), "RGB" if mode == "RGBA" else "L")
    with_alpha, without = saved(tmp_path / "a.png", plain.convert(mode)), saved(tmp_path / "b.png", plain)
    assert torch.equal(read_image(with_alpha, 8, "crop", 3), read_image(without, 8, "crop", 3))


def test_transparent_palette_entry_is_paper_and_warns_nobody(tmp_path: Path) -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, *RED])
    path = saved(tmp_path / "x.png", image, transparency=b"\x00\x00")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert colours(path) == [255, 255, 255]


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (0x80FF, 0x80), (0xFFFF, 0xFF)])
def test_16_bits_keep_their_upper_byte(tmp_path: Path, value: int, expected: int) -> None:
    for suffix in ("png", "tif"):
        path = saved(tmp_path / f"x.{suffix}", Image.fromarray(np.full((8, 8), value, dtype=np.uint16)))
        assert colours(path, channels=1) == [expected]
        assert colours(path, channels=3) == [expected] * 3


def test_bilevel_is_black_and_white(tmp_path: Path) -> None:
    image = Image.new("1", (8, 8), 0)
    image.paste(1, (0, 0, 8, 4))
    found = read_image(saved(tmp_path / "x.png", image), 8, "crop", 1)
    assert found[:, :4].unique().tolist() == [255]
    assert found[:, 4:].unique().tolist() == [0]


@pytest.mark.parametrize("pixels", [np.full((8, 8), 0.5, np.float32), np.full((8, 8), 1 << 20, np.int32)])
def test_pixels_of_unknown_range_are_refused_not_clipped(tmp_path: Path, pixels: np.ndarray) -> None:
    with pytest.raises(Unreadable, match="8 or 16"):
        read_image(saved(tmp_path / "x.tif", Image.fromarray(pixels)), 8, "crop", 1)


def test_grey_and_colour_convert_into_each_other(tmp_path: Path) -> None:
    assert colours(saved(tmp_path / "grey.png", Image.new("L", (8, 8), 77)), channels=3) == [77, 77, 77]
    assert colours(saved(tmp_path / "red.png", Image.new("RGB", (8, 8), (255, 0, 0))), channels=1) == [76]  # luma


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (16, 16))
    image.paste((255, 255, 255), (0, 0, 16, 8))  # white above
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: turn 90 degrees clockwise to see it
    found = read_image(saved(tmp_path / "x.jpg", image, exif=exif, quality=95), 16, "crop", 1)[0].float()
    assert found[:, 9:].mean() > 240
    assert found[:, :7].mean() < 15


# ---- the header --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("1", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3), ("P", 3)])
def test_header_tells_side_and_channels(tmp_path: Path, mode: str, channels: int) -> None:
    assert read_header(saved(tmp_path / "x.png", Image.new(mode, (30, 20)))) == (20, channels, False)


def test_16_bit_header_is_grey_and_wide(tmp_path: Path) -> None:
    for suffix in ("png", "tif"):
        path = saved(tmp_path / f"x.{suffix}", Image.fromarray(np.zeros((8, 9), np.uint16)))
        assert read_header(path) == (8, 1, True)


# ---- fit ---------------------------------------------------------------------------------------------


def thirds() -> torch.Tensor:
    """1 x 10 x 30: black, grey 100, white 200 from left to right."""
    return torch.tensor([0, 100, 200], dtype=torch.uint8).repeat_interleave(10).expand(1, 10, 30)


def test_crop_keeps_the_middle() -> None:
    assert fit_square(thirds(), 10, "crop").unique().tolist() == [100]
    assert fit_square(thirds().transpose(1, 2), 10, "crop").unique().tolist() == [100]


def test_squash_keeps_all_of_it() -> None:
    found = fit_square(thirds(), 30, "squash")
    assert found.shape == (1, 30, 30)
    assert torch.equal(found[0, 0], thirds()[0, 0])
    assert torch.equal(found[0, 29], thirds()[0, 0])


def test_pad_keeps_all_of_it_and_adds_black_equally() -> None:
    found = fit_square(thirds(), 30, "pad")
    assert torch.equal(found[:, 10:20], thirds())
    assert found[:, :10].max() == 0
    assert found[:, 20:].max() == 0


@pytest.mark.parametrize("fit", ["crop", "squash", "pad"])
@pytest.mark.parametrize("shape", [(7, 7), (5, 11), (11, 5), (1, 40), (40, 1), (1, 1)])
def test_any_shape_becomes_a_square(fit: str, shape: tuple[int, int]) -> None:
    image = torch.full((3, *shape), 90, dtype=torch.uint8)
    found = fit_square(image, 8, fit)  # type: ignore[arg-type]
    assert found.shape == (3, 8, 8)
    assert found.is_contiguous()
    assert found.max() == 90


def test_a_long_strip_is_padded_without_a_square_of_its_length() -> None:
    strip = torch.full((1, 2, 400_000), 90, dtype=torch.uint8)  # squared: 160 GB
    assert fit_square(strip, 8, "pad").sum(1).max() == 90


def test_making_an_image_smaller_averages() -> None:
    board = (torch.arange(64)[:, None] + torch.arange(64)) % 2 * 255
    assert (fit_square(board.byte()[None], 8, "crop").int() - 127).abs().max() <= 2


def test_large_jpeg_is_decoded_small_but_looks_the_same(tmp_path: Path) -> None:
    gradient = torch.arange(256, dtype=torch.uint8).repeat_interleave(4).expand(1024, 1024)
    path = saved(tmp_path / "x.jpg", Image.fromarray(gradient.numpy()), quality=95)
    whole = fit_square(torch.from_numpy(np.array(Image.open(path)))[None], 16, "crop")
    assert (read_image(path, 16, "crop", 1).int() - whole.int()).abs().max() <= 3


# ---- what is refused ---------------------------------------------------------------------------------


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "x.png").touch()
    with pytest.raises(Unreadable, match="the file is empty"):
        read_image(tmp_path / "x.png", 8, "crop", 3)


def test_missing_file_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as error:
        read_image(tmp_path / "x.png", 8, "crop", 3)
    assert str(error.value) == "No such file or directory"  # whoever lists it writes the path beside it


def test_text_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_text("not an image at all")
    with pytest.raises(Unreadable, match="not a readable image"):
        read_image(tmp_path / "x.png", 8, "crop", 3)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".tif", ".webp"])
def test_truncated_file(tmp_path: Path, suffix: str) -> None:
    path = truncate(saved(tmp_path / f"x{suffix}", noise_image("x", (64, 64))))
    with pytest.raises(Unreadable):
        read_image(path, 8, "crop", 3)


def test_formats_that_are_not_listed_are_refused_whatever_their_name(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")  # Pillow would start Ghostscript for it
    with pytest.raises(Unreadable, match="not a readable image"):
        read_image(path, 8, "crop", 3)


@pytest.mark.parametrize("side", [10_000, 40_000])  # Pillow warns of the first and refuses the second
def test_bombs_are_refused_quietly_before_they_unpack(tmp_path: Path, side: int) -> None:
    path = forged_png(tmp_path / "x.png", side, side)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with many_reads(), pytest.raises(Unreadable, match="more than 89,478,485 pixels"):
            read_image(path, 8, "crop", 1)
        with many_reads(), pytest.raises(Unreadable, match="more than 89,478,485 pixels"):
            read_header(path)
