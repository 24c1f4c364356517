"""The temperature of a run: fitted on its validation part, stored with it, and in every answer that it gives."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import smallvit
from helpers import run_here
from smallvit.errors import RunError
from smallvit.evaluation.model_file import load_model, read_tensors, write_tensors
from smallvit.planning.plan import read_plan
from smallvit.runs.axes import Place
from smallvit.runs.members import write_group

SMALL: dict[str, Any] = {
    "data": "digits", "model": "conv_nano", "epochs": 4, "per_class": 8, "batch_size": 16, "threads": 1, "test": 0.3,
    "show_progress": False,
}  # fmt: skip


def trained(out: Path, calibrate: bool = True, val: float | str = 0.2) -> smallvit.Run:
    return smallvit.train(**SMALL, val=val, settings={"precision": "fp32", "data.calibrate": calibrate}, out=out)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, smallvit.Run]:
    """The same run three times: calibrated, not calibrated, and without a validation part."""
    folder = tmp_path_factory.mktemp("temperature")
    return {
        "on": trained(folder / "on"),
        "off": trained(folder / "off", calibrate=False),
        "none": trained(folder / "none", val="none"),
    }


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number, digit in enumerate(load_digits().images[:12]):
        Image.fromarray((digit * 255 / 16).astype(np.uint8)).save(folder / f"{number:02d}.png")
    return folder


def test_it_is_stored_and_changes_no_answer(runs: dict[str, smallvit.Run]) -> None:
    on, off = runs["on"], runs["off"]
    measured = on.results["calibration"]
    temperature = measured["temperature"]
    assert temperature != 1 and measured["used"] and measured["fitted_on"]["n"] == on.results["parts"]["val"]["n"]
    assert off.results["calibration"] == {key: value for key, value in measured.items() if key != "used"}
    headers = [read_tensors(run.path / "model.safetensors")[1] for run in (on, off)]
    assert [(header["temperature"], header["calibrate"]) for header in headers] == [
        (temperature, True), (temperature, False),
    ]  # fmt: skip
    for part in ("test", "val"):
        kinds = [run.results["parts"][part] for run in (on, off)]
        assert kinds[0]["confusion"] == kinds[1]["confusion"] and kinds[0]["loss"] != kinds[1]["loss"]
    assert on.results["parts"]["val"]["loss"] < off.results["parts"]["val"]["loss"], "it is what it was fitted for"
    assert on.results["parts"]["test"]["loss"] == pytest.approx(measured["after"]["loss"], rel=1e-5)


def test_all_ways_to_an_answer_use_it(runs: dict[str, smallvit.Run], pictures: Path) -> None:
    on, off = runs["on"], runs["off"]
    plan = read_plan(on)
    rows, temperature = plan.split.test, on.results["calibration"]["temperature"]
    warm, plain = (run.predictor().logits(plan.images, rows) for run in (on, off))
    torch.testing.assert_close(warm, plain / temperature)
    stored = read_tensors(on.path / "predictions.safetensors")[0]["probabilities"]
    torch.testing.assert_close(on.predictor().probabilities(plan.images, rows), stored)
    torch.testing.assert_close(stored, (plain / temperature).softmax(1))
    assert on.evaluate()["loss"] == pytest.approx(on.results["parts"]["test"]["loss"], rel=1e-5)
    answers = on.predict(pictures)
    expected = on.predictor().probabilities(sorted(pictures.glob("*.png"))).max(1).values
    assert [answer.probability for answer in answers] == pytest.approx(expected.tolist(), abs=1e-5)
    worst = on.results["mistakes"][0]
    assert worst["probability"] in [pytest.approx(p) for p in stored.max(1).values.tolist()]


def test_either_can_be_had_of_any_run(runs: dict[str, smallvit.Run], pictures: Path) -> None:
    plan = read_plan(runs["on"])
    rows = plan.split.test[:20]
    on, off = (runs[name].predictor() for name in ("on", "off"))
    for calibrated in (True, False):
        of_both = (p.probabilities(plan.images, rows, calibrated=calibrated) for p in (on, off))
        torch.testing.assert_close(*of_both)

    def answers(name: str, *words: str) -> list[list[str]]:
        outcome = run_here("predict", runs[name].path, pictures, *words)
        assert outcome.status == 0, outcome.err
        told = (not words and name == "on") or "--calibrated" in words
        assert ("probabilities at temperature" in outcome.err) == told
        return list(csv.reader(io.StringIO(outcome.out)))[1:]

    assert answers("on") == answers("on", "--calibrated") == answers("off", "--calibrated")
    assert answers("off") == answers("off", "--as-trained") == answers("on", "--as-trained")
    plain, warm = answers("off"), answers("on")
    assert [row[0] for row in plain] == [row[0] for row in warm] and plain != warm


def test_without_a_validation_part_nothing_is_fitted_and_the_report_says_so(
    runs: dict[str, smallvit.Run], pictures: Path
) -> None:
    run = runs["none"]
    assert "temperature" not in run.results["calibration"]
    assert run.predictor().temperature is None and run.predict(pictures)
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "No temperature was fitted: there is no validation part to fit it on." in page
    refused = run_here("predict", run.path, pictures, "--calibrated")
    assert refused.status == 2 and "has no temperature: it takes a run with a validation part to fit one" in refused.err


def test_of_several_models_those_without_one_answer_as_trained(
    runs: dict[str, smallvit.Run], pictures: Path, tmp_path: Path
) -> None:
    places = {f"seed-{seed}": Place(seed=seed) for seed in (0, 1)}
    for name, of in zip(places, ("on", "none"), strict=True):
        shutil.copytree(runs[of].path, tmp_path / name)
    write_group(tmp_path, {}, places)
    files = sorted(pictures.glob("*.png"))
    warm = runs["off"].predictor().probabilities(files, calibrated=True)
    expected = (warm + runs["none"].predictor().probabilities(files)) / 2
    group = smallvit.Group(tmp_path)
    torch.testing.assert_close(group.predictor().probabilities(files, calibrated=True), expected)
    told = run_here("predict", tmp_path, pictures, "--calibrated")
    assert told.status == 0 and "; 1 of 2 models is without one and answers as trained" in told.err
    shutil.copytree(runs["none"].path, tmp_path / "seed-0", dirs_exist_ok=True)
    refused = run_here("predict", tmp_path, pictures, "--calibrated")
    assert refused.status == 2 and "has no temperature: it takes a run with a validation part" in refused.err


def test_a_file_from_before_answers_as_it_did(runs: dict[str, smallvit.Run], tmp_path: Path) -> None:
    tensors, header = read_tensors(runs["on"].path / "model.safetensors")
    del header["calibrate"]
    write_tensors(tmp_path / "old.safetensors", tensors, header)
    plan = read_plan(runs["on"])
    old = load_model(tmp_path / "old.safetensors").predictor
    assert torch.equal(
        old.logits(plan.images, plan.split.val), runs["off"].predictor().logits(plan.images, plan.split.val)
    )
    write_tensors(tmp_path / "odd.safetensors", tensors, {**header, "calibrate": "warm"})
    with pytest.raises(RunError, match=r"odd\.safetensors.*calibrate"):
        load_model(tmp_path / "odd.safetensors")
