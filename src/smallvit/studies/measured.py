"""Numbers of a study's runs other than accuracy: what a diagnosis finds, and what was recorded while they were trained.

FINDING.NUMBER, FINDING.ARRAY[LAYER] (the mean of its heads), metrics.KEY (the last value), first.KEY (of what was trained
first), or one of these less another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from smallvit.runs.folder import RunFolder
from smallvit.runs.stored_findings import StoredFinding, read_findings

TERM = re.compile(r"(?P<of>[a-z_][a-z0-9_]*)\.(?P<name>[a-z_][a-z0-9_]*)(?:\[(?P<place>-?\d+)\])?")
RECORDED_FIRST = "first"
RECORDED = ("metrics", RECORDED_FIRST)


class Term(NamedTuple):
    of: str
    name: str
    place: int | None


def parse(text: str) -> list[Term]:
    """One term, or two of which the second is taken off the first. ValueError."""
    matches = [TERM.fullmatch(part.strip()) for part in text.split(" - ")]
    if not 1 <= len(matches) <= 2 or not all(matches):
        raise ValueError(
            f"measure {text!r}: write it as finding.number, finding.array[layer], metrics.key or first.key, or one less another"
        )
    return [Term(m["of"], m["name"], int(m["place"]) if m["place"] else None) for m in matches if m]


def needs_diagnosis(measures: Mapping[str, str]) -> bool:
    return any(term.of not in RECORDED for text in measures.values() for term in parse(text))


def measure_run(measures: Mapping[str, str], run: RunFolder, first: Path | None) -> dict[str, float]:
    """What can be had of this run; a model without attention has no locality."""
    findings = read_findings(run) or {}
    found = {}
    for name, text in measures.items():
        values = [_value(term, findings, run, first) for term in parse(text)]
        if all(value is not None for value in values):
            found[name] = float(
                sum(sign * value for sign, value in zip((1, -1), values, strict=False) if value is not None)
            )
    return found


def _value(term: Term, findings: Mapping[str, StoredFinding], run: RunFolder, first: Path | None) -> float | None:
    if term.of in RECORDED:
        folder = run if term.of == "metrics" else RunFolder(first) if first else None
        lines = [line | line.get("parts", {}) for line in folder.metrics] if folder else []
        values = [line[term.name] for line in lines if term.name in line]
        return float(values[-1]) if values else None
    finding = findings.get(term.of)
    if finding is None:
        return None
    if term.place is None:
        return finding.numbers.get(term.name)
    rows = finding.arrays.get(term.name)
    if rows is None or not -len(rows) <= term.place < len(rows):
        return None
    return float(np.nanmean(rows[term.place]))
