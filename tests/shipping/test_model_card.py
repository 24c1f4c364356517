"""The card says what the run knows: accuracy with its interval, floors, data, limits; names stay names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import smallvit

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
    assert "the temperature 0.4" in text and "mirror image" in text and "shifts of 1 px" in text
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


def test_no_test_part_is_said(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    results = json.loads((copy / "results.json").read_text())
    (copy / "results.json").write_text(json.dumps(results | {"evaluated_part": None, "parts": {}}))
    text = text_of(smallvit.export(copy, "timm", show_progress=False))
    assert "how good the model is, is not known" in text and "accuracy |" not in text
