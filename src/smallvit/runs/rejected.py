"""The thresholds of unknown that lie in a run folder, as reject.json: by the error that each allows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from smallvit.errors import RunError, UsageError
from smallvit.runs.folder import read_json, write_json

FILE = "reject.json"
MOST_ERROR = 0.5


def check_error(error: float) -> None:
    if not 0 < error <= MOST_ERROR:
        raise UsageError(
            f"--reject {error}: give the share of wrong answers that may be left, above 0 and up to {MOST_ERROR}"
        )


def store_rejection(path: Path, record: dict[str, Any]) -> None:
    levels = read_rejections(path)
    write_json(path / FILE, {"levels": {**levels, f"{record['error']:g}": record}})


def read_rejections(path: Path) -> dict[str, dict[str, Any]]:
    """By error; empty where none was asked for."""
    if not (path / FILE).is_file():
        return {}
    levels = read_json(path / FILE, "levels")["levels"]
    if not isinstance(levels, dict) or not all(isinstance(record, dict) for record in levels.values()):
        raise RunError(
            f"{path / FILE} is damaged: remove it, and calibrate anew with `smallvit evaluate {path} --reject 0.05`"
        )
    return dict(levels)


def stored_threshold(path: Path, error: float) -> float:
    """The doubt from which this run says unknown."""
    check_error(error)
    if not path.is_dir():
        raise UsageError(f"--reject {error:g}: {path} is a model file and has no threshold: give its run folder")
    record = read_rejections(path).get(f"{error:g}")
    if record is None:
        raise UsageError(
            f"--reject {error:g}: {path} has no threshold for it yet: calibrate it with `smallvit evaluate {path} --reject {error:g}`"
        )
    if "why_not" in record:
        raise UsageError(f"--reject {error:g}: {path} has no threshold for it: {record['why_not']}")
    try:
        return math.inf if record["doubt"] is None else float(record["doubt"])
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{path / FILE} is damaged: it has no doubt for {error:g}") from None
