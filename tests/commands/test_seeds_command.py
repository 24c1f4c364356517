"""`train --seeds`: a group of runs in one folder."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from helpers import QUICK, Outcome, ends_well, fails, run_here
from smallvit import Run
from smallvit.runs.together import answers_as_one


def test_seeds(group: tuple[Path, Outcome]) -> None:
    path, outcome = group
    ends_well(outcome)
    runs = [Run(path / f"seed-{seed}") for seed in (0, 1)]
    assert [run.recipe.seed for run in runs] == [0, 1]
    assert runs[0].read("split.json") == runs[1].read("split.json")
    weights = [(run.path / "model.safetensors").read_bytes() for run in runs]
    assert weights[0] != weights[1]
    rows = [line for line in outcome.out.splitlines() if line.strip().startswith("mean of 2 seeds")]
    assert " to " not in rows[0], "the column of intervals is of those over images"
    assert re.search(r"mean of 2 seeds: [\d.]+%, other seeds would move it within [\d.]+% to [\d.]+%", rows[1])
    assert outcome.out.splitlines()[-1] == f"report: {path / 'report.html'}"


def test_a_group_is_no_run_but_says_where_they_are(group: tuple[Path, Outcome]) -> None:
    path, _ = group
    fails(run_here("probe", path), 1, "is not a run folder", "it holds the runs seed-0, seed-1")
    ends_well(run_here("evaluate", path / "seed-1"))
    ends_well(run_here("report", path))
    ends_well(run_here("resume", path))


def test_seeds_answer_as_one(group: tuple[Path, Outcome], tmp_path: Path) -> None:
    path, outcome = group
    said = json.loads(ends_well(run_here("evaluate", path, "--json")).out)
    stored = [load_file(path / f"seed-{seed}" / "predictions.safetensors") for seed in (0, 1)]
    mean_NK = torch.stack([of_seed["probabilities"] for of_seed in stored]).mean(0)
    assert said["accuracy"] == pytest.approx(float((mean_NK.argmax(1) == stored[0]["labels"]).double().mean()))
    assert re.search(rf"all 2 as one model +{100 * said['accuracy']:.1f}%", outcome.out)
    page = " ".join((path / "report.html").read_text().split())
    assert f"answer as one: that labels {100 * said['accuracy']:.1f}% of the" in page
    shutil.copytree(path, tmp_path / "group")
    assert answers_as_one([path / "seed-0"]) is None
    (tmp_path / "group" / "seed-1" / "predictions.safetensors").unlink()
    assert answers_as_one([tmp_path / "group" / f"seed-{seed}" for seed in (0, 1)]) is None
    assert "k-NN on pixels" in ends_well(run_here("evaluate", path)).out
    fails(run_here("evaluate", path, "--part", "left_out"), 2, "part 'left_out' of", "choices: train, test")


def test_runs_of_two_ways_to_train_do_not_answer_as_one(group: tuple[Path, Outcome], tmp_path: Path) -> None:
    path = shutil.copytree(group[0], tmp_path / "arms")
    record = json.loads((path / "group.json").read_text())
    record["axes"] = {"seed-0": {"arm": "plain"}, "seed-1": {"arm": "better"}}
    (path / "group.json").write_text(json.dumps(record))
    fails(run_here("evaluate", path), 2, "holds several ways to train (plain, better), which do not answer as one")


def test_group_is_overwritten_whole_or_not_at_all(group: tuple[Path, Outcome], tmp_path: Path) -> None:
    path = shutil.copytree(group[0], tmp_path / "group")
    words = ("train", "digits", *QUICK, "--per-class", "5", "--out", path, "--overwrite", "-q")
    (path / "seed-1" / "mine.txt").touch()
    fails(run_here(*words), 1, f"{path} holds what no run wrote (seed-1/mine.txt): nothing was deleted")
    assert (path / "seed-0" / "model.safetensors").is_file()
    (path / "seed-1" / "mine.txt").unlink()
    ends_well(run_here(*words))
    assert not (path / "seed-0").exists()
    assert Run(path).finished


@pytest.mark.parametrize(("words", "message"), [
    (("--seeds", "1"), "--seeds 1: give at least 2"),
    (("--seeds", "2", "--log", "tensorboard"), "--log works with a single run"),
    (("--folds", "2", "--log", "tensorboard"), "--log works with a single run; leave out --folds"),
    (("--folds", "1"), "--folds 1: should be at least 2"),
    (("--groups", "("), "--groups (: is no regular expression"),
])  # fmt: skip
def test_seeds_that_cannot_be(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    fails(run_here("train", "digits", *QUICK, *words, "--out", tmp_path / "a"), 2, message)
    assert not (tmp_path / "a").exists()
