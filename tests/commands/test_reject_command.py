"""`--reject` as it is typed: calibrated on the validation part or on left-out images, stored, shown, and used."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import smallvit
from helpers import ends_well, fails, run_here
from smallvit import Run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on digits with a validation part, one without, and one of folds; a little trained."""
    root = tmp_path_factory.mktemp("reject")
    quick = {"model": "vit_pico", "threads": 1, "show_progress": False}
    smallvit.train("digits", epochs=8, val=0.3, out=root / "with", **quick)
    smallvit.train("digits", epochs=1, per_class=4, out=root / "without", **quick)
    smallvit.train("digits", epochs=8, folds=2, test=0.2, out=root / "folds", **quick)
    return root


def test_it_is_calibrated_on_the_validation_part_and_judged_on_the_test_part(place: Path) -> None:
    run = Run(place / "with")
    shown = ends_well(run_here("evaluate", run.path, "--reject", "0.3")).out
    record = json.loads((run.path / "reject.json").read_text())["levels"]["0.3"]
    split = run.read("split.json")["parts"]
    assert record["calibrated_on"] == {"part": "val", "n": split["val"]["n"]}
    assert record["judged_on"]["part"] == "test" and record["judged_on"]["n"] == split["test"]["n"]
    assert not record["judged_on"]["on_own_images"]
    assert record["wrong"] <= 0.3 * record["answered"] and record["cautions"] == []
    assert record["judged_on"]["curve"][-1][1] == pytest.approx(run.results["parts"]["test"]["accuracy"])
    assert "with 95 % confidence at most 30 % of its answers are wrong" in shown
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "When it may say unknown" in page and "Accuracy against coverage" in page
    told = json.loads(ends_well(run_here("evaluate", run.path, "--reject", "0.3", "--json")).out)
    assert told["reject"]["doubt"] == record["doubt"] and told["accuracy"] == run.results["parts"]["test"]["accuracy"]


def test_predict_says_unknown_where_the_doubt_is_too_large(place: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(place / "with", tmp_path / "with"))
    record = run.calibrate_rejection(0.3)
    images = (255 / 16 * load_digits().images).round().astype("uint8")[:300]
    answers = run.predict(images, reject=0.3)
    plain = run.predictor().probabilities(images, calibrated=False).numpy()
    if record["doubt"] is not None:
        doubt = 1 - plain.astype(np.float64).max(1)
        clear = np.abs(doubt - record["doubt"]) > 1e-5
        assert [a.rejected for a, c in zip(answers, clear, strict=True) if c] == (doubt >= record["doubt"])[
            clear
        ].tolist()
    for answer in answers:
        assert (answer.label == "unknown") == answer.rejected
        assert answer.likeliest == answer.top(1)[0][0] and answer.probability == answer.top(1)[0][1]
    assert not any(answer.rejected for answer in run.predict(images[:20]))
    (tmp_path / "new").mkdir()
    for number, image in enumerate(images[:12]):
        Image.fromarray(image).save(tmp_path / "new" / f"{number:02d}.png")
    out = tmp_path / "labels.csv"
    ends_well(run_here("predict", run.path, tmp_path / "new", "--reject", "0.3", "--csv", out))
    rows = list(csv.DictReader(out.open()))
    assert [row["label"] for row in rows] == [answer.label for answer in answers[:12]]
    assert [row["likeliest"] for row in rows] == [answer.likeliest for answer in answers[:12]]


def test_folds_are_calibrated_on_what_they_left_out_and_judged_as_one_model_on_the_test_part(place: Path) -> None:
    folder = place / "folds"
    group = smallvit.Group(folder)
    shown = ends_well(run_here("evaluate", folder, "--reject", "0.5")).out
    record = json.loads((folder / "reject.json").read_text())["levels"]["0.5"]
    parts = json.loads((folder / "results.json").read_text())["parts"]
    assert record["calibrated_on"] == {"part": "left_out", "n": parts["left_out"]["n"]}
    assert (record["judged_on"]["part"], record["judged_on"]["n"]) == ("test", parts["test"]["n"])
    assert record["judged_on"]["curve"][-1][1] == pytest.approx(parts["test"]["accuracy"])
    assert "at most 50 % of the answers that the models of the folds give one by one are wrong" in shown
    assert "of which nothing is promised" in shown
    images = (255 / 16 * load_digits().images).round().astype("uint8")[:100]
    answers = group.predict(images, reject=0.5)
    mean_NK = np.mean([run.predict_proba(images) for run in group.runs], axis=0).astype(np.float64)
    doubt_N = 1 - mean_NK.max(1)
    for answer, doubt in zip(answers, doubt_N, strict=True):
        if record["doubt"] is not None and abs(doubt - record["doubt"]) > 1e-5:
            assert answer.rejected == (doubt >= record["doubt"])
        assert answer.rejected == (answer.label == "unknown")
    assert "Accuracy against coverage" in (folder / "report.html").read_text(encoding="utf-8")


def test_what_cannot_be_promised_is_told(place: Path, tmp_path: Path) -> None:
    fails(
        run_here("evaluate", place / "without", "--reject", "0.05"),
        2,
        "no validation part to calibrate on",
        "--val 0.15",
    )
    fails(run_here("evaluate", place / "with", "--reject", "1.5"), 2, "--reject 1.5", "up to 0.5")
    run = Run(shutil.copytree(place / "with", tmp_path / "with"))
    fails(run_here("predict", run.path, "x.png", "--reject", "0.01"), 2, "calibrate it with `smallvit evaluate")
    fails(run_here("predict", run.path / "model.safetensors", "x.png", "--reject", "0.05"), 2, "give its run folder")
    shown = ends_well(run_here("evaluate", run.path, "--reject", "0.0001")).out
    assert "images are too few to promise" in shown
    fails(run_here("predict", run.path, "x.png", "--reject", "0.0001"), 2, "has no threshold for it")
    assert "are too few to promise" in (run.path / "report.html").read_text(encoding="utf-8")
    (run.path / "reject.json").write_text('{"levels": 3}')
    fails(run_here("report", run.path), 1, "reject.json is damaged")
