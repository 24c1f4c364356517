"""The plan on the page: the table that `train --explain` prints, as it was stored before the run began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smallvit.console import several
from smallvit.planning.choices import Choice
from smallvit.planning.explanation import Explained, Line, explained
from smallvit.report.collect import Content, shared
from smallvit.runs.folder import trained_epochs


def plan_section(contents: Sequence[Content]) -> dict[str, Any]:
    """Rows are (labels of the runs that have it, line); a row that all runs share has no label."""
    plans = {run.label: _plan(run) for run in contents}
    chosen = _together({label: plan.chosen for label, plan in plans.items()})
    left_out = _together({label: plan.left_out for label, plan in plans.items()})
    return {
        "plan": chosen,
        "left_out": left_out,
        "has_evidence": any(line.brings for _, line in (*chosen, *left_out)),
    }


def _plan(run: Content) -> Explained:
    """Folders of version 0.1 hold the choices, and know of no levers."""
    plan = run.explained or explained(run.asked, run.resolved, [Choice(**choice) for choice in run.choices], [])
    return plan._replace(chosen=[_as_it_was(line, run) for line in plan.chosen])


def _as_it_was(line: Line, run: Content) -> Line:
    """What was planned, and what became of it once the speed was known."""
    trained = trained_epochs(run.metrics)
    if line.what != "epochs" or not trained or line.value == str(trained) or run.resolved.get("replan.at") is None:
        return line
    return line._replace(why=f"{line.why}; counted anew while it trained: {several(trained, 'epoch')} in the end")


def _together(lines: dict[str, list[Line]]) -> list[tuple[str, Line]]:
    """Lines about the same thing one after the other, equal ones once."""
    subjects = dict.fromkeys(line.what for own in lines.values() for line in own)
    return [
        row
        for subject in subjects
        for row in _labelled(
            [(label, line) for label, own in lines.items() for line in own if line.what == subject], lines
        )
    ]


def _labelled(found: list[tuple[str, Line]], runs: dict[str, list[Line]]) -> list[tuple[str, Line]]:
    """What only some of the runs have is named by them, also where it is the same for all that have it."""
    rows = shared(found)
    if len(rows) == 1 and len(found) < len(runs):
        return [(", ".join(label for label, _ in found), rows[0][1])]
    return rows
