"""The demo from its first step to its page, with two small models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers import ends_well, run_here
from smallvit import demo as module


def test_the_demo_ends_with_a_diagnosis_and_so_does_its_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entrants = (module.Entrant("demo", "vit_pico"), module.Entrant("demo", "resnet_nano"))
    monkeypatch.setattr(module, "ENTRANTS", entrants)
    done = run_here("demo", "--quick", "--out", tmp_path / "demo")
    assert done.status == 0, done.err
    assert done.out.splitlines()[-1] == f"report: {tmp_path / 'demo' / 'report.html'}"
    assert done.out.splitlines()[-2].startswith("What made the difference: "), "the last word before the report"
    assert "vit_pico: It labels only" in done.err, "what the diagnosis found is said"
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "What the diagnosis found in vit_pico" in page and "How alike layers are: vit_pico and resnet_nano" in page
    said = json.loads((tmp_path / "demo" / "group.json").read_text())["difference"]
    assert done.out.splitlines()[-2].endswith(said) and f"<b>What made the difference.</b> {said}" in page
    assert (tmp_path / "demo" / "vit_pico" / "findings" / "similarity.json").is_file()
    assert not (tmp_path / "demo" / "resnet_nano" / "findings").exists(), "the ResNet is what they are measured against"

    # As if killed after the last training step: results are there, findings are not.
    folder = tmp_path / "demo"
    shutil.rmtree(folder / "vit_pico" / "findings")
    (folder / "report.html").unlink()
    resumed = run_here("resume", folder)
    assert resumed.status == 0 and "vit_pico: It labels only" in resumed.err, resumed.err
    assert "What the diagnosis found in vit_pico" in (folder / "report.html").read_text(encoding="utf-8")

    assert resumed.out.splitlines()[-2] == f"What made the difference: {said}", "it is stored with the group"
    ends_well(run_here("report", folder))
    assert said in (folder / "report.html").read_text(encoding="utf-8")
    ends_well(run_here("report", folder / "vit_pico", "--out", tmp_path / "one.html"))
    assert said not in (tmp_path / "one.html").read_text(encoding="utf-8"), "of one run there is no difference"

    group = json.loads((folder / "group.json").read_text())
    group["diagnosis"]["against"] = "../elsewhere"
    (folder / "group.json").write_text(json.dumps(group))
    broken = run_here("resume", folder)
    assert broken.status != 0 and "'../elsewhere' is none of its runs" in broken.err


def test_the_demo_shows_what_train_takes_by_itself_beside_a_vit_and_a_resnet() -> None:
    assert module.ENTRANTS[0] == ("default", "auto")
    assert {entrant.model for entrant in module.ENTRANTS[1:]} == {"vit_nano", "resnet_nano"}
