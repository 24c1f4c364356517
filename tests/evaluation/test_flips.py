"""The mean of the answers for an image, its mirror image and its shifts: where it is asked for, and where a file says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import smallvit
from helpers import make_folder, write_npz
from smallvit.data.preparation import Preparation
from smallvit.errors import RunError
from smallvit.evaluation.model_file import load_model, read_tensors, write_tensors
from smallvit.evaluation.predictor import Predictor
from smallvit.models.features import create_backbone
from smallvit.planning.plan import make_plan, read_plan

TINY: dict[str, Any] = {"model": "conv_nano", "epochs": 1, "batch_size": 4, "threads": 1, "show_progress": False}
SETTINGS = {"precision": "fp32"}


def predictor(flips: bool | None) -> Predictor:
    torch.manual_seed(0)
    backbone = create_backbone("conv_nano", {}, num_classes=3, in_chans=3, img_size=8)
    keys: dict[str, Any] = {"img_size": 8, "cache_size": 8, "in_chans": 3, "fit": "crop"}
    given = {} if flips is None else {"flips": flips}
    preparation = Preparation.of({**keys, "mean": [0.4] * 3, "std": [0.2] * 3, **given})
    return Predictor(backbone, preparation, ("cat", "dog", "emu"))


def pixels() -> Tensor:
    return torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_answer_is_the_mean_of_both() -> None:
    images = pixels()
    plain, mirrored = (predictor(False).logits(given) for given in (images, images.flip(3)))
    assert not torch.allclose(plain, mirrored)
    both = predictor(True)
    torch.testing.assert_close(both.logits(images), (plain + mirrored) / 2)
    torch.testing.assert_close(both.logits(images.flip(3)), both.logits(images))
    torch.testing.assert_close(both.probabilities(images), ((plain + mirrored) / 2).softmax(1))


@pytest.mark.parametrize("flips", [False, True])
def test_shifted_looks_count_as_much(flips: bool) -> None:
    images = pixels()
    p = predictor(flips)
    shifted = Predictor(p.backbone, Preparation.of({**vars(p.preparation), "shifts": 1}), p.class_names)
    padded = nn.functional.pad(images.float(), (1, 1, 1, 1), mode="replicate").to(torch.uint8)
    moved = [images, padded[:, :, :8, :8], padded[:, :, 2:, 2:]]
    assert not torch.equal(moved[1], images) and not torch.equal(moved[2], moved[1])
    torch.testing.assert_close(shifted.logits(images), torch.stack([p.logits(look) for look in moved]).mean(0))
    assert torch.equal(shifted.features(images), p.features(images))


def test_few_looks_are_at_the_image_and_its_moved_mirror_images() -> None:
    images, p = pixels(), predictor(False)
    few = Preparation.of({**vars(p.preparation), "flips": True, "shifts": 1, "few_looks": True})
    padded = nn.functional.pad(images.float(), (1, 1, 1, 1), mode="replicate").to(torch.uint8)
    looks = [images, padded[:, :, :8, :8].flip(3), padded[:, :, 2:, 2:].flip(3)]
    expected = torch.stack([p.logits(look) for look in looks]).mean(0)
    torch.testing.assert_close(Predictor(p.backbone, few, p.class_names).logits(images), expected)
    for others in ({"shifts": 0}, {"flips": False}):  # of one kind alone all looks count
        both = [
            Preparation.of({**vars(few), **others, "few_looks": some}).looks(images.float()) for some in (True, False)
        ]
        assert all(map(torch.equal, *both)) and len(both[0]) == len(both[1])


def test_what_an_answer_is_the_mean_over() -> None:
    def words(**keys: Any) -> str:
        return Preparation.of({**vars(predictor(False).preparation), **keys}).looks_in_words()

    assert words() == "" and words(flips=True) == "the image and its mirror image"
    assert words(shifts=2) == "the image as it is and moved by 2 px to two of its corners"
    assert words(flips=True, shifts=2).endswith("mirror image, each as it is and moved by 2 px to two of its corners")
    assert words(flips=True, shifts=2, few_looks=True).endswith("mirror image moved by 2 px to two of its corners")


def test_features_are_of_the_image_itself() -> None:
    assert torch.equal(predictor(True).features(pixels()), predictor(False).features(pixels()))


def test_who_says_nothing_means_no() -> None:
    assert torch.equal(predictor(None).logits(pixels()), predictor(False).logits(pixels()))


# ---- in a run ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> smallvit.Run:
    folder = tmp_path_factory.mktemp("flips")
    photos = make_folder(folder / "photos", {"cat": 12, "dog": 12})
    return smallvit.train(photos, **TINY, settings=SETTINGS, out=folder / "run")


def test_a_run_stores_it_and_answers_by_it(run: smallvit.Run) -> None:
    file = run.path / "model.safetensors"
    assert run.recipe.data.flips is True and read_tensors(file)[1]["flips"] is True
    plan = read_plan(run)
    stored = read_tensors(run.path / "predictions.safetensors")[0]
    p = load_model(file).predictor
    torch.testing.assert_close(p.logits(plan.images, plan.split.test).softmax(1), stored["probabilities"])
    squares = plan.images.images_NCSS[plan.split.test]
    single = nn.functional.softmax((_plain(file, squares) + _plain(file, squares.flip(3))) / 2, 1)
    torch.testing.assert_close(single, stored["probabilities"])


def _plain(file: Path, images_NCSS: Tensor) -> Tensor:
    p = load_model(file).predictor
    unflipped = Preparation.of({**vars(p.preparation), "flips": False})
    return Predictor(p.backbone, unflipped, p.class_names).logits(images_NCSS)


def test_a_file_from_before_answers_as_it_did(run: smallvit.Run, tmp_path: Path) -> None:
    tensors, header = read_tensors(run.path / "model.safetensors")
    del header["flips"]
    write_tensors(tmp_path / "old.safetensors", tensors, header)
    old = load_model(tmp_path / "old.safetensors").predictor
    images = pixels()[:, :, :, :].repeat(1, 1, 2, 2)[..., :12, :12]
    assert torch.equal(old.logits(images), _plain(run.path / "model.safetensors", images))
    write_tensors(tmp_path / "odd.safetensors", tensors, {**header, "flips": "sideways"})
    with pytest.raises(RunError, match=r"odd\.safetensors.*flips"):
        load_model(tmp_path / "odd.safetensors")


# ---- when it is chosen ---------------------------------------------------------------------------------


def chosen(data: str | Path, settings: dict[str, Any] | None = None, **flags: Any) -> Any:
    asked = smallvit.make_recipe(data=data, settings={**SETTINGS, **(settings or {})}, **{
        **{key: value for key, value in TINY.items() if key != "show_progress"}, **flags})  # fmt: skip
    return make_plan(asked, with_floors=False).recipe.data.flips


def test_where_nothing_was_mirrored_it_is_left_out(tmp_path: Path) -> None:
    photos = write_npz(tmp_path / "photos.npz", n=40)
    assert chosen(photos) is True
    assert chosen(photos, {"augment.flip": 0.0}) is False
    assert chosen(photos, {"data.flips": False}) is False
    assert chosen(photos, {"augment.flip": 0.0, "data.flips": True}) is True
    assert chosen("digits", per_class=4) is False
    letters = make_folder(tmp_path / "letters", {"a": 12, "b": 12})
    assert chosen(letters) is False


def test_when_moved_images_are_looked_at(tmp_path: Path) -> None:
    def moved(data: str | Path, model: str = "auto", **flags: Any) -> tuple[int | str, bool]:
        asked = smallvit.make_recipe(data=data, model=model, threads=1, device="cpu", **flags)
        found = make_plan(asked, with_floors=False).recipe.data
        return found.shifts, found.few_looks

    photos = write_npz(tmp_path / "photos.npz", n=40, side=32)
    assert moved(photos, epochs=1) == (2, True)
    assert moved(photos, "vit_pico", epochs=1) == (0, False), "measured for our own family"
    assert moved(photos, budget="20s") == (0, False), "judging would take too much of it"
    assert moved(photos, epochs=1, settings={"data.shifts": 1, "data.few_looks": False}) == (1, False)
    assert moved("digits", epochs=1, per_class=4) == (0, False), "8 px"


def test_shifts_are_stored_and_bad_ones_named(run: smallvit.Run, tmp_path: Path) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 12, "dog": 12})
    moved = smallvit.train(photos, **TINY, settings={**SETTINGS, "data.shifts": 1}, out=tmp_path / "run")
    assert read_tensors(moved.path / "model.safetensors")[1]["shifts"] == 1 and run.recipe.data.shifts == 0
    plan, p = read_plan(moved), moved.predictor()
    stored = read_tensors(moved.path / "predictions.safetensors")[0]["probabilities"]
    torch.testing.assert_close(p.probabilities(plan.images, plan.split.test), stored)
    assert len(p.preparation.looks(torch.zeros(1, 3, 8, 8))) == 3
    for wrong in (-1, 9, "far"):
        with pytest.raises(smallvit.UsageError, match=r"data\.shifts"):
            smallvit.make_recipe(settings={"data.shifts": wrong})
