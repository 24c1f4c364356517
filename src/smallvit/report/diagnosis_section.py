"""The diagnosis on the page: its sentences, and the panels that the measurements declare.

Pictures that answer to a slider or a pointer are drawn by one small script from data inside the page; the page
allows no other script, names it by its hash, and a page without a diagnosis has none.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

import smallvit.diagnosis.measurements
from smallvit.diagnosis.measurements.base import Canvas, Measurement, Panel, measurements
from smallvit.errors import RunError
from smallvit.report.collect import Content
from smallvit.report.verdict import Verdict
from smallvit.runs.stored_findings import StoredFinding

SENTENCES = 5  # at the top of the page; the others follow in the section


def diagnosis_section(contents: Sequence[Content], image_bytes: int) -> dict[str, Any]:
    """What the template needs: all empty where no run was diagnosed."""
    diagnosed = [(run, run.findings) for run in contents if run.findings]
    parts = [_run_part(run, findings, image_bytes // len(diagnosed)) for run, findings in diagnosed]
    script = _script() if any(panel.by_script for part in parts for panel in part["panels"]) else ""
    return {
        "diagnoses": parts,
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() if script else "",
        "diagnosis_html": _render(parts, many=len(contents) > 1) if parts else "",
    }


def outdated(contents: Sequence[Content]) -> list[Verdict]:
    """What is said in place of a diagnosis that this version cannot read."""
    return [
        Verdict(
            "caution",
            "The diagnosis is left out",
            f"That of {run.label} was stored by another version of smallvit: run `smallvit diagnose` on it again.",
        )
        for run in contents
        if run.findings is None
    ]


def _script() -> str:
    return shading() + (resources.files("smallvit.report") / "diagnosis.js").read_text(encoding="utf-8")


def shading() -> str:
    """How masks are drawn over images, as a script."""
    return (resources.files("smallvit.report") / "shading.js").read_text(encoding="utf-8")


def _render(parts: Sequence[Mapping[str, Any]], many: bool) -> str:
    """The frame of the section, and around each panel the piece that lies beside its measurement."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pieces = FileSystemLoader([Path(folder) for folder in smallvit.diagnosis.measurements.__path__])
    environment = Environment(
        loader=pieces, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = (resources.files("smallvit.report") / "diagnosis.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(parts=parts, many=many)


def _run_part(run: Content, findings: Mapping[str, StoredFinding], image_bytes: int) -> dict[str, Any]:
    said = sorted((finding for finding in findings.values() if finding.verdict), key=lambda finding: -finding.weight)
    sentences = [finding.verdict for finding in said]
    declared = [measurement for measurement in measurements() if measurement.name in findings]
    canvas = Canvas(run.series, str(run.resolved.get("model.name", run.label)), image_bytes)
    drawn = [_of_finding(run, one, partial(one.panel, findings, canvas)) for one in declared]
    measured_on = [_of_finding(run, one, partial(one.measured_on, findings)) for one in declared]
    return {
        "label": run.label,
        "measured_on": "; ".join(filter(None, measured_on)),
        "summary": sentences[:SENTENCES],
        "more": sentences[SENTENCES:],
        "panels": _together([panel for panel in drawn if panel]),
    }


def _of_finding(run: Content, measurement: Measurement, ask: Callable[[], Any]) -> Any:
    """What a finding holds only its measurement knows: one that it cannot draw is damaged."""
    try:
        return ask()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunError(
            f"the finding {measurement.name} of {run.label} is damaged ({error!r}): run `smallvit diagnose` on it again"
        ) from None


def _together(panels: Sequence[Panel]) -> list[Panel]:
    """In their order on the page; figures of one heading that follow each other become one panel."""
    in_order = sorted(panels, key=lambda panel: panel.place)
    joined: list[Panel] = []
    for (_, piece), group in groupby(in_order, key=lambda panel: (panel.heading, panel.piece)):
        first, *more = same = list(group)
        if piece != "figures":
            joined += same
            continue
        words = " ".join(panel.words for panel in same if panel.words)
        figures = tuple(figure for panel in same for figure in panel.figures)
        joined.append(first._replace(words=words, figures=figures) if more else first)
    return joined
