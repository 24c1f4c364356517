"""The demo from its first step to its page, with two small models."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import run_here
from smallvit import demo as module


def test_the_demo_ends_with_a_diagnosis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MODELS", ("vit_pico", "resnet_nano"))
    done = run_here("demo", "--quick", "--out", tmp_path / "demo")
    assert done.status == 0, done.err
    assert done.out.splitlines()[-1] == f"report: {tmp_path / 'demo' / 'report.html'}"
    assert "vit_pico: It labels only" in done.err, "what the diagnosis found is said"
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "What the diagnosis found in vit_pico" in page and "How alike layers are: vit_pico and resnet_nano" in page
    assert (tmp_path / "demo" / "vit_pico" / "findings" / "similarity.json").is_file()
    assert not (tmp_path / "demo" / "resnet_nano" / "findings").exists(), "the ResNet is what they are measured against"
