"""All that is declared in measurements/, of one model; then what it says together."""

from __future__ import annotations

from smallvit.console import bar, warn
from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.inputs import Inputs
from smallvit.diagnosis.judge import judge
from smallvit.diagnosis.measurements.base import measurements
from smallvit.errors import UsageError


def measure(inputs: Inputs) -> list[Finding]:
    """Everything that the model has something to show for, the weightiest first."""
    findings: list[Finding] = []
    troubles: dict[str, None] = {}  # several measurements fail where what they share does, and that is told once
    with bar("measuring", len(measurements())) as advance:
        for measurement in measurements():
            try:
                finding = measurement.measure(inputs)
            except UsageError as error:  # of a model that is built unlike any that is known here
                troubles[f"{measurement.label} cannot be measured: {error}"] = None
            else:
                findings += [finding] if finding else []
            advance(1, note=measurement.label)
    for trouble in troubles:
        warn(trouble)
    return judge(findings)
