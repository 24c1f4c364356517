"""The card says what the run knows: accuracy with its interval, floors, data, limits; names stay names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from shipped_runs import TINY

import smallvit
from smallvit.evaluation.model_file import read_tensors, write_tensors
from smallvit.runs.axes import Place
from smallvit.runs.members import write_group

Exported = Callable[[str], smallvit.Export]


def text_of(made: smallvit.Export) -> str:
    return (made.path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("format", ["onnx", "hf"])
def test_numbers_are_those_of_the_run(run: Path, exported: Exported, format: str) -> None:
    text, results = text_of(exported(format)), smallvit.Run(run).results
    judged = results["parts"]["test"]
    low, high = judged["interval"]
    rows = [("vit_pico", judged["accuracy"], low, high)]
    rows += [(floor["label"], floor["accuracy"], *floor["interval"]) for floor in results["floors"].values()]
    for label, accuracy, low, high in rows:
        assert f"| {label} | {100 * accuracy:.1f}% | {100 * low:.1f}% to {100 * high:.1f}% |" in text
    assert f"{results['model']['parameters']:,} parameters" in text
    assert exported(format).agreement.sentence in text
    assert (
        "the temperature 0.4" in text and "the image and its mirror image moved by 1 px to two of its corners" in text
    )
    assert "No diagnosis was stored" in text and "## Limits" in text and "licence of the images" in text
    assert f"It was judged on {judged['n']} images" in text


def test_names_stay_names(run: Path, exported: Exported) -> None:
    text = text_of(exported("onnx"))
    assert r"3 classes: cat, dog \*x\*, owl \<b\>" in text
    assert str(run.parent) not in text, "a path of this machine"


def test_front_matter_is_what_the_hub_reads(run: Path, exported: Exported) -> None:
    _, front, body = text_of(exported("hf")).split("---\n", 2)
    told: dict[str, Any] = yaml.safe_load(front)
    assert (
        told["library_name"] == "timm"
        and told["pipeline_tag"] == "image-classification"
        and told["license"] == "unknown"
    )
    (metric,) = told["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == pytest.approx(smallvit.Run(run).results["parts"]["test"]["accuracy"], abs=1e-4)
    assert body.lstrip().startswith("# vit_pico for 3 classes")
    assert not text_of(exported("onnx")).startswith("---")


def test_a_diagnosis_is_in_it(run: Path, tmp_path: Path) -> None:
    copy = smallvit.Run(shutil.copytree(run, tmp_path / "copy"))
    findings = copy.diagnose(images=16)
    text = text_of(copy.export("timm"))
    said = [finding.verdict for finding in findings if finding.verdict]
    assert said and all(f"- {sentence}" in text for sentence in said)


def test_where_it_started_is_said_of_a_run_that_was_trained_longer(root: Path, tmp_path: Path) -> None:
    tuned = smallvit.train(
        root / "photos", init=root / "a", model="vit_pico", img_size=12, epochs=1, batch_size=8, threads=1,
        settings=TINY, out=tmp_path / "tuned", show_progress=False,
    )  # fmt: skip
    longer = smallvit.train_longer(tuned.path, epochs=1, out=tmp_path / "longer", show_progress=False)
    again = smallvit.train_longer(longer.path, epochs=1, out=tmp_path / "again", show_progress=False)
    said = "stood after {} steps, which started from another model's weights"
    steps = max(record["step"] for record in tuned.metrics)
    for run, before in ((longer, steps), (again, 2 * steps)):
        text = text_of(run.export("timm"))
        assert said.format(before) in text and "from scratch" not in text
    shutil.rmtree(tuned.path)
    assert said.format(steps) in text_of(longer.export("timm", overwrite=True)), "it was asked for"


def test_how_an_earlier_run_that_is_gone_started_is_not_known(run: Path, tmp_path: Path) -> None:
    origin = shutil.copytree(run, tmp_path / "origin")
    longer = smallvit.train_longer(origin, epochs=1, out=tmp_path / "longer", show_progress=False)
    text = text_of(longer.export("timm"))
    assert "which started from nothing: no pretrained weights" in text and "trained from scratch" in text
    shutil.rmtree(origin)
    text = text_of(longer.export("timm", overwrite=True))
    assert "how that started is not known, for it is gone" in text and "from scratch" not in text


def test_its_length_is_what_was_trained_not_what_was_planned(run: Path, tmp_path: Path) -> None:
    """As where a budget has counted its steps anew."""
    copy = smallvit.Run(shutil.copytree(run, tmp_path / "copy"))
    record = copy.read("recipe.json")
    record["resolved"]["epochs"] = 40
    (copy.path / "recipe.json").write_text(json.dumps(record))
    steps = max(record["step"] for record in copy.metrics)
    assert f"- 1 epoch ({steps} steps) in" in text_of(copy.export("timm"))


def test_a_group_is_held_against_the_floors_as_one(run: Path, tmp_path: Path) -> None:
    """The second model is sure that all are owls, so together they say so; the floor is never right."""
    places = {f"seed-{seed}": Place(seed=seed) for seed in (0, 1)}
    for name in places:
        shutil.copytree(run, tmp_path / "two" / name)
    write_group(tmp_path / "two", {}, places)
    tensors, header = read_tensors(tmp_path / "two" / "seed-1" / "model.safetensors")
    biased = {**tensors, "head.bias": tensors["head.bias"] + torch.tensor([0.0, 0.0, 100.0])}
    write_tensors(tmp_path / "two" / "seed-1" / "model.safetensors", biased, header)
    first = smallvit.Run(tmp_path / "two" / "seed-0")
    n, owls = first.results["parts"]["test"]["n"], first.results["parts"]["test"]["per_class"][2]["n"]
    alone = round(first.results["parts"]["test"]["accuracy"] * n)
    assert alone != owls, "else nothing is told apart"
    floor = {"label": "a coin", "accuracy": 0.0, "interval": [0.0, 0.1], "why": "", "n": n}
    first.write("floors.json", {"coin": floor | {"right": bytes(-(-n // 8)).hex()}})
    first.write("results.json", first.results | {"floors": {"coin": floor | {"only_model": alone, "only_floor": 0}}})
    text = text_of(smallvit.Group(tmp_path / "two").export("torch-export", tmp_path / "out"))
    assert f"it alone is right {owls} times, the simple method alone 0 times" in text


def test_no_test_part_is_said(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    results = json.loads((copy / "results.json").read_text())
    (copy / "results.json").write_text(json.dumps(results | {"evaluated_part": None, "parts": {}}))
    text = text_of(smallvit.export(copy, "timm", show_progress=False))
    assert "how good the model is, is not known" in text and "accuracy |" not in text
