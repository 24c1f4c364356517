"""How the tests ask for a check, and what they read of its report."""

from __future__ import annotations

from pathlib import Path

import smallvit
from smallvit.checking.check import CheckReport
from smallvit.checking.rules import Problem


def checked(data: str | Path, **flags: object) -> CheckReport:
    return smallvit.check(data, show_progress=False, **{"fast": True, "model": "vit_pico", **flags})  # type: ignore[arg-type]


def codes(report: CheckReport) -> set[str]:
    return {problem.code for problem in report.problems} - {"near-not-searched"}


def only(report: CheckReport, code: str) -> Problem:
    named = [problem for problem in report.problems if problem.code == code]
    assert len(named) == 1, [problem.message for problem in report.problems]
    return named[0]
