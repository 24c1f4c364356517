"""A group of folds, from its plan to the labels that it doubts: real digits, some of them with a planted wrong label."""

from __future__ import annotations

import csv
import html
import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits

import smallvit
from helpers import ends_well, fails, run_here
from smallvit.planning.length import Clock
from smallvit.recipe import Recipe
from smallvit.report.tables import results_table
from smallvit.runs.replicates import plan_replicates, replicates_of

FOLDS, TRAINED, PLANTED = 2, 300, 15


class Folds(NamedTuple):
    group: smallvit.Group
    planted: set[int]


@pytest.fixture(scope="module")
def folds(tmp_path_factory: pytest.TempPathFactory) -> Folds:
    """Digits with a test part; of those that train, one in twenty has a wrong label."""
    root, digits, draw = tmp_path_factory.mktemp("folds"), load_digits(), np.random.default_rng(0)
    images = (digits.images * (255 / 16)).round().astype(np.uint8)
    labels, planted = digits.target.copy(), draw.permutation(TRAINED)[:PLANTED]
    labels[planted] = (labels[planted] + draw.integers(1, 10, PLANTED)) % 10
    parts = {"train": slice(0, TRAINED), "test": slice(TRAINED, TRAINED + 100)}
    arrays = {
        f"{axis}_{part}": pixels[rows]
        for part, rows in parts.items()
        for axis, pixels in (("x", images), ("y", labels))
    }
    np.savez(root / "digits.npz", **arrays)
    flags = {"model": "conv_nano", "epochs": 8, "threads": 1, "settings": {"augment.flip": 0.0}}
    group = smallvit.train(root / "digits.npz", folds=FOLDS, out=root / "group", show_progress=False, **flags)
    return Folds(group, {*planted.tolist()})


# ---- what was trained, and what it reaches -----------------------------------------------------------


def test_each_fold_leaves_out_other_images_and_all_are_judged_once(folds: Folds) -> None:
    splits = [run.read("split.json")["parts"] for run in folds.group.runs]
    left_out = [split["left_out"]["rows"] for split in splits]
    assert sorted(row for rows in left_out for row in rows) == list(range(TRAINED))
    assert [len(split["test"]["rows"]) for split in splits] == [100, 100]
    recipes = [run.recipe for run in folds.group.runs]
    assert [recipe.data.fold for recipe in recipes] == [0, 1] and [recipe.seed for recipe in recipes] == [0, 0]
    assert recipes[0].data.mean != recipes[1].data.mean  # each measured on its own training images
    assert recipes[0].epochs == recipes[1].epochs and recipes[0].batch_size == recipes[1].batch_size
    results = folds.group.results
    stored = load_file(folds.group.path / "predictions.safetensors")
    assert stored["rows"].tolist() == list(range(TRAINED)) and stored["folds"].bincount().tolist() == [150, 150]
    right = (stored["probabilities"].argmax(1) == stored["labels"]).double()
    judged = results["parts"]["left_out"]
    assert judged["accuracy"] == pytest.approx(float(right.mean())) and judged["n"] == TRAINED
    assert judged["accuracy"] == pytest.approx(np.mean(list(judged["of_fold"].values())))
    assert judged["interval"][0] < judged["accuracy"] < judged["interval"][1]
    of_folds = [run.results["floors"]["knn"]["accuracy"] for run in folds.group.runs]
    assert results["floors"]["knn"]["accuracy"] == pytest.approx(np.mean(of_folds)) and of_folds[0] != of_folds[1]


def test_terminal_and_report_judge_folds_by_the_same_test(
    folds: Folds, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = smallvit.Group(shutil.copytree(folds.group.path, tmp_path / "group"))
    results = json.loads((group.path / "results.json").read_text())
    results["floors"] = {"majority": results["floors"]["majority"]}  # the others are as good on these few digits
    (group.path / "results.json").write_text(json.dumps(results))
    results_table(group.runs)
    told = next(line for line in capsys.readouterr().out.splitlines() if "best simple method" in line)
    assert "over folds and over the same 300 images it is" in told
    said = told.split(": ", 1)[1].split(" is ", 1)[1]  # after the word, and the name that each gives it
    page = smallvit.write_report(group.runs, tmp_path / "page.html")
    assert said in html.unescape(page.read_text(encoding="utf-8"))


def test_the_models_answer_as_one(folds: Folds, tmp_path: Path) -> None:
    group = folds.group
    pixels = (load_digits().images[500] * (255 / 16)).round().astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "new.png")
    each = [run.predictor().probabilities(tmp_path / "new.png") for run in group.runs]
    together = group.predictor()
    assert torch.allclose(together.probabilities(tmp_path / "new.png"), torch.stack(each).mean(0))
    assert torch.allclose(together.logits(tmp_path / "new.png").softmax(1), torch.stack(each).mean(0), atol=1e-6)
    (said,) = group.predict(tmp_path / "new.png")
    assert said.probability == pytest.approx(float(torch.stack(each).mean(0).max()), abs=1e-5)
    assert f"{said.label},{said.probability}" in ends_well(run_here("predict", group.path, tmp_path / "new.png")).out
    assert json.loads(json.dumps(group.evaluate())) == group.results["parts"]["test"]
    best = max(run.results["parts"]["test"]["accuracy"] for run in group.runs)
    assert group.evaluate()["accuracy"] >= best - 0.03


def test_evaluate_knows_the_parts_of_folds(folds: Folds, tmp_path: Path) -> None:
    path = folds.group.path
    assert folds.group.evaluate("left_out") == folds.group.results["parts"]["left_out"]
    assert "k-NN on pixels" in ends_well(run_here("evaluate", path, "--part", "left_out")).out
    fails(
        run_here("evaluate", path, "--part", "train"), 2, "part 'train' of", "holds no images: choices: test, left_out"
    )
    alone = ends_well(run_here("evaluate", path / "fold-0", "--part", "left_out", "--json"))
    assert json.loads(alone.out)["accuracy"] == folds.group.runs[0].results["parts"]["left_out"]["accuracy"]
    fails(run_here("predict", path, tmp_path, "--calibrated"), 2, "has no temperature")


def test_moved_images_are_judged_by_the_folds_that_left_them_out(folds: Folds, tmp_path: Path) -> None:
    """As one the models were trained on every image: their answer would be too good."""
    group = smallvit.Group(shutil.copytree(folds.group.path, tmp_path / "group"))
    place = shutil.copy(folds.group.path.parent / "digits.npz", tmp_path / "moved.npz")
    found = smallvit.evaluate(group.path, "left_out", data=place)
    about = found.pop("judged")
    assert found == group.results["parts"]["left_out"]
    assert (about["of_the_run"], about["part"], about["trained_on"]) == (True, "left_out", 0)
    told = ends_well(run_here("evaluate", group.path, "--part", "left_out", "--data", place)).out
    assert "it was trained on none of them, pixel for pixel" in told


def test_planted_labels_are_doubted(folds: Folds) -> None:
    with (folds.group.path / "label-errors.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = [int(row["file"].partition("[")[2].rstrip("]")) for row in rows]
    assert len(folds.planted & {*numbers}) >= 0.6 * PLANTED
    assert {*numbers[:5]} <= folds.planted  # the surest
    assert all(
        row["given"] != row["said"] and float(row["probability"]) > float(row["given_probability"]) for row in rows
    )
    assert folds.group.results["suspected_labels"] == len(rows)


def test_terminal_and_page_show_the_folds_as_one(folds: Folds) -> None:
    said = ends_well(run_here("resume", folds.group.path)).out
    for words in (
        "accuracy over 2 folds (300 images",
        "all folds together",
        "as one model, on 100 test images",
        "labels are",
    ):
        assert words in said
    page = (folds.group.path / "report.html").read_text(encoding="utf-8")
    for words in (
        "Over 2 folds, conv_nano labels", "each judged by a model that was not trained on it", "answer as one",
        "conv_nano, all 2 folds", "Labels that are probably wrong", "300 training images, 100 test images",
    ):  # fmt: skip
        assert words in page
    assert page.count('aria-label="Confusion matrix conv_nano"') == 1 and "matrix fold" not in page  # of all together


def test_compared_fold_by_fold(folds: Folds, tmp_path: Path) -> None:
    shutil.copytree(folds.group.path, tmp_path / "again")
    for file in (tmp_path / "again").glob("*/recipe.json"):
        file.write_text(file.read_text(encoding="utf-8").replace('"clip": 1.0', '"clip": 2.0'), encoding="utf-8")
    told = ends_well(run_here("compare", folds.group.path, tmp_path / "again", "-o", tmp_path / "c.html")).out
    assert "Over 2 folds group is exactly as good as again" in told
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "group, all 2 folds" in page and "again, all 2 folds" in page


def test_a_group_that_was_stopped_goes_on_to_the_same_end(folds: Folds, tmp_path: Path) -> None:
    stopped = shutil.copytree(folds.group.path, tmp_path / "group")
    for name in ("results.json", "predictions.safetensors", "label-errors.csv", "report.html"):
        (stopped / name).unlink()
    for name in ("results.json", "model.safetensors", "metrics.jsonl"):
        (stopped / "fold-1" / name).unlink()
    shutil.rmtree(stopped / "fold-1" / "state")
    fails(run_here("evaluate", stopped), 1, "is not finished (fold-1): go on with `smallvit resume")
    smallvit.resume(stopped, show_progress=False)
    for name in ("fold-1/model.safetensors", "predictions.safetensors", "label-errors.csv"):
        assert (stopped / name).read_bytes() == (folds.group.path / name).read_bytes()
    assert smallvit.Group(stopped).results["parts"] == folds.group.results["parts"]


# ---- plans -------------------------------------------------------------------------------------------


def asked(**flags: object) -> Recipe:
    return smallvit.make_recipe(data="digits", model="vit_pico", epochs=1, threads=1, **flags)


def test_seeds_and_folds_together() -> None:
    found = replicates_of(asked(folds=3, class_weights="auto"), seeds=2, jobs=2)
    assert found and found.words == "2 seeds of 3 folds" and found.turns == 3
    assert [place.folder for place in found.places][:4] == [
        "seed-0-fold-0",
        "seed-0-fold-1",
        "seed-0-fold-2",
        "seed-1-fold-0",
    ]
    planned = plan_replicates(found, None)
    one, other, again = (planned[place].plan for place in (0, 1, 4))
    assert (again.recipe.seed, again.recipe.data.fold) == (1, 1) and torch.equal(other.split.train, again.split.train)
    assert not set(one.split.left_out.tolist()) & set(other.split.left_out.tolist())
    weights = [plan.recipe.objective.options["class_weights"] for plan in (one, other)]
    assert weights[0] != weights[1]  # counted in its own training part
    same = {key: value for key, value in one.recipe.model_dump().items() if key not in ("data", "objective")}
    assert same == {key: value for key, value in other.recipe.model_dump().items() if key not in ("data", "objective")}


def test_what_is_no_group() -> None:
    assert replicates_of(asked(), None, 1) is None
    assert replicates_of(asked(folds=3, settings={"data.fold": 1}), None, 1) is None  # one fold alone
    with pytest.raises(smallvit.UsageError, match="pretraining has no labels to judge a fold by"):
        replicates_of(smallvit.make_recipe("pretrain-simclr", data="digits", folds=2), None, 1)


def test_floors_of_later_folds_are_part_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("smallvit.planning.length.time.monotonic", lambda: now[0])
    clock = Clock(100.0, turns=5, others=4)
    before = clock.for_steps(1000, 0.0)
    with clock.for_each_fold():
        now[0] += 10
    assert before - clock.for_steps(1000, 0.0) == pytest.approx(5 * 10 / 5)


def test_few_images_are_advised_to_fold(folds: Folds) -> None:
    data = folds.group.path.parent / "digits.npz"
    found = {
        few: smallvit.explain(
            data, per_class=few, epochs=1, model="vit_pico", threads=1, show_progress=False
        ).plan.cautions
        for few in (None, 10)
    }
    assert any(
        "300 training images: under 1,000 or so, `smallvit train --folds 5` judges all of them" in said
        for said in found[None]
    )
    assert not any("--folds" in said for said in found[10])  # there are more
    assert not any("--folds" in said for said in folds.group.runs[0].read("recipe.json")["cautions"])


def test_models_that_are_often_wrong_doubt_no_label(tmp_path: Path) -> None:
    words = ("digits", "--folds", "2", "--epochs", "1", "--per-class", "6", "--model", "vit_pico", "--threads", "1")
    said = ends_well(run_here("train", *words, "--out", tmp_path / "g")).out
    assert "no label is called wrong: of models that are right less than 80%" in " ".join(said.split())
    assert smallvit.Group(tmp_path / "g").results["suspected_labels"] == 0
