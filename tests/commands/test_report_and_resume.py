"""`report` and `resume` of runs that are finished."""

from __future__ import annotations

from pathlib import Path

from helpers import ends_well, run_here


def test_report_is_written_anew_and_for_two_runs(run_copy: Path, place: Path, tmp_path: Path) -> None:
    before = (run_copy / "report.html").read_text()
    (run_copy / "report.html").unlink()
    assert ends_well(run_here("report", run_copy)).out == f"{run_copy / 'report.html'}\n"
    assert len((run_copy / "report.html").read_text()) > 0.9 * len(before)
    both = tmp_path / "both.html"
    ends_well(run_here("report", place / "runs" / "a", run_copy, "--out", both))
    assert both.stat().st_size > 10_000


def test_resume_of_a_finished_run_changes_nothing(run_copy: Path) -> None:
    before = {path.name: path.read_bytes() for path in run_copy.iterdir() if path.is_file()}
    outcome = ends_well(run_here("resume", run_copy))
    assert "is already finished" in outcome.err
    assert "vit_pico" in outcome.out
    assert {path.name: path.read_bytes() for path in run_copy.iterdir() if path.is_file()} == before
