"""`train` as it is typed: what it prints, and what it leaves on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import QUICK, Outcome, ends_well, fails, run_here, write_npz
from smallvit import Run


def test_print_recipe_writes_nothing_and_can_be_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("train", "digits", *QUICK, "--per-class", "5", "--lr", "0.01", "--set", "optimizer.clip=0.5")
    printed = ends_well(run_here(*asked, "--print-recipe")).out
    assert list(tmp_path.iterdir()) == []
    lines = printed.splitlines()
    assert 'data.source = "digits"' in lines
    assert "optimizer.lr = 0.01" in lines
    assert "optimizer.clip = 0.5" in lines
    assert "data.img_size = 8  # auto: the images are typically 8 px on their shorter side" in lines

    Path("mine.toml").write_text(printed)
    again = ends_well(run_here("train", "--recipe", "mine.toml", "--print-recipe")).out
    values = [line.partition("  #")[0] for line in lines]
    assert again.splitlines() == values


def test_train_says_what_it_chose_and_ends_with_the_floors_and_the_report(place: Path) -> None:
    told, answer = (place / "train.err").read_text(), (place / "train.out").read_text()
    assert "3 classes, 42 train, 6 val, 12 test" in told
    assert "data.img_size = 12  (the images are typically 12 px on their shorter side)" in told
    assert "skipped 1 of 61 files" in told
    assert "broken.png (the file is empty)" in told
    assert "to beat: majority class 33.3%" in told
    for phrase in ("accuracy on the test part (12 images)", "vit_pico", "majority class", "k-NN on pixels"):
        assert phrase in answer
    assert answer.splitlines()[-1] == f"report: {Path('runs', 'a', 'report.html')}"


def test_the_folder_holds_everything(place: Path) -> None:
    run = Run(place / "runs" / "a")
    assert {path.name for path in run.path.iterdir()} >= {
        "recipe.json", "env.json", "split.json", "floors.json", "metrics.jsonl", "model.safetensors", "results.json",
        "predictions.safetensors", "images.safetensors", "report.html",
    }  # fmt: skip
    assert run.finished
    assert (
        run.read("recipe.json")["command"]
        == "smallvit train photos --epochs 1 --threads 1 --model vit_pico --val 0.15 --out runs/a"
    )
    assert run.read("recipe.json")["asked"]["epochs"] == 1
    split = run.read("split.json")
    assert split["class_names"] == ["cat", "dog", "owl [x]"]
    assert {name: part["counts"] for name, part in split["parts"].items()} == {
        "train": [14, 14, 14], "val": [2, 2, 2], "test": [4, 4, 4],
    }  # fmt: skip
    assert split["skipped"] == [{"file": str(Path("cat", "broken.png")), "why": "the file is empty"}]
    assert run.results["parts"]["test"]["n"] == 12
    assert set(run.results["floors"]) == {"majority", "knn", "logistic"}
    assert run.metrics[-1]["epoch"] == 0
    assert (run.path / "report.html").stat().st_size > 10_000


def test_quiet_with_a_log_into_an_empty_folder(tmp_path: Path) -> None:
    words = ("train", "digits", *QUICK, "--per-class", "5", "--out", tmp_path, "--quiet")
    fails(run_here(*words, "--log", "tensorbord"), 2, "unknown log 'tensorbord': did you mean tensorboard?")
    assert run_here(*words, "--log", "tensorboard") == Outcome(0, "", "")
    assert Run(tmp_path).finished
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_train_on_npz_into_the_next_free_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "set.npz", n=60, classes=3)
    Path("runs", "set-vit_pico-1").mkdir(parents=True)
    outcome = ends_well(run_here("train", "set.npz", *QUICK))
    assert outcome.out.splitlines()[-1] == f"report: {Path('runs', 'set-vit_pico-2', 'report.html')}"
    monkeypatch.chdir(tmp_path / "runs")  # the run knows its data wherever it is called from
    ends_well(run_here("evaluate", "set-vit_pico-2"))


def test_without_test_and_validation_part(tmp_path: Path) -> None:
    words = ("train", "digits", *QUICK, "--per-class", "5", "--val", "none", "--test", "none", "--out", tmp_path / "a")
    outcome = ends_well(run_here(*words))
    assert "nothing was evaluated" in outcome.out
    fails(run_here("evaluate", tmp_path / "a"), 2, "part 'test'", "holds no images: choices: train")
