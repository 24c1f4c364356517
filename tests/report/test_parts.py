"""Data, calibration and many classes on the page; and pages of older runs, which lack their numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fabricated import HOSTILE, drawings
from safetensors.numpy import save_file
from test_page import read, rewrite

from smallvit import Run
from smallvit.report.calibration_section import reliability_panel
from smallvit.report.collect import collect
from smallvit.report.data_section import END_BARS, counts_panel
from smallvit.report.sections import confused_block
from smallvit.report.tables import results_table
from smallvit.report.training_section import course

MakeRun = Callable[..., Run]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def test_what_counts_every_class_the_same_is_shown(
    make_run: MakeRun, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = read([make_run("a")], out).text
    assert "macro F1 91.0% (85.0% to 95.0%)" in plain and "AUROC 98.0% (97.0% to 99.0%)" in plain
    assert "Classes differ in size" not in plain
    run = make_run("b", uneven=True)
    text = read([run], out).text
    assert f"{100 * run.results['parts']['test']['balanced_accuracy']:.1f}% (80.0% to 99.0%)" in text
    assert "Classes differ in size. They have 37 to 150 images here" in text
    floors = {name: floor | {"balanced_accuracy": 0.25} for name, floor in run.results["floors"].items()}
    rewrite(run, "results.json", floors=floors)
    assert "of the simple methods majority class is best with 25.0%." in read([run], out).text
    results_table([run])
    assert "majority class 25.0%" in " ".join(capsys.readouterr().out.replace("–", " ").split())
    old = read([make_run("c", uneven=True, old=True)], out).text
    assert "balanced accuracy" in old and "80.0% to 99.0%" not in old and "AUROC" not in old
    both = read([make_run("d"), make_run("e", old=True)], out).text
    assert "AUROC 98.0% (97.0% to 99.0%) –" in both


def test_class_counts_by_part(make_run: MakeRun, out: Path) -> None:
    seen = read([make_run(uneven=True)], out)
    charts = [str(svg["aria-label"]) for svg in seen.all("svg") if "images per class" in str(svg["aria-label"])]
    assert len(charts) == 1 and "; 1 111" in charts[0]
    assert "The classes have 37 to 150 training images, 4.1 times as many." in seen.text
    assert "2 files skipped" in seen.text and "photos/0/broken_1.png" in seen.text


def test_many_classes_show_their_ends_and_a_block(make_run: MakeRun, out: Path) -> None:
    names = [f"flower {number}" for number in range(102)]
    seen = read([make_run(names=names, accuracy=0.5)], out)
    labels = [str(svg["aria-label"]) for svg in seen.all("svg")]
    charts = [label for label in labels if "images per class" in label]
    assert [label.count(";") + 1 for label in charts] == [END_BARS, END_BARS, 34, 34, 34]
    matrices = [label for label in labels if label.startswith("Confusion matrix")]
    assert [label.split(":")[0] for label in matrices] == [
        "Confusion matrix of 16 classes",
        "Confusion matrix of 102 classes",
    ]
    assert out.stat().st_size < 8_000_000


def test_the_block_holds_classes_that_are_taken_for_each_other() -> None:
    counts = 9 * np.eye(6, dtype=int)
    counts[4, 2], counts[2, 5], counts[0, 1] = 7, 3, 2
    assert confused_block(counts.tolist(), 3) == [2, 4, 5]
    assert confused_block(counts.tolist(), 9) == [2, 4, 5]  # the others have no tie to these
    assert confused_block(np.eye(3, dtype=int).tolist(), 9) == []


def test_examples_stand_class_by_class(make_run: MakeRun, out: Path) -> None:
    run = make_run()
    labels = [number % 10 for number in range(80)]
    pictures = drawings(labels, 3, 16, np.random.default_rng(0))
    save_file({"examples": pictures}, run.path / "images.safetensors")
    rewrite(run, "results.json", examples=[{"label": str(label), "file": "x"} for label in labels])
    seen = read([run], out)
    shown = [str(image["alt"])[-1] for image in seen.all("img")]
    assert shown == sorted(shown) and len(shown) == 80
    assert "4 more classes" in seen.text


def test_pictures_of_many_channels_say_what_they_show(make_run: MakeRun, out: Path) -> None:
    run = make_run(channels=3)
    assert "channels." not in read([run], out).text
    recipe = run.read("recipe.json")
    recipe["resolved"]["data"]["in_chans"] = 5
    run.write("recipe.json", recipe)
    assert "The pictures show the first three of 5 channels." in read([run], out).text


def test_calibration_says_what_it_found(make_run: MakeRun, out: Path) -> None:
    text = read([make_run("a")], out).text
    assert "it is too sure of itself" in text
    assert "a temperature of 1.7, fitted on the 150 validation images alone, helps here" in text
    assert "smallvit predict --calibrated uses it." in text
    assert "No temperature was fitted" in read([make_run("b", val=False)], out).text
    run = make_run("d")
    measured = run.results["calibration"]
    rewrite(run, "results.json", calibration={**measured, "used": True})
    assert "Every answer of this model comes with it" in read([run], out).text
    rewrite(run, "results.json", calibration={key: measured[key] for key in measured if key != "after"})
    assert "what it is worth takes a test part to see" in read([run], out).text
    bare = {key: measured[key] for key in ("part", "bins", "before")}
    rewrite(run, "results.json", calibration={**bare, "not_fitted": "it was too cold"})
    assert "No temperature was fitted: it was too cold." in read([run], out).text
    assert "Do the probabilities mean what they say?" not in read([make_run("c", old=True)], out).text


@pytest.mark.parametrize("values", [[0.0], [1.0], [0.034, 0.21], [0.0, 1.0]])
def test_reliability_panels_of_any_range(values: list[float]) -> None:
    entry = {"bins": [{"n": 1, "confidence": value, "accuracy": value} for value in values]}
    assert "Reliability diagram" in reliability_panel(entry, None, 1, "a")


def test_hostile_class_names_are_text_in_the_chart() -> None:
    svg = counts_panel([(name, 3, 0) for name in HOSTILE], ["train", "test"], 3, "a")
    assert "<script" not in svg and "<img" not in svg


def test_the_mark_is_right_where_the_last_epoch_was_cut_short(make_run: MakeRun) -> None:
    run = make_run("a", epochs=10)
    *_, last = (record for record in run.metrics if record["kind"] == "epoch")
    before = last["step"] - last["step"] // 10
    lines = [{**record, "step": before + 1} if record == last else record for record in run.metrics]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    looks = {record["epoch"] + 1: record["val_accuracy"] for record in lines if "val_accuracy" in record}
    for epoch in (9, 10):
        rewrite(run, "results.json", weights={"which": "last", "ema": False, "epoch": epoch})
        curves, _ = course(collect([run])[0])
        assert curves["val_accuracy"].mark[1] == pytest.approx(looks[epoch])
