"""The stages of a run in its folder: stages.json says which they are and what the run that counts was planned as before them.

Each stage is a run folder of its own inside the folder: teacher/, pretraining/. The folder itself becomes a run, with a
recipe.json, when they have ended. In a group every member has its stages inside it, and the group's folder has the plan.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from smallvit.console import duration
from smallvit.recipe import Recipe, Section, flat
from smallvit.runs.atomic import write_text
from smallvit.runs.folder import STAGES_FILE, RunFolder
from smallvit.runs.stored import read_as


class Ahead(Section):
    """What was planned before the first stage began."""

    command: str
    asked: dict[str, Any]
    settled: Recipe  # of the run that counts: all but its length, which is known when its turn comes
    choices: tuple[tuple[str, Any, str], ...]  # that were made for it
    floors: dict[str, Any]
    cores: int | None = None  # that there were for it
    turns: int = 0  # so many runs of a group follow one another
    to_begin: float = 0.0  # seconds that each process of a group needs before it trains


class Staged(Section):
    stages: tuple[Annotated[str, Field(pattern="^[a-z]+$")], ...]  # names of their folders, in order
    ahead: Ahead | None = None  # None: the folder is a member of a group, which has it
    spent: float = 0.0  # seconds of a budget that are gone
    counted: tuple[str, ...] | None = (
        None  # stages whose time is in `spent`; None: of an earlier version, which has all there
    )


def has_stages(folder: Path) -> bool:
    return (folder / STAGES_FILE).is_file()


def is_unplanned(folder: Path) -> bool:
    """Whether the run that counts has no plan yet: its stages have not ended."""
    return has_stages(folder) and not (folder / "recipe.json").is_file()


def read_stages(folder: Path) -> Staged:
    return read_as(folder / STAGES_FILE, Staged)


def write_stages(folder: Path, staged: Staged) -> None:
    write_text(folder / STAGES_FILE, json.dumps(staged.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n")


def is_stage(path: Path) -> bool:
    """Whether the run comes before the one in whose folder it lies."""
    return has_stages(path.parent) and path.name in read_stages(path.parent).stages


def run_name(path: Path) -> str:
    """A stage is called by the run that it belongs to."""
    return f"{path.parent.name}/{path.name}" if is_stage(path) else path.name


def stage_runs(folder: Path) -> list[RunFolder]:
    """Those that were run before it; none for most runs."""
    return [RunFolder(folder / name) for name in read_stages(folder).stages] if has_stages(folder) else []


def tell_stages(run: RunFolder) -> str:
    """What came before it in the same command, in one sentence; empty where nothing did."""
    told = [_told(stage) for stage in stage_runs(run.path) if stage.finished]
    if not told:
        return ""
    own = run.results["timing"]["train_seconds"]
    return f"Before it, in the same command: {'; '.join(told)}. Its own training took {duration(own)}."


def _told(stage: RunFolder) -> str:
    results, resolved = stage.results, flat(stage.read("recipe.json", "resolved")["resolved"])
    took, part = duration(results["timing"]["train_seconds"]), results["evaluated_part"]
    judged = f"{results['parts'][part]['accuracy']:.1%} of the {part} images right" if part else "not judged"
    if results.get("judged_by") == "k-NN":
        what = f"pretraining with {resolved['objective.name']} at {resolved['data.img_size']} px"
        return f"{what} ({took}; a k-NN on its features: {judged})"
    return f"the teacher, {resolved['model.name']} ({took}; {judged})"
