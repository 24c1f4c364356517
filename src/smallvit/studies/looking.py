"""What a study wants to know of its models beside accuracy: they are looked into once they are trained, and the numbers kept."""

from __future__ import annotations

from pathlib import Path

from smallvit.console import bar, warn
from smallvit.diagnosis.diagnose import diagnose
from smallvit.errors import SmallvitError
from smallvit.runs.folder import RunFolder
from smallvit.runs.stored_findings import read_findings
from smallvit.studies.measured import measure_run, needs_diagnosis
from smallvit.studies.record import FILE, Record, split_key, write_record
from smallvit.studies.source import folder_of
from smallvit.studies.spec import BETWEEN, Study

IMAGES = 256  # for a diagnosis
SIMILARITY = "similarity"  # the finding that takes another run


def measure_runs(folder: Path, study: Study, record: Record) -> None:
    """The numbers that the study wants of its runs, where a run has none yet."""
    waiting = [key for key, run in record.runs.items() if not {*study.measures} <= {*run.measured}]
    with_diagnosis = needs_diagnosis(study.measures)
    with bar("looking into the models", len(waiting)) as advance:
        for key in waiting:
            arm, replicate = split_key(key)
            place = replicate._replace(arm=arm)
            path = folder_of(folder, place)
            try:
                if path.is_dir():
                    if with_diagnosis:
                        other = _against(study, arm)
                        _look_into(path, folder_of(folder, place._replace(arm=other)) if other else None)
                    first = folder_of(folder, place._replace(stage="first"))
                    record.runs[key].measured = measure_run(
                        study.measures, RunFolder(path), first if first.is_dir() else None
                    )
                    write_record(folder / FILE, record)
            except SmallvitError as error:
                warn(f"{key} could not be looked into, the others go on: {error}")
            advance(1, note=key)


def _look_into(path: Path, partner: Path | None) -> None:
    """Once; and once more when the run that its layers are to be compared with has come to its end."""
    against = partner if partner and (partner / "results.json").is_file() else None
    found = read_findings(RunFolder(path))
    if not found or (against and SIMILARITY not in found):
        diagnose(path, against, IMAGES)


def _against(study: Study, arm: str) -> str | None:
    """The other arm at the same values of the axes."""
    base, *labels = arm.split(BETWEEN)
    other = study.against.get(arm) or study.against.get(base)
    return BETWEEN.join([other, *labels]) if other and other in study.arms else other
