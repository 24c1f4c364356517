"""`smallvit diagnose` and `smallvit compare`, as they are typed, and the same from Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import smallvit
from helpers import run_here
from smallvit import Run

Trained = Callable[[str], Run]


def test_diagnose_says_its_findings_and_puts_them_into_the_report(trained: Trained) -> None:
    run = trained("vit_pico")
    done = run_here("diagnose", run.path, "--against", "resnet_nano", "--images", 16)
    assert done.status == 0, done.err
    first, *_, last = done.out.splitlines()
    assert first.startswith("1. ") and last == f"report: {run.path / 'report.html'}"
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "What the diagnosis found" in page and "resnet_nano (untrained)" in page
    assert len(page) < 8_000_000
    assert first.removeprefix("1. ")[:40] in page
    run_here("report", run.path)
    assert "What the diagnosis found" in (run.path / "report.html").read_text(encoding="utf-8")
    assert run_here("diagnose", run.path, "--images", 16, "--threads", 1, "--quiet").out == ""
    told = {one["name"]: one for one in json.loads(run_here("diagnose", run.path, "--images", 16, "--json").out)}
    assert told["fit"]["numbers"]["images"] == 16 and told["fit"]["verdict"]


def test_what_cannot_be_diagnosed_is_said_in_a_line(trained: Trained, tmp_path: Path) -> None:
    done = run_here("diagnose", tmp_path)
    assert done.status == 1 and "is not a run folder" in done.err and "Traceback" not in done.err
    done = run_here("diagnose", trained("vit_pico").path, "--against", "resnet_nan")
    assert done.status == 2 and "did you mean resnet_nano" in done.err


def test_compare_two_runs(trained: Trained, tmp_path: Path) -> None:
    one, other = trained("vit_pico").path, trained("resnet_nano").path
    done = run_here("compare", one, other, "--out", tmp_path / "page.html")
    assert done.status == 0, done.err
    assert "On the same" in done.out and "McNemar" in done.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "McNemar" in page and "vit_pico and resnet_nano" in page
    done = run_here("compare", one, other, "--cka", "--images", 16, "--json", "--out", tmp_path / "page.html")
    (found,) = json.loads(done.out)
    assert "its layers are like those of resnet_nano" in found["cka"]
    assert found["paired_by"] == "images" and found["real"] == (found["p"] < 0.05)
    assert "How alike layers are: vit_pico and resnet_nano" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert run_here("compare", one).status == 2


def test_from_python(trained: Trained) -> None:
    run = trained("vit_pico")
    found = smallvit.diagnose(run.path, images=16, show_progress=False)
    assert found[0].weight >= found[-1].weight
    (compared,) = smallvit.compare([run, trained("resnet_nano")], show_progress=False)
    assert compared.first == "vit_pico"
    assert (run.path.parent / "compare-vit_pico-resnet_nano.html").is_file()
