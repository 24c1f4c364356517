"""Copies of a picture are found however they were changed, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from textures import COPIES, SIDE, crop, jpeg, texture
from torch import Tensor

from helpers import shared_data
from smallvit.checking.near_duplicates import search as duplicates
from smallvit.checking.near_duplicates.search import LAST, connected, find_duplicates, scan
from smallvit.data.images import fit_square
from smallvit.data.sources import open_source


def square(image: Image.Image, side: int = SIDE) -> Tensor:
    return fit_square(torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1), side, "squash")


def stack(images: list[Image.Image]) -> Tensor:
    return torch.stack([square(image) for image in images])


@pytest.fixture(scope="module")
def textures() -> list[Image.Image]:
    return [texture(f"clean {number}") for number in range(60)]


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
