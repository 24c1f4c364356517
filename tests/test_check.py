"""`smallvit check`: every finding is there when its cause is planted, and not on a clean set."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

import smallvit
from helpers import forged_png, run_here, shared_data, truncate, write_npz
from smallvit.checking.check import CheckReport
from smallvit.checking.near_duplicates import search as duplicates
from smallvit.checking.near_duplicates.search import LAST, connected, find_duplicates, scan
from smallvit.checking.rules import FEW_IMAGES, RULES
from smallvit.data.images import fit_square
from smallvit.data.sources import open_source
from smallvit.errors import DataError, UsageError

SIDE = 48


@pytest.fixture(autouse=True)
def frugal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A short measurement, and one thread: tests run beside each other, and threads that wait for each other are slow."""
    monkeypatch.setattr("smallvit.training.budget.MEASURED_SECONDS", 0.05)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- pictures made on the spot -----------------------------------------------------------------------


def texture(seed: str, size: tuple[int, int] = (SIDE, SIDE)) -> Image.Image:
    """As in a photo: light and colour at every scale, less of it at the finer ones. `size` is width, height."""
    draw = np.random.default_rng(list(seed.encode()))
    pixels = np.full((size[1], size[0], 3), draw.integers(60, 190, 3), dtype=float)

    def field(cells: int, channels: int) -> np.ndarray:
        coarse = Image.fromarray(draw.integers(0, 256, (cells, cells, channels), dtype=np.uint8).squeeze())
        return (
            np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), dtype=float).reshape(*size[::-1], channels) - 128
        )

    for cells in (2, 4, 8, 16, 32):
        pixels += field(cells, 1) * 1.2 / cells**0.5 + field(cells, 3) * 0.6 / cells
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def jpeg(quality: int) -> Callable[[Image.Image], Image.Image]:
    def encode(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file).convert("RGB")

    return encode


def crop(left: float, top: float, right: float, bottom: float) -> Callable[[Image.Image], Image.Image]:
    """Shares of the side that are cut off."""

    def cut(image: Image.Image) -> Image.Image:
        width, height = image.size
        return image.crop(
            (round(width * left), round(height * top), round(width * (1 - right)), round(height * (1 - bottom)))
        )

    return cut


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "jpeg": jpeg(40),
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS),
    "larger": lambda image: image.resize((image.width * 2, image.height * 2), Image.Resampling.BICUBIC),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.6),
    "less contrast": lambda image: ImageEnhance.Contrast(image).enhance(0.6),
    "pale": lambda image: ImageEnhance.Color(image).enhance(0.3),
    "mirrored": ImageOps.mirror,
    "upside down": ImageOps.flip,
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(0.7)),
    "cropped": crop(0.05, 0.05, 0.05, 0.05),
    "cropped at a corner": crop(0.0, 0.1, 0.1, 0.0),
    "turned": lambda image: crop(0.06, 0.06, 0.06, 0.06)(image.rotate(3, Image.Resampling.BICUBIC)),
    "mirrored, cropped, jpeg": lambda image: jpeg(60)(crop(0.04, 0.06, 0.06, 0.02)(ImageOps.mirror(image))),
}


def square(image: Image.Image, side: int = SIDE) -> Tensor:
    return fit_square(torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1), side, "squash")


def stack(images: list[Image.Image]) -> Tensor:
    return torch.stack([square(image) for image in images])


@pytest.fixture(scope="module")
def textures() -> list[Image.Image]:
    return [texture(f"clean {number}") for number in range(60)]


# ---- copies ------------------------------------------------------------------------------------------


def test_different_pictures_are_no_copies(textures: list[Image.Image]) -> None:
    found = find_duplicates(scan(stack(textures)))
    assert found.groups == []
    assert found.rung == 0


@pytest.mark.parametrize("kind", COPIES)
def test_a_changed_copy_is_found_and_nothing_else(textures: list[Image.Image], kind: str) -> None:
    copied = (3, 17, 42)
    images = stack([*textures, *(COPIES[kind](textures[row]) for row in copied)])
    found = find_duplicates(scan(images))
    assert found.groups == [[row, len(textures) + number] for number, row in enumerate(copied)]
    assert found.exact == []
    assert {pair.mirrored for pair in found.near} == {"mirrored" in kind or "upside" in kind}


def test_identical_pictures_are_exact(textures: list[Image.Image]) -> None:
    found = find_duplicates(scan(stack([*textures, textures[5], textures[5]])))
    assert found.exact == found.groups == [[5, 60, 61]]
    assert found.near == []


def test_a_near_copy_joins_the_group_of_identical_ones(textures: list[Image.Image]) -> None:
    found = find_duplicates(scan(stack([*textures, textures[5], jpeg(40)(textures[5])])))
    assert found.exact == [[5, 60]]
    assert found.groups == [[5, 60, 61]]


def test_blank_pictures_are_copies_of_nothing(textures: list[Image.Image]) -> None:
    flat = [Image.new("RGB", (SIDE, SIDE), colour) for colour in ("black", "black", "white", (127, 127, 128))]
    looked = scan(stack([*textures[:10], *flat]))
    assert looked.blank_N.nonzero()[:, 0].tolist() == [10, 11, 12, 13]
    assert find_duplicates(looked).groups == []


def test_noise_on_nothing_is_no_copy(textures: list[Image.Image]) -> None:
    draw = np.random.default_rng(0)
    dark = [Image.fromarray(draw.integers(8, 14, (SIDE, SIDE, 3), dtype=np.uint8)) for _ in range(8)]
    assert find_duplicates(scan(stack([*textures[:10], *dark]))).groups == []


def test_the_same_outline_is_no_copy(textures: list[Image.Image]) -> None:
    """Trousers on a sheet: a strong common shape, different cloth."""
    mask = Image.new("L", (SIDE, SIDE), 0)
    mask.paste(255, (14, 4, 34, 44))
    paper = Image.new("RGB", (SIDE, SIDE), "white")
    cloth = [Image.composite(ImageEnhance.Brightness(image).enhance(0.5), paper, mask) for image in textures]
    assert find_duplicates(scan(stack(cloth))).groups == []


def test_a_common_frame_is_no_copy(textures: list[Image.Image]) -> None:
    """Microscopes and scanners: the same border and scale bar in every picture."""
    frame = texture("frame")
    for image in (framed := [image.copy() for image in textures]):
        strip = frame.crop((0, 0, SIDE, 8))
        image.paste(strip, (0, 0))
        image.paste(strip, (0, SIDE - 8))
    assert find_duplicates(scan(stack(framed))).groups == []


def test_pictures_that_are_all_alike_are_no_copies(textures: list[Image.Image]) -> None:
    """The same part in the same place, as a factory's camera sees it; one specimen was filed twice."""
    part = texture("part")
    specimens = [Image.blend(part, image, 0.12) for image in textures]
    found = find_duplicates(scan(stack([*specimens, jpeg(95)(specimens[8])])))
    assert found.rung == LAST
    assert found.groups == [[8, 60]]


def test_flipped_copies_do_not_pass_for_chance(textures: list[Image.Image]) -> None:
    """Half of a set that was augmented on disk is upside down: its other copies must still be found."""
    changed = crop(0.05, 0.0, 0.0, 0.05)
    images = [*textures[:30], *(jpeg(50)(changed(ImageOps.flip(image))) for image in textures[:30])]
    found = find_duplicates(scan(stack([*images, *(jpeg(50)(changed(image)) for image in textures[:30])])))
    assert found.rung == 0
    assert found.groups == [[row, 30 + row, 60 + row] for row in range(30)]


def test_drawings_count_only_when_nearly_identical() -> None:
    digits = open_source("mnist5k").load(28, "crop", 1).images_NCSS[torch.arange(0, 5000, 4)]
    brighter = (digits[:3].float() * 0.8).byte()
    found = find_duplicates(scan(torch.cat([digits, brighter])))  # type: ignore[list-item]
    assert found.rung == LAST
    assert found.groups == [[row, len(digits) + row] for row in range(3)]


def test_tiny_pictures_are_compared_exactly_only() -> None:
    digits = open_source("digits").load(8, "crop", 1).images_NCSS
    found = find_duplicates(scan(torch.cat([digits, digits[7:8]])))  # type: ignore[index,list-item]
    assert found.rung is None
    assert found.groups == [[7, 1797]]


def test_near_copies_can_be_left_out(textures: list[Image.Image]) -> None:
    images = stack([*textures[:5], jpeg(40)(textures[0]), textures[1]])
    found = find_duplicates(scan(images, near=False))
    assert found.rung is None
    assert found.groups == [[1, 6]]


def test_a_large_set_is_searched_for_whole_pictures(
    textures: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "MOST_FOR_CROPS", 10)
    assert find_duplicates(scan(stack([*textures, jpeg(40)(textures[9])]))).groups == [[9, 60]]
    monkeypatch.setattr(duplicates, "MOST_PICTURES", 20)
    assert find_duplicates(scan(stack([*textures, jpeg(40)(textures[9])]))).rung is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_pictures(textures: list[Image.Image], count: int) -> None:
    assert find_duplicates(scan(stack(textures[:count]))).groups == []


def test_any_number_of_channels(textures: list[Image.Image]) -> None:
    images = stack([*textures[:20], jpeg(40)(textures[4])])
    five = torch.cat([images, images[:, :2].flip(1)], 1)
    assert find_duplicates(scan(five)).groups == [[4, 20]]


def test_connected() -> None:
    assert connected([(1, 2), (5, 6), (2, 9), (6, 7), (9, 1)]) == [[1, 2, 9], [5, 6, 7]]
    assert connected([]) == []


# ---- findings on folders -----------------------------------------------------------------------------


def fill(root: Path, classes: dict[str, int], size: tuple[int, int] = (32, 32), suffix: str = ".png") -> Path:
    for name, count in classes.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            texture(f"{name} {number}", size).save(root / name / f"{number:03d}{suffix}")
    return root


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Big enough for nothing to be wrong: 500 images, 100 to test on."""
    return fill(tmp_path_factory.mktemp("clean"), {"a": 250, "b": 250})


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = {"train": 30, "val": 10, "test": 50}
    counts = {f"{part}/{name}": count for part, count in parts.items() for name in ("cat", "dog")}
    return fill(tmp_path_factory.mktemp("parted"), counts)


@pytest.fixture
def own(parted: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the set with parts, to be spoilt."""
    yield shutil.copytree(parted, tmp_path / "set")


def checked(data: str | Path, **flags: object) -> CheckReport:
    return smallvit.check(data, show_progress=False, **{"fast": True, "model": "vit_pico", **flags})  # type: ignore[arg-type]


def codes(report: CheckReport) -> set[str]:
    return {problem.code for problem in report.problems} - {"near-not-searched"}


def only(report: CheckReport, code: str) -> smallvit.checking.rules.Problem:  # type: ignore[name-defined]
    found = [problem for problem in report.problems if problem.code == code]
    assert len(found) == 1, [problem.message for problem in report.problems]
    return found[0]


def test_clean_sets_have_no_problems(clean: Path, parted: Path) -> None:
    report = checked(clean, fast=False)
    assert report.problems == ()
    assert report.ok
    assert report.facts["images"] == 500
    assert report.facts["classes"]["a"] == {"all": 250, "train": 170, "val": 30, "test": 50}
    assert report.recipe is not None
    assert report.seconds is not None and report.seconds > 0
    assert codes(checked(parted)) == set()


def test_the_recipe_is_the_one_that_train_would_use(parted: Path) -> None:
    from smallvit.api import make_recipe
    from smallvit.planning.plan import make_plan

    report = checked(parted, img_size=24, settings={"optimizer.weight_decay": 0.2})
    planned = make_plan(
        make_recipe(data=parted, model="vit_pico", img_size=24, settings={"optimizer.weight_decay": 0.2})
    )
    assert report.recipe == planned.recipe
    assert list(report.choices) == planned.choices


def test_every_rule_is_tested_here() -> None:
    text = Path(__file__).read_text()
    assert [code for code in RULES if f'"{code}"' not in text] == []


@pytest.mark.parametrize(("one", "other"), [("train", "test"), ("train", "val"), ("val", "test")])
def test_the_same_file_in_two_parts_is_a_leak(own: Path, one: str, other: str) -> None:
    shutil.copy(own / one / "cat" / "004.png", own / other / "cat" / "x.png")
    report = checked(own)
    leak = only(report, "leak")
    assert not report.ok
    assert leak.files == (f"{other}/cat/x.png = {one}/cat/004.png",)
    total = {"val": 21, "test": 101}[other]
    assert leak.message.startswith(f"1 of {total} {'validation' if other == 'val' else 'test'} images is")
    assert "1 identical, 0 nearly" in leak.message


def test_a_near_copy_in_two_parts_is_a_leak(own: Path) -> None:
    image = Image.open(own / "train" / "cat" / "004.png")
    jpeg(50)(crop(0.05, 0.0, 0.05, 0.0)(image)).save(own / "test" / "cat" / "x.jpg")
    leak = only(checked(own, fast=False), "leak")
    assert leak.files == ("test/cat/x.jpg ~ train/cat/004.png",)
    assert "0 identical, 1 nearly" in leak.message
    assert "Remove" in leak.advice
    assert codes(checked(own)) == set()  # what --fast leaves out


def test_copies_leak_through_a_split_that_smallvit_makes(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    for number in range(40):
        shutil.copy(root / "a" / f"{number:03d}.png", root / "a" / f"copy{number}.png")
    report = checked(root)
    leaks = [problem for problem in report.problems if problem.code == "leak"]
    assert leaks
    assert "smallvit divides this set itself" in leaks[0].advice
    assert "bursts" in leaks[0].advice
    assert len(report.duplicates) == 40


def test_copies_within_a_part_are_a_warning(own: Path) -> None:
    for number in range(3):
        shutil.copy(own / "train" / "cat" / f"{number:03d}.png", own / "train" / "cat" / f"x{number}.png")
    Image.open(own / "train" / "dog" / "001.png").save(own / "train" / "dog" / "same.bmp")
    report = checked(own)
    found = only(report, "duplicates")
    assert report.ok
    assert found.files[0] == "train/cat/000.png = train/cat/x0.png"
    assert found.message.startswith("4 images are")
    assert "3 files are byte for byte the same" in found.message


def test_one_picture_under_two_labels(own: Path) -> None:
    shutil.copy(own / "train" / "cat" / "004.png", own / "train" / "dog" / "x.png")
    report = checked(own)
    assert only(report, "many-conflicts").files == ("train/cat/004.png = train/dog/x.png",)
    assert not report.ok
    assert "duplicates" not in codes(report)  # once is enough


def test_a_copy_beside_a_conflict(own: Path) -> None:
    shutil.copy(own / "train" / "cat" / "004.png", own / "train" / "dog" / "x.png")
    shutil.copy(own / "train" / "cat" / "005.png", own / "train" / "cat" / "y.png")
    report = checked(own)
    assert only(report, "many-conflicts").files == ("train/cat/004.png = train/dog/x.png",)
    assert only(report, "duplicates").files == ("train/cat/005.png = train/cat/y.png",)
    assert "1 file is byte for byte the same" in only(report, "duplicates").message


def test_one_picture_under_two_labels_in_a_large_set_is_a_warning(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    shutil.copy(root / "a" / "004.png", root / "b" / "x.png")
    found = only(checked(root), "conflicts")
    assert "1 picture is there under different labels (2 images" in found.message


def test_one_class(tmp_path: Path) -> None:
    report = checked(fill(tmp_path, {"cat": 12}))
    assert "cat" in only(report, "one-class").message
    assert "unusable" not in codes(report)
    assert report.recipe is None
    assert not report.ok


def test_a_class_without_training_images(own: Path) -> None:
    fill(own, {"test/bird": 3})
    report = checked(own)
    assert "bird" in only(report, "untrained-class").message
    assert not report.ok


def test_whatever_stops_training_is_an_error(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    fill(root, {"lonely": 1})
    report = checked(root)
    assert "'lonely'" in only(report, "unusable").message
    assert report.facts["images"] == 501  # the rest of the report is there


def test_a_few_broken_files_are_a_warning(own: Path) -> None:
    (own / "train" / "cat" / "empty.png").write_bytes(b"")
    truncate(own / "test" / "dog" / "003.png")
    forged_png(own / "train" / "dog" / "huge.png", 60_000, 60_000)
    report = checked(own)
    found = only(report, "unreadable")
    assert report.ok
    assert "3 of 182 files are not readable" in found.message
    assert all(kind in found.message for kind in ("1 empty", "1 damaged", "1 too large"))
    assert {line.split(":")[0] for line in found.files} == {
        "train/cat/empty.png",
        "test/dog/003.png",
        "train/dog/huge.png",
    }


@pytest.mark.parametrize("damage", [truncate, lambda path: path.write_bytes(b"")])
def test_many_broken_files_are_an_error(own: Path, damage: Callable[[Path], object]) -> None:
    """Empty files show in their headers, truncated ones when they are decoded."""
    for number in range(12):
        damage(own / "train" / "cat" / f"{number:03d}.png")
    report = checked(own)
    found = only(report, "many-unreadable")
    assert len(found.files) == 12
    assert "unusable" not in codes(report)
    assert not report.ok


def test_few_images_and_imbalance(clean: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clean, tmp_path / "set")
    fill(root, {"rare": 8})
    report = checked(root)
    assert "rare (5)" in only(report, "few-images").message
    assert "a has 170 training images, 34 times as many as rare (5)" in only(report, "imbalance").message
    assert report.ok
    assert codes(checked(clean, per_class=FEW_IMAGES)) == set()


def test_the_part_that_judges(clean: Path, tmp_path: Path) -> None:
    small = only(checked(fill(tmp_path, {"a": 100, "b": 100})), "small-test")
    assert "the test part has 40 images" in small.message
    assert "15 points" in small.message
    assert codes(checked(clean, test="none", val="none")) == {"no-test"}


def test_sizes_shapes_and_enlarging(tmp_path: Path) -> None:
    root = fill(tmp_path, {"a": 30, "b": 30}, size=(200, 80))
    fill(root, {"c": 30}, size=(16, 16))
    report = checked(root, img_size=64)
    assert "from 16 to 80 px" in only(report, "sizes").message
    assert "60 of 90 images (67 %)" in only(report, "shapes").message
    assert "30 of 90 images" in only(report, "enlarged").message
    assert {"sizes", "shapes", "enlarged"} & codes(checked(root, fit="pad", img_size=16)) == {"sizes"}


def test_grey_among_colour(own: Path) -> None:
    for number in range(4):
        path = own / "train" / "cat" / f"{number:03d}.png"
        Image.open(path).convert("L").save(path)
    found = only(checked(own), "mixed-colour")
    assert "4 of 180 images are grey" in found.message
    assert "4 in cat" in found.message
    assert codes(checked(own, in_chans=1)) == set()


def test_grey_stored_as_colour(own: Path) -> None:
    for path in own.rglob("*.png"):
        Image.open(path).convert("L").convert("RGB").save(path)
    assert codes(checked(own)) == {"stored-colour"}


def test_blank_images(own: Path) -> None:
    for part in ("train", "test"):
        Image.new("RGB", (32, 32), "black").save(own / part / "dog" / "black.png")
    report = checked(own)
    assert codes(report) == {"blank"}
    assert only(report, "blank").files == ("test/dog/black.png", "train/dog/black.png")


def test_patches_that_are_too_large(parted: Path) -> None:
    report = checked(parted, settings={"model.kwargs.patch_size": 16})
    assert "32 px images as 2 x 2 cells" in only(report, "few-tokens").message
    assert codes(checked(parted, model="resnet18")) == {"few-tokens"}
    assert codes(checked(parted, model="resnet18_32")) == set()


def test_a_batch_larger_than_the_set(parted: Path) -> None:
    report = checked(parted, batch_size=512)
    assert "batch size 512 is larger than the 60 training images" in only(report, "large-batch").message
    assert not report.ok
    assert report.recipe is not None
    assert codes(checked(parted, batch_size=32)) == set()


def test_files_that_are_not_looked_at(own: Path) -> None:
    (own / "notes.txt").write_text("x")
    report = checked(own)
    assert only(report, "other-files").severity == "note"
    for number in range(20):
        (own / "train" / "cat" / f"{number}.HEIC").write_bytes(b"x")
    (own / "train" / "fox").mkdir()
    report = checked(own)
    assert "20 .heic" in only(report, "ignored-files").message
    assert "train/fox" in only(report, "empty-class").message


def test_large_files_are_a_note(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smallvit.checking.rules.HUGE_PIXELS", 5_000)
    texture("large", (100, 90)).save(own / "train" / "cat" / "large.png")
    assert only(checked(own), "huge-files").files == ("train/cat/large.png: 100 x 90",)


# ---- other sources -----------------------------------------------------------------------------------


def test_npz(tmp_path: Path) -> None:
    images = np.stack([np.asarray(texture(f"npz {number}", (32, 32))) for number in range(160)])
    images[-1] = images[0]
    path = tmp_path / "set.npz"
    labels = np.arange(160) % 2
    labels[-1] = labels[0]
    np.savez(path, x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:])
    report = checked(path)
    assert only(report, "leak").files == ("set.npz:test[99] = set.npz:train[0]",)
    assert codes(checked(path, img_size=64)) >= {"enlarged"}


def test_table(parted: Path, tmp_path: Path) -> None:
    lines = [f"{path},{path.parent.name},{path.parent.parent.name}" for path in sorted(parted.rglob("*.png"))]
    table = tmp_path / "set.csv"
    table.write_text("\n".join(["path,label,split", *lines]))
    report = checked(table)
    assert codes(report) == set()
    assert report.facts["parts"] == {"train": 60, "val": 20, "test": 100}


def test_named_sets_are_clean() -> None:
    digits = checked("digits", fast=False)
    assert [problem.code for problem in digits.problems] == ["near-not-searched"]
    assert "8 px" in digits.problems[0].message
    assert digits.duplicates == ()


def test_digits_look_alike() -> None:
    report = checked("mnist5k", fast=False, per_class=20)
    assert codes(report) == {"look-alikes"}
    assert report.duplicates == ()


def test_what_cannot_be_looked_at_is_an_exception(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        checked(tmp_path / "nothing")
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="no images"):
        checked(tmp_path)
    with pytest.raises(UsageError, match="unknown model"):
        checked(write_npz(tmp_path / "x.npz"), model="vit_gigantic_typo")


# ---- the command -------------------------------------------------------------------------------------


def test_command_on_a_clean_set(clean: Path) -> None:
    outcome = run_here("check", clean, "--model", "vit_pico")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0] == f"{clean}: fit for training."
    assert "500 images, 2 classes: 340 train, 60 val, 100 test" in outcome.out
    assert "batch_size = 8" in outcome.out
    assert "training takes about" in outcome.out


def test_command_on_a_leak(own: Path) -> None:
    name = "[bold]x\x1b[31m.png"
    for number in range(8):
        shutil.copy(own / "train" / "cat" / f"{number:03d}.png", own / "test" / "cat" / f"{number}{name}")
    outcome = run_here("check", own, "--fast")
    assert outcome.status == 1
    assert "1 error" in outcome.out.splitlines()[0]
    assert "error leak: 8 of 108 test images are" in outcome.out
    assert r"test/cat/0[bold]x\x1b[31m.png = train/cat/000.png" in outcome.out
    assert "\x1b" not in outcome.out
    assert "and 3 more" in outcome.out


def test_command_with_json(own: Path) -> None:
    shutil.copy(own / "train" / "cat" / "000.png", own / "test" / "cat" / "x.png")
    outcome = run_here("check", own, "--json", "--set", "optimizer.weight_decay=0.3", "--fast")
    found = json.loads(outcome.out)
    assert outcome.status == 1
    assert found["ok"] is False
    assert [problem["code"] for problem in found["problems"]] == ["leak", "near-not-searched"]
    assert found["problems"][0]["severity"] == "error"
    assert found["recipe"]["optimizer"]["weight_decay"] == 0.3
    assert found["facts"]["classes"]["cat"] == {"all": 91, "train": 30, "val": 10, "test": 51}
    assert found["duplicates"] == [["test/cat/x.png", "train/cat/000.png"]]


def test_command_misused(own: Path) -> None:
    assert run_here("check").status == 2
    assert run_here("check", own, "--model", "no_such_model").status == 2
    assert run_here("check", own, "--per-class", "1000").status == 2
    missing = run_here("check", own / "nothing")
    assert missing.status == 1
    assert "no such folder" in missing.err


def test_command_can_be_quiet(parted: Path) -> None:
    outcome = run_here("check", parted, "--quiet", "--fast")
    assert outcome == (0, "", "")


# ---- real sets ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_clothing_has_one_picture_under_two_labels() -> None:
    """Hundreds of trousers on the same floor, and one true copy among 3,781 images."""
    report = checked(shared_data("clothing10_cc0_64"), fast=False)
    assert [len(group) for group in report.duplicates] == [2]
    assert {name.split("/")[1] for name in report.duplicates[0]} == {"shorts", "skirt"}
    assert report.ok


@pytest.mark.slow
def test_flowers_leak_between_their_official_parts() -> None:
    report = checked(shared_data("flowers102_64"), fast=False)
    assert not report.ok
    assert ("test/049/image_06244.jpg", "train/049/image_06213.jpg") in report.duplicates
    assert 20 <= len(report.duplicates) <= 35


@pytest.mark.slow
def test_house_numbers_have_no_copies() -> None:
    assert checked(shared_data("svhn_1000_400_32.npz"), fast=False).duplicates == ()


@pytest.mark.slow
def test_copies_in_cifar_that_people_have_found() -> None:
    """Test and training image of CIFAR-10, judged near-duplicates by hand in the ciFAIR project; among 2,000 others."""
    listed = [(5423, 41088), (3565, 24220), (7776, 42528), (6003, 5327), (9297, 31375), (3794, 3387)]
    arrays = np.load(shared_data("cifar10_10k2k_32.npz"))
    train = {int(index): row for row, index in enumerate(arrays["train_index"])}
    test = {int(index): row for row, index in enumerate(arrays["test_index"])}
    pairs = [image for one, other in listed for image in (arrays["x_test"][test[one]], arrays["x_train"][train[other]])]
    images = torch.from_numpy(np.concatenate([np.stack(pairs), arrays["x_train"][:2000]])).permute(0, 3, 1, 2)
    found = find_duplicates(scan(images.contiguous()))
    group_of = {row: number for number, group in enumerate(found.groups) for row in group}
    assert all(group_of.get(2 * pair, -1) == group_of.get(2 * pair + 1, -2) for pair in range(len(listed)))
