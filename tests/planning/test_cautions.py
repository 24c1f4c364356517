"""What is said before the start, because it will spoil the result."""

from __future__ import annotations

from dataclasses import replace

import torch

from smallvit.data.imageset import ImageSet
from smallvit.data.split import make_split
from smallvit.data.twins import twins
from smallvit.planning.cautions import cautions
from smallvit.recipe import DataSpec, Recipe, build_recipe, with_settings

RECIPE: Recipe = build_recipe(overrides={"epochs": 50, "data.per_class": 1000})


def noise(n: int) -> ImageSet:
    images_NCSS = torch.randint(256, (n, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    files, labels_N = tuple(f"{number}.png" for number in range(n)), torch.arange(n) % 2
    parts = {"train": torch.arange(n // 2), "test": torch.arange(n // 2, n)}
    return ImageSet(images_NCSS, labels_N, ("cat", "dog"), parts, files, "photos", "")


def said(images: ImageSet) -> list[str]:
    return list(cautions(RECIPE, images, make_split(images, DataSpec())))


def copied(images: ImageSet, twin_of: dict[int, int]) -> ImageSet:
    pixels_NCSS = images.images_NCSS[torch.arange(len(images))].clone()
    for row, source in twin_of.items():
        pixels_NCSS[row] = pixels_NCSS[source]
    return replace(images, images_NCSS=pixels_NCSS)


def test_images_that_judge_and_train() -> None:
    images = noise(400)
    assert said(images) == []
    assert said(copied(images, {210: 3, 307: 3})) == [
        "2 of 200 test images are also among those that train, pixel for pixel, as 210.png and 3.png: the accuracy will be "
        "too good; `smallvit check` lists them all"
    ]
    assert said(copied(noise(1200), {700: 3})) == []  # one of 600 moves nothing
    assert said(copied(images, {1: 3, 210: 320})) == []  # within a part


def test_a_warm_up_that_is_the_whole_run() -> None:
    images = noise(400)
    split = make_split(images, DataSpec())
    for epochs, warmup, told in ((5, 5.0, True), (5, 20.0, True), (20, 5.0, False)):
        recipe = with_settings(RECIPE, {"epochs": epochs, "schedule.warmup_epochs": warmup})
        assert [
            said.startswith(f"schedule.warmup_epochs = {warmup:g} is the whole run")
            for said in cautions(recipe, images, split)
        ] == [True] * told


def test_twins_are_the_same_in_every_pixel() -> None:
    images_NCSS = torch.zeros(6, 1, 8, 8, dtype=torch.uint8)
    images_NCSS[1:4, 0, 0, 0] = 9  # all have the same middle line; three of them the same picture
    images_NCSS[4, 0, 0, 0] = 8
    one, other = torch.tensor([0, 3, 4]), torch.tensor([5, 2, 1])
    assert twins(images_NCSS, one, other) == {3: 2}  # of 0 and 5, all black, neither is a copy


def test_a_test_part_of_few_groups() -> None:
    images = noise(400)
    few = replace(images, groups=tuple(f"p{number % 4}{number >= 200}" for number in range(400)))
    (told,) = said(few)
    assert told.startswith("the 200 test images are of 4 groups") and "--folds" not in told, "of some of the images"
    all_of_them: Recipe = build_recipe(overrides={"epochs": 50})
    split = make_split(few, DataSpec())
    assert "or `smallvit train --folds 5`, by which every group judges once" in [*cautions(all_of_them, few, split)][-1]
    fewer = replace(few, groups=tuple(f"p{number % 4}" for number in range(400)))
    assert all("--folds 5" not in told for told in cautions(all_of_them, fewer, split)), "there are four groups"
    after_a_stage = with_settings(all_of_them, {"model.name": "vit_pico", "pretrain.method": "simclr"})
    assert all("--folds" not in told for told in cautions(after_a_stage, few, split)), "which has no folds"
    assert said(replace(images, groups=tuple(f"p{number % 20}{number >= 200}" for number in range(400)))) == []


def test_a_validation_part_that_selects_nothing_could_train() -> None:
    parts = {"train": torch.arange(200), "val": torch.arange(200, 250), "test": torch.arange(250, 400)}
    images = replace(noise(400), parts=parts)
    plain: Recipe = build_recipe(overrides={"epochs": 50, "data.val": "val", "select": "last"})
    split = make_split(images, DataSpec())
    assert any(
        "`smallvit train --train-on train+val` trains on them, too, which is 25% more" in told
        for told in cautions(plain, images, split)
    )
    few = replace(images, parts=parts | {"val": torch.arange(200, 215)})
    for recipe, told_of in (
        (with_settings(plain, {"select": "best"}), images),  # it selects
        (with_settings(plain, {"data.per_class": 20}), images),  # fewer images train than could
        (plain, few),  # too few to be missed
    ):
        told = cautions(recipe, told_of, make_split(told_of, DataSpec()))
        assert not [one for one in told if "train+val" in one]
    without = with_settings(plain, {"data.train_on": "train+val", "data.val": "none"})
    assert not [one for one in cautions(without, images, make_split(images, without.data)) if "train+val" in one]
