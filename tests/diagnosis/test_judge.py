"""Sentences are said where the numbers bear them out, and only there; and they do not contradict each other."""

from __future__ import annotations

import numpy as np
import pytest
import timm

import smallvit.models  # noqa: F401
from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.judge import judge
from smallvit.diagnosis.measurements.how_far_it_looks import mixes_neighbours
from smallvit.diagnosis.measurements.layer_likeness import pattern
from smallvit.evaluation.statistics import wilson
from smallvit.planning import evidence
from smallvit.planning.evidence import Lever


def fit(train: tuple[int, int], judged: tuple[int, int], floor: float = 0.2) -> Finding:
    numbers = {"gap": train[0] / train[1] - judged[0] / judged[1], "floor": floor, "classes": 10}
    for prefix, (right, n) in (("train_", train), ("", judged)):
        low, high = wilson(right, n)
        numbers |= {f"{prefix}accuracy": right / n, f"{prefix}low": low, f"{prefix}high": high, f"{prefix}images": n}
    return Finding("fit", {}, numbers, {"part": ["test"], "floor": ["k-NN on pixels"]})


def locality(distance: float, mixes: bool = False) -> Finding:
    return Finding("locality", {}, {"distance": distance, "distance_uniform": 0.52, "mixes_neighbours": mixes})


def signs_of_little_training() -> list[Finding]:
    blocks, layers = (
        [f"blocks.{number}" for number in range(4)],
        {"layers": ["blocks.0", "blocks.1", "blocks.2"], "unit": ["block"]},
    )
    return [
        Finding("self_similarity", {"steps": np.array([0.9, 0.995, 0.999])}, {"blocks": 4, "step": 0.995}, {"blocks": blocks, "unit": ["block"]}),
        Finding("rank", {}, {"last": 7.0, "width": 64, "classes": 10, "images": 256}, layers),
        Finding("neighbours", {}, {"best": 0.5, "best_block": 1, "last": 0.3, "images": 400}, layers),
        Finding("heads", {"selectivity": np.array([[0.0, 0.4, 0.4], [0.01, 0.3, np.nan]])}, {"heads": 5}),
        locality(0.51),
    ]  # fmt: skip


def said(*found: Finding) -> dict[str, str]:
    return {one.name: one.verdict for one in judge(list(found)) if one.verdict}


def test_under_fitting_and_learning_by_heart() -> None:
    (found,) = judge([fit((54, 100), (52, 100))])
    assert (
        found.verdict.startswith("It labels only 54% (44% to 63%) of 100 training images")
        and "under-fits" in found.verdict
    )
    assert found.weight == pytest.approx(0.784)
    (found,) = judge([fit((99, 100), (60, 100))])
    assert (
        "99% (95% to 100%) of 100 training images correctly, but 60% (50% to 69%) of 100 test images" in found.verdict
    )
    assert found.weight > 0.5
    for nothing in (
        fit((97, 100), (94, 100)),
        fit((9, 10), (7, 10)),  # ten images bear nothing out
        fit((7, 10), (7, 10)),  # seven of ten may be eight of ten
    ):
        assert "neither under-fitting nor learning by heart shows" in said(nothing)["fit"]
    for train, judged in (
        ((216, 240), (54, 60)),
        ((40, 100), (0, 20)),
    ):  # the one class is large, or is not in the test part
        found = fit(train, judged)
        same = found._replace(numbers=found.numbers | {"answers": 1.0})
        assert "gives all of" in said(same)["fit"] and "it under-fits" in said(same)["fit"]
    assert "by heart" in said(fit((180, 256), (125, 256)))["fit"], "a gap of 21 points comes before the 70 %"
    assert "in place of a ViT" not in said(fit((180, 256), (125, 256)))["fit"], "nothing in it attends"
    assert "in place of a ViT" in said(fit((180, 256), (125, 256)), locality(0.3))["fit"]
    assert "in place of a ViT" not in said(fit((180, 256), (125, 256)), locality(0.3, mixes=True))["fit"], "it is none"
    alone = fit((100, 100), (100, 100))._replace(labels={"part": ["training"], "floor": [""]})
    assert "no images were held out: whether it learns them by heart cannot be seen" in said(alone)["fit"]
    assert "under-fits" in said(fit((64, 256), (13, 256)))["fit"], "of little knowledge a gap says little"
    below = said(fit((195, 256), (179, 256), floor=0.85))["fit"]
    assert "under-fits" in below and "fewer than k-NN on pixels does of images that it has not seen (85%)" in below
    assert "no better than guessing among 10 classes" in said(fit((20, 256), (20, 256)))["fit"]
    assert "guessing" not in below + said(fit((64, 256), (60, 256)))["fit"]


@pytest.mark.parametrize(("cells", "attends", "is_said"), [(4, True, True), (16, True, False), (1, False, False)])
def test_few_tokens(cells: int, attends: bool, is_said: bool) -> None:
    rows = int(cells**0.5)
    found = said(
        Finding("tokens", {}, {"cells": cells, "rows": rows, "columns": rows, "img_size": 32, "attends": attends})
    )
    assert bool(found) == is_said
    if found:
        assert found["tokens"].startswith("A patch of 16 px leaves 4 tokens of an image of 32 px")
        assert "patch_size=4, or larger images" in found["tokens"]
        numbers = {"cells": cells, "rows": rows, "columns": rows, "img_size": 16, "attends": 1.0, "patches": 0.0}
        without = said(Finding("tokens", {}, numbers))["tokens"]  # a model that has no patches cannot take smaller ones
        assert without.startswith("A cell of 8 px leaves 4 tokens") and "patch_size" not in without


def test_signs_of_little_training_are_told_with_their_cause() -> None:
    found = said(fit((30, 100), (29, 100)), *signs_of_little_training())
    assert list(found) == ["fit"], "one cause, one sentence"
    for sign in (
        "2 of 4 blocks that hardly change",
        "features of 7.0 directions for 10 classes",
        "right for 50% after blocks.1 but 30% after the last block",
        "2 of 5 heads that give every token the same",
    ):
        assert sign in found["fit"]
    assert "lower learning rate" not in found["fit"] and found["fit"].count("raise the learning rate") == 1
    assert found["fit"].endswith("which need no cure of their own.")
    alone = said(fit((30, 100), (29, 100)), signs_of_little_training()[1])["fit"]
    assert "also seen in features of 7.0 directions for 10 classes, which" in alone
    few = Finding("rank", {}, {"last": 7.0, "width": 64, "classes": 10, "images": 32}, {"layers": ["blocks.0"]})
    assert "directions" not in said(fit((30, 100), (29, 100)), few)["fit"], "32 images have few directions"


def test_parts_are_called_what_they_are() -> None:
    stages = {"unit": ["stage"]}
    repeated = Finding(
        "self_similarity", {"steps": np.array([0.9, 0.995, 0.999])}, {"blocks": 4, "step": 0.995}, stages
    )
    assert (
        "2 of 4 stages that hardly change what the stage before gave"
        in said(fit((30, 100), (29, 100)), repeated)["fit"]
    )


def test_the_same_numbers_of_a_model_that_fits_are_no_signs() -> None:
    found = said(fit((98, 100), (96, 100)), *signs_of_little_training())
    assert list(found) == ["locality", "fit"] and "neither" in found["fit"]


def test_numbers_of_an_under_fitting_model_that_are_no_signs() -> None:
    layers = {"layers": ["blocks.0", "blocks.1", "blocks.2"], "unit": ["block"]}
    found = said(
        fit((30, 100), (29, 100)),
        Finding(
            "self_similarity",
            {"steps": np.array([0.9, 0.97, 0.999])},
            {"blocks": 4, "step": 0.97},
            {"unit": ["block"]},
        ),
        Finding("rank", {}, {"last": 20.0, "width": 64, "classes": 10, "images": 256}, layers),
        Finding("neighbours", {}, {"best": 0.35, "best_block": 1, "last": 0.30, "images": 40}, layers),
        Finding("heads", {"selectivity": np.full((4, 4), 0.3)}, {"heads": 16}),
    )
    assert "also seen" not in found["fit"]


def test_locality() -> None:
    found = said(locality(0.50))["locality"]
    assert found.startswith("The first layer looks 0.50 of the image's width") and "0.52" in found
    assert said(locality(0.50, mixes=True)) == said(locality(0.13)) == {}, "convolutions, or windows, make it local"


def test_what_mixes_neighbours() -> None:
    for name, mixes in (("vit_pico", False), ("dhvt_pico", True), ("t2t_nano", True), ("cvt_nano", True), ("resnet_nano", True)):  # fmt: skip
        assert mixes_neighbours(timm.create_model(name)) == mixes, name
    assert mixes_neighbours(timm.create_model("vit_pico", spt=True))


def test_there_is_always_a_sentence_about_the_other_model() -> None:
    like_zhu = np.full((8, 4), 0.4)
    like_zhu[:2, :2], like_zhu[-2:] = 0.8, 0.1
    numbers = pattern(like_zhu)
    assert numbers == pytest.approx({"bottom": 0.8, "top": 0.1, "pattern": 0.7, "mean": like_zhu.mean()})
    for under in (fit((30, 100), (29, 100)), fit((98, 100), (96, 100))):
        found = said(under, Finding("similarity", {}, numbers, {"other": ["resnet18_32"]}))["similarity"]
        assert all(part in found for part in ("those of resnet18_32", "0.80", "0.10", "0.38", "part on the way up"))
    even = Finding("similarity", {}, pattern(np.full((8, 4), 0.6)), {"other": ["x"]})
    assert "no part of it stands out" in said(even)["similarity"]
    unlike = np.where(like_zhu == 0.8, 0.35, 0.05)
    assert (
        "little in common from the start"
        in said(Finding("similarity", {}, pattern(unlike), {"other": ["x"]}))["similarity"]
    )


def test_the_weightiest_first() -> None:
    found = judge([locality(0.51), Finding("pictures", {}, {}), fit((99, 100), (60, 100))])
    assert [one.name for one in found] == ["fit", "locality", "pictures"]
    assert [bool(one.verdict) for one in found] == [True, True, False]


def test_starting_weights_are_recommended_where_they_were_measured_to_help(monkeypatch: pytest.MonkeyPatch) -> None:
    number = {"points": 3.5, "interval": [1.0, 6.0], "seeds": 5, "images": "CIFAR-10, 2,000 images", "seconds": 120}
    entry = {"name": "mimetic", "setting": "model.weights", "used": ["mimetic"], "off": "--set model.weights=usual"}
    entry |= {"on": "--set model.weights=mimetic", "measured": [number | {"model": "vit_nano", "source": "a file"}]}
    monkeypatch.setattr(evidence, "levers", lambda: (Lever.model_validate(entry),))

    def sentence(model: str, weights: str) -> str:
        found = locality(0.51)._replace(labels={"model": [model], "weights": [weights]})
        return said(fit((97, 100), (94, 100)), found)["locality"]

    told = sentence("vit_nano", "usual")
    assert "; --set model.weights=mimetic gained +3.5 points, +1.0 to +6.0 (5 seeds; vit_nano; CIFAR-10" in told
    for model, weights in (("vit_nano", "mimetic"), ("deit_tiny", "usual"), ("", "usual")):
        assert "model.weights" not in sentence(model, weights) and "--aux drloc" in sentence(model, weights)


def test_stronger_augmentation_is_recommended_where_the_run_did_without(monkeypatch: pytest.MonkeyPatch) -> None:
    number = {"points": 6.0, "interval": [4.0, 8.0], "seeds": 3, "images": "CIFAR-10, 2,000 images", "seconds": 240}
    entry = {"name": "varied", "setting": "augment.trivial", "used": [True], "off": "--set augment.trivial=false"}
    entry |= {"on": "--set augment.trivial=true", "measured": [number | {"model": "vit_nano", "source": "a file"}]}
    monkeypatch.setattr(evidence, "levers", lambda: (Lever.model_validate(entry),))
    plain = fit((99, 100), (60, 100))

    def sentence(model: str, varied: bool) -> str:
        return said(
            plain._replace(numbers=plain.numbers | {"varied": varied}, labels=plain.labels | {"model": [model]})
        )["fit"]

    assert "(--set augment.trivial=true, which gained +6.0 points, +4.0 to +8.0 (3 seeds; vit_nano;" in sentence(
        "vit_nano", False
    )
    assert "stronger augmentation (--set augment.trivial=true), --mixup" in sentence("resnet18", False)
    assert "(--set augment.trivial=true), " in said(plain)["fit"], "a diagnosis of an earlier version"
    assert "augment" not in sentence("vit_nano", True) and "more images, --mixup" in sentence("vit_nano", True)
