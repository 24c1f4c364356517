"""What `smallvit diagnose` leaves in a run folder, and reading it: RUN/findings/NAME.json and NAME.safetensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from smallvit.errors import RunError
from smallvit.runs.folder import RunFolder
from smallvit.runs.shapes import FindingFile
from smallvit.runs.stored import read_as

FINDINGS = "findings"  # the folder
VERSION = 3  # raised when names or meanings of what is stored change; 1 had none


class StoredFinding(NamedTuple):
    """One measurement: its sentence, if any, and what pictures are drawn from."""

    verdict: str
    weight: float
    numbers: dict[str, float]
    labels: dict[str, list[str]]
    arrays: dict[str, NDArray[Any]]


def read_findings(run: RunFolder) -> dict[str, StoredFinding] | None:
    """The diagnosis of a run, by name; empty where it was not made, None where another version made it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    findings = {}
    for path in sorted((run.path / FINDINGS).glob("*.json")):
        name = f"{FINDINGS}/{path.name}"
        if run.read(name).get("version") != VERSION:
            return None
        about = read_as(path, FindingFile)
        try:
            arrays = load_file(path.with_suffix(".safetensors"))
        except (OSError, SafetensorError) as error:
            raise RunError(f"cannot read {path.with_suffix('.safetensors')}: {error}") from None
        findings[path.stem] = StoredFinding(about.verdict, about.weight, about.numbers, about.labels, arrays)
    return findings
