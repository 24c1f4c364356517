"""From numbers to sentences: what may be said of a model when all its measurements are known.

A sentence has its number and what to do. A measurement that its thresholds do not bear out is stored and drawn, and
nothing is said of it. Sentences and thresholds stand with their measurements in measurements/; here is what weighs several
together. Where the thresholds come from, and what was tried and left out: docs/decisions/005-thresholds.md.
"""

from __future__ import annotations

from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.measurements.base import Findings, Said, measurements
from smallvit.diagnosis.measurements.fit import under_fits


def judge(findings: list[Finding]) -> list[Finding]:
    """The findings with their verdicts, the weightiest first.

    Little training shows in many numbers. Each by itself has its own cure, and the cures contradict each other; so they
    are told together, as signs of the one cause, and only where the model under-fits.
    """
    named = {finding.name: finding for finding in findings}
    declared = [measurement for measurement in measurements() if measurement.name in named]
    said = {measurement.name: words for measurement in declared if (words := measurement.say(named))}
    if under_fits(named):
        said["fit"] = _with_signs(said["fit"], named)
    judged = [
        finding._replace(verdict=words.sentence, weight=words.weight) if (words := said.get(finding.name)) else finding
        for finding in findings
    ]
    return sorted(judged, key=lambda finding: -finding.weight)


def _with_signs(fit: Said, named: Findings) -> Said:
    """What was measured last looks deepest into the model, and is told first."""
    shown = [measurement for measurement in reversed(measurements()) if measurement.name in named]
    signs = [sign for measurement in shown if (sign := measurement.sign(named[measurement.name]))]
    if not signs:
        return fit
    listed = f"{', '.join(signs[:-1])} and {signs[-1]}" if signs[1:] else signs[0]
    return fit._replace(advice=f"{fit.advice}. It is also seen in {listed}, which need no cure of their own")
