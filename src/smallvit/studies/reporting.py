"""The report of a study from what is stored: its folder, or the file alone. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from smallvit.errors import RunError
from smallvit.studies.library import study_names
from smallvit.studies.page import write_page
from smallvit.studies.record import FILE, Opened, is_study, open_study, read_record
from smallvit.studies.spec import ScaleName

STORED = Path("docs") / "results"  # where records are kept beside the source


def report_study(study: str | Path, scale: ScaleName = "laptop", out: str | Path | None = None) -> tuple[Opened, Path]:
    """What was found, and the page, written anew. `study` is a name, a folder or a stored file."""
    opened = open_study(place_of(study, scale))
    beside = opened.path / "report.html" if opened.path else Path(f"{opened.name}.html")
    return opened, write_page(opened, Path(out) if out else beside)


def place_of(study: str | Path, scale: ScaleName) -> Path:
    """A name is looked for among the runs, then among the stored records."""
    if str(study) not in study_names():
        if not Path(study).exists():
            raise RunError(f"{study} is neither a study (see `smallvit study list`) nor a folder or file with one")
        return Path(study)
    folder, stored = Path("runs") / "studies" / f"{study}-{scale}", STORED / f"{study}.json"
    if is_study(folder):
        return folder
    if stored.is_file() and read_record(stored).scale == scale:
        return stored
    raise RunError(
        f"{study} has not been run at {scale} scale: neither {folder / FILE} nor such a {stored} is there; run it with `smallvit study run {study} --scale {scale}`"
    )
