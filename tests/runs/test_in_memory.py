"""A run on images that were in memory is a run like any other, and what it predicts on may be in memory, too."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import smallvit
from helpers import ends_well, fails, run_here
from smallvit.errors import DataError

QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "model": "vit_pico", "show_progress": False}
PLAN = ("recipe.json", "env.json", "split.json", "floors.json")


def images(count: int, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Three classes of shade, larger than they are trained."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    pixels = draw.integers(0, 60, (count, 18, 24, 3)) + 90 * labels[:, None, None, None]
    return pixels.astype(np.uint8), [("dark", "grey", "light")[label] for label in labels]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> smallvit.Run:
    data = {"train": images(36), "val": images(9, 1), "test": images(12, 2)}
    settings = {"augment.crop": "resized"}  # squares larger than the model's: prediction cuts out the centre
    return smallvit.train(
        data, out=tmp_path_factory.mktemp("runs") / "a", img_size=16, val="val", settings=settings, **QUICK
    )


# ---- the run -----------------------------------------------------------------------------------------


def test_it_has_the_parts_and_classes_that_were_given(run: smallvit.Run) -> None:
    parts = run.read("split.json")["parts"]
    assert {name: part["n"] for name, part in parts.items() if part["n"]} == {"train": 36, "val": 9, "test": 12}
    assert run.classes == ("dark", "grey", "light")
    source = Path(run.recipe.data.source)
    assert source.parent == run.path.parent and source.name.startswith("images-") and source.suffix == ".npz"


def test_it_is_the_run_on_the_same_npz_file(run: smallvit.Run, tmp_path: Path) -> None:
    names = ["dark", "grey", "light"]
    arrays: dict[str, Any] = {"class_names": names}
    for part, (x, y) in {"train": images(36), "val": images(9, 1), "test": images(12, 2)}.items():
        arrays |= {f"x_{part}": x, f"y_{part}": [names.index(label) for label in y]}
    np.savez(tmp_path / "set.npz", **arrays)
    settings = {"augment.crop": "resized"}
    other = smallvit.train(tmp_path / "set.npz", out=tmp_path / "b", img_size=16, val="val", settings=settings, **QUICK)
    assert other.recipe.data.fingerprint == run.recipe.data.fingerprint
    assert (other.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()
    assert other.results["parts"] == run.results["parts"]


def test_it_goes_on_without_the_arrays_to_the_same_weights(run: smallvit.Run, tmp_path: Path) -> None:
    """As the child processes of seeds, folds and trials do: all they have is the folder."""
    again = tmp_path / "again"
    again.mkdir()
    for name in PLAN:
        shutil.copy(run.path / name, again)
    (resumed,) = smallvit.resume(again, show_progress=False)
    assert (resumed.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


def test_it_is_evaluated_and_diagnosed_without_the_arrays(run: smallvit.Run, tmp_path: Path) -> None:
    stored = run.results["parts"]["test"]
    assert run.evaluate()["confusion"] == stored["confusion"]
    assert smallvit.evaluate(run.path, data=images(12, 2))["confusion"] == stored["confusion"]
    assert smallvit.diagnose(shutil.copytree(run.path, tmp_path / "copy"), images=8, show_progress=False)
    with pytest.raises(DataError, match="data has classes the model does not know: 0, 1"):
        smallvit.evaluate(run.path, data=(images(12)[0], np.arange(12) % 2))


def test_looking_ahead_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = smallvit.explain(images(60), **QUICK).plan
    assert plan.images.class_names == ("dark", "grey", "light")
    assert len(plan.split.test) == 12  # a share, as of every source without a test part
    assert smallvit.check(images(60), fast=True, show_progress=False, model="vit_pico", epochs=1, threads=1).facts
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"modle": "vit_nano"}, "unknown argument 'modle'"),
        ({"test": images(6)}, r"test: images of their own go with the others: data=\{'train': ..., 'test': ...\}"),
        ({"out": __file__}, "is a file"),
    ],
)
def test_nothing_is_written_where_something_is_wrong(
    more: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(smallvit.SmallvitError, match=message):
        smallvit.train(images(12), **{**QUICK, **more})
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_shows_accuracy_floors_and_curves(run: smallvit.Run, tmp_path: Path) -> None:
    shown = run._repr_html_()
    parsed = ElementTree.fromstring(f"<page>{shown.replace('xlink:href', 'href')}</page>")
    said = " ".join(parsed.itertext())
    assert "k-NN" in said and "Loss" in said and "test images" in said
    assert len(list(parsed.iter("figure"))) >= 3
    names = [node.get("id") for node in parsed.iter() if node.get("id")]
    used = re.findall(r'(?:url\(|href=")#([^")]+)', shown)
    assert len(names) == len(set(names)) and set(used) <= set(names)
    other = smallvit.Run(shutil.copytree(run.path, tmp_path / "<b>copy"))
    assert not set(names) & set(re.findall(r'id="([^"]+)', other._repr_html_()))
    assert "<b>copy" not in other._repr_html_()
    (other.path / "results.json").unlink()
    assert "is not finished" in other._repr_html_()


# ---- what it says of other images --------------------------------------------------------------------


def test_every_form_of_an_image_has_the_same_answer(run: smallvit.Run, tmp_path: Path) -> None:
    pixels, _ = images(5, 3)
    files = [tmp_path / f"{row}.png" for row in range(5)]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file)
    tensor_NCHW = torch.tensor(pixels).permute(0, 3, 1, 2)
    expected = run.predict_proba(pixels)
    assert expected.shape == (5, 3) and np.allclose(expected.sum(1), 1)
    mixed = [files[0], str(files[1]), Image.open(files[2]), pixels[3], tensor_NCHW[4]]
    for given in (files, tmp_path, tensor_NCHW, list(pixels), mixed, [files[:2], pixels[2:]]):
        assert np.allclose(run.predict_proba(given), expected, atol=2e-6)
        assert [answer.label for answer in run.predict(given)] == [run.classes[row] for row in expected.argmax(1)]
        assert np.allclose(run.embed(given), run.embed(pixels), atol=1e-5)
    assert np.allclose(run.predict_proba(*mixed), expected, atol=2e-6)
    assert run.embed(pixels[0]).shape == (1, run.model().num_features)


def test_a_prediction_knows_all_classes(run: smallvit.Run) -> None:
    pixels, _ = images(2, 3)
    first, second = run.predict(pixels)
    assert (first.file, second.file) == ("image 0", "image 1")
    assert first.probabilities is not None and tuple(first.probabilities) == run.classes
    assert list(first.probabilities.values()) == pytest.approx(run.predict_proba(pixels)[0].tolist(), abs=1e-6)
    assert first.top(1) == [(first.label, first.probability)]
    assert [name for name, _ in first.top(9)] == sorted(run.classes, key=lambda name: -first.probabilities[name])  # type: ignore[index]


def test_transform_is_what_prediction_does(run: smallvit.Run, tmp_path: Path) -> None:
    pixels, _ = images(1, 4)
    Image.fromarray(pixels[0]).save(tmp_path / "a.png")
    prepared_CSS = run.transform(pixels[0])
    assert prepared_CSS.shape == (3, 16, 16)
    for same in (tmp_path / "a.png", Image.open(tmp_path / "a.png"), torch.tensor(pixels[0]).permute(2, 0, 1)):
        assert torch.equal(run.transform(same), prepared_CSS)
    with torch.no_grad():
        looks = [run.model()(look) for look in run.transform.looks(prepared_CSS[None])]
    by_hand = (sum(looks) / len(looks) / (run.predictor().temperature or 1.0)).softmax(1)
    assert np.allclose(by_hand, run.predict_proba(pixels), atol=1e-5)


def test_unreadable_images(run: smallvit.Run, tmp_path: Path) -> None:
    (answer,) = run.predict(np.zeros((12, 12), np.float32))
    assert answer.label is None and answer.probabilities is None and "float32" in answer.problem
    for ask in (run.predict_proba, run.embed):
        with pytest.raises(DataError, match=r"missing.png: No such file"):
            ask(tmp_path / "missing.png")
    with pytest.raises(smallvit.UsageError, match="int is no image"):
        run.predict(7)  # type: ignore[arg-type]
    with pytest.raises(smallvit.UsageError, match="there are no images"):
        run.predict()


def test_a_pretrained_run_embeds_without_classes(tmp_path: Path) -> None:
    pixels, _ = images(12)
    run = smallvit.pretrain(pixels, method="simclr", out=tmp_path / "ssl", img_size=8, **QUICK)
    assert run.embed(pixels[:2]).shape == (2, run.model().num_features)
    with pytest.raises(smallvit.UsageError, match="knows no classes"):
        run.predict_proba(pixels)


# ---- timm and the command line -----------------------------------------------------------------------


def test_timm_knows_how_the_model_takes_its_images(run: smallvit.Run, tmp_path: Path) -> None:
    model, data = run.model(), run.recipe.data
    config = timm.data.resolve_model_data_config(model)
    assert config["input_size"] == (3, 16, 16)
    assert (config["mean"], config["std"]) == (data.mean, data.std)
    assert (config["interpolation"], config["crop_mode"]) == ("bilinear", "center")
    picture = Image.fromarray(images(1, 5)[0][0])
    by_timm = timm.data.create_transform(**config, is_training=False)(picture)
    # Pillow's bilinear filter and torch's round differently: a level of 255, over the smallest deviation.
    assert torch.allclose(by_timm, run.transform(picture), atol=1.01 / 255 / min(data.std))  # type: ignore[type-var,operator]
    assert timm.create_model("vit_pico").pretrained_cfg["mean"] == (0.5, 0.5, 0.5), "timm's own is left alone"


def test_top_and_probabilities_in_the_table(run: smallvit.Run, tmp_path: Path) -> None:
    Image.fromarray(images(1)[0][0]).save(tmp_path / "a.png")
    (answer,) = run.predict(tmp_path / "a.png")
    assert answer.probabilities is not None
    outcome = ends_well(run_here("predict", run.path, tmp_path / "a.png", "--top", "5", "--probabilities"))
    header, row = (line.split(",") for line in outcome.out.splitlines()[-2:])
    assert ",".join(header[:7]) == "label,probability,file,label_2,probability_2,label_3,probability_3"
    assert header[7:] == ["p_dark", "p_grey", "p_light"]
    said = dict(zip(header, row, strict=True))
    assert [said["label"], said["label_2"], said["label_3"]] == [name for name, _ in answer.top(3)]
    assert [float(said[f"p_{name}"]) for name in run.classes] == list(answer.probabilities.values())
    fails_with = run_here("predict", run.path, tmp_path / "a.png", "--top", "0")
    assert fails_with.status == 2 and "--top" in fails_with.err


def test_embed_command(run: smallvit.Run, tmp_path: Path) -> None:
    for row, image in enumerate(images(3)[0]):
        Image.fromarray(image).save(tmp_path / f"{row}.png")
    outcome = run_here("embed", run.path, tmp_path, tmp_path / "missing.png", "--npz", tmp_path / "out.npz")
    assert outcome.status == 1 and "missing.png: No such file" in outcome.err
    with np.load(tmp_path / "out.npz") as made:
        assert made["files"].tolist() == [str(tmp_path / f"{row}.png") for row in range(3)]
        assert np.allclose(made["features"], run.embed(images(3)[0]), atol=1e-5)
    fails(run_here("embed", tmp_path, tmp_path, "--npz", tmp_path / "x.npz"), 1, "is not a run folder")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process cannot be kept to one core here")
def test_files_are_answered_alike_on_one_core_and_on_all(run: smallvit.Run, tmp_path: Path) -> None:
    """On one core the model takes turns with reading; on several, threads read ahead."""
    for number, pixels in enumerate(images(70)[0]):  # more than are taken at once
        Image.fromarray(pixels).save(tmp_path / f"{number:02d}.png")
    (tmp_path / "05.png").write_bytes(b"no image")
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        alone = smallvit.predict(run.path, tmp_path, threads=1)
    finally:
        os.sched_setaffinity(0, cores)
    assert len(alone) == 70 and alone[5].label is None and alone[5].problem
    assert alone == smallvit.predict(run.path, tmp_path, threads=1)
