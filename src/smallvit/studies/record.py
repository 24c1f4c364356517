"""What a study has found, as one JSON file: study.json in its folder, or a copy of it kept elsewhere.

Files of version 0.1 (docs/results) are read as they are: what they lack has a default here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from smallvit.errors import RunError
from smallvit.runs.atomic import write_text
from smallvit.runs.axes import Place
from smallvit.studies.library import in_words, read_study, study_from, study_names
from smallvit.studies.spec import LENGTHS, ScaleName, Study, Table

FILE = "study.json"
NUMBERED = re.compile(r"(?<=/)(\d+)-0$")  # the first draw of a run, as earlier versions called it


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ArmFacts(Part):
    """One stage of an arm: how long it is, what it costs, what came before it."""

    epochs: int
    step_ms: float | None = None
    steps_per_epoch: int | None = None
    steps: int | None = None
    train_images: int | None = None
    test_images: int | None = None
    floors: dict[str, Any] | None = None
    resolved: dict[str, Any] | None = None  # what decides the result of its runs, as the first was planned (alike.py)
    first: ArmFacts | None = None

    @property
    def stages(self) -> list[ArmFacts]:
        return [*(self.first.stages if self.first else []), self]


class RunFacts(Part):
    accuracy: float
    right: str  # which test images it labels correctly, as bits in hexadecimal
    train_seconds: float
    parameters: int
    cpu_seconds: float = 0.0
    accuracy_first: float | None = None
    train_images: int | None = None
    test_images: int | None = None
    judged: str = ""  # digest of the rows that judged it: runs with the same are paired image by image
    courses: dict[str, list[tuple[float, float]]] = {}  # epoch, value
    measured: dict[str, float] = {}


class Record(Part):
    title: str
    study: str = ""
    scale: ScaleName = "laptop"
    spec: dict[str, Any] = {}
    data: dict[str, str] = {}  # names of sets, or "" for all others -> where they were; names of files alone
    cpu_seconds: float | None = None
    epochs: int | None = None
    steps: int | None = None
    shared: Table = {}
    arms_asked: dict[str, Table] = {}
    arms: dict[str, ArmFacts] = {}
    machine: dict[str, Any] = {}
    date: str = ""
    train_images: int | None = None
    test_images: int | None = None
    runs: dict[str, RunFacts] = {}
    floors: dict[str, Any] = {}
    groups: dict[str, list[int]] = {}  # of the test images, by the digest of their rows, where they come in groups
    failed: dict[str, str] = {}  # run, or arm -> the last that was said
    spent: dict[str, float] = {}  # seconds by runs that have not ended
    under_way: list[str] = []  # runs that were started; of one that is there when a study goes on the time is not known

    @model_validator(mode="before")
    @classmethod
    def _first_draw(cls, tree: Any) -> Any:
        """Earlier versions numbered the first of several draws, which are the images of a run without draws."""
        if not isinstance(tree, Mapping):
            return tree
        by_run = {name: tree[name] for name in ("runs", "failed", "spent") if isinstance(tree.get(name), Mapping)}
        return {**tree, **{name: _without_number(own) for name, own in by_run.items()}}

    def of(self, arm: str) -> dict[Place, RunFacts]:
        """The runs of an arm by seed and draw."""
        found = {}
        for key, run in self.runs.items():
            name, replicate = split_key(key)
            if name == arm:
                found[replicate] = run
        return found

    def floors_of(self, arm: str) -> dict[str, Any]:
        facts = self.arms.get(arm)
        return (facts.floors if facts and facts.floors is not None else None) or self.floors

    def groups_of(self, judged: str) -> NDArray[np.int64] | None:
        """Of the test images that judged a run, in the order of `right`; None where each stands for itself."""
        return np.array(self.groups[judged]) if judged in self.groups else None

    def tests_of(self, run: RunFacts) -> int:
        return run.test_images or self.test_images or 4 * len(run.right)


def _without_number(by_run: Mapping[str, Any]) -> dict[str, Any]:
    """A run that stands there under both names is one and the same."""
    plain = {key: NUMBERED.sub(r"\1", key) for key in by_run}
    return {plain[key]: value for key, value in by_run.items() if plain[key] == key or plain[key] not in by_run}


def key_of(place: Place) -> str:
    """Of a run in the record, whatever its stage. The first draw has no number."""
    return f"{place.arm}/{place.seed}" + (f"-{place.draw}" if place.draw is not None else "")


def split_key(key: str) -> tuple[str, Place]:
    arm, _, replicate = key.rpartition("/")
    seed, _, draw = replicate.partition("-")
    try:
        return arm, Place(seed=int(seed), draw=int(draw) if draw else None)
    except ValueError:
        raise RunError(f"{key!r} is no run of a study: it should end in /SEED or /SEED-DRAW") from None


def right_of(record: Record, run: RunFacts) -> NDArray[np.bool_]:
    packed = np.frombuffer(bytes.fromhex(run.right), dtype=np.uint8)
    return np.unpackbits(packed, count=record.tests_of(run)).astype(bool)


# ---- the file ------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """What was found, with what was asked."""

    name: str
    study: Study
    record: Record
    path: Path | None = None  # the folder with its runs, where they are there


def is_study(folder: Path) -> bool:
    return (folder / FILE).is_file()


def read_record(file: Path) -> Record:
    try:
        return Record.model_validate_json(file.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {file}: {error.strerror}") from None
    except ValidationError as error:
        raise RunError(f"{file} is no record of a study: {in_words(error)}") from None


def write_record(file: Path, record: Record) -> None:
    write_text(file, json.dumps(record.model_dump(exclude_unset=True, mode="json"), indent=1) + "\n")


def open_study(place: Path) -> Opened:
    """A folder of a study, or the file alone."""
    folder = place if place.is_dir() else None
    file = place / FILE if folder else place
    if folder and not file.is_file():
        raise RunError(f"{place} holds no study: {FILE} is not in it")
    record = read_record(file)
    name = record.study or file.stem
    # Claims of ours may have been sharpened since; a study of the user is as it was asked.
    study = read_study(name) if name in study_names() else study_from(record.spec, str(file))
    return Opened(name, study, record, folder)


def same_length(record: Record, study: Study, scale: ScaleName) -> bool:
    asked = study.scales[scale]
    # A precision that the command gave stands there, too.
    shared = {key: value for key, value in record.shared.items() if key != "precision" or key in asked.shared}
    return all(getattr(record, name) == getattr(asked, name) for name in LENGTHS) and shared == asked.shared


def changed_arms(record: Record, asked: Mapping[str, Table]) -> list[str]:
    """Arms that mean another thing now than in the record; arms may come and go."""
    return [arm for arm, table in asked.items() if record.arms_asked.get(arm, table) != table]
