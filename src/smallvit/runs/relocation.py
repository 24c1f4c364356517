"""`--data NEW`: the images of a run, of the runs of a group, and of the stages before them, are somewhere else now.

Accepted where they are the same images, by their fingerprint; then it is remembered, and later commands need not be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smallvit.console import say
from smallvit.data.kinds import kind_of
from smallvit.errors import RunError, UsageError
from smallvit.planning.moved import check_same_images, current_place, remember
from smallvit.planning.plan import images_at
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import is_group, members_of
from smallvit.runs.staged import has_stages, is_unplanned, stage_runs

NEVER_MOVED = ("named", "hugging face")


def relocate(folder: str | Path, data: str | Path | None) -> None:
    """Nothing where no place is given."""
    if data is None:
        return
    if not isinstance(data, str | Path):
        raise UsageError("data: a run goes on with images that are somewhere else, not in memory; give a path")
    place = str(data)
    if kind_of(place) in NEVER_MOVED:
        raise UsageError(
            f"--data {place}: a named set is never moved; leave it out, or say the folder that it lies in now"
        )
    runs = runs_below(Path(folder))
    seen: dict[str, None] = {}
    for run in runs:
        if run.recipe.data.fingerprint not in seen:  # most take their images alike
            check_same_images(run, place, images_at(place, run))
            seen[run.recipe.data.fingerprint] = None
    relocate_known(runs, place)
    say(f"the images of {folder} are at {place} now: they are the same, and this is remembered")


def relocate_known(runs: Sequence[RunFolder], place: str) -> None:
    """The same where the images were found to be theirs."""
    for run in runs:
        if (
            kind_of(place) not in NEVER_MOVED
            and Path(current_place(run)).expanduser().resolve() != Path(place).expanduser().resolve()
        ):
            remember(run, place)


def runs_below(folder: Path) -> list[RunFolder]:
    """The run of a folder, or those of a group, with the stages before each."""
    if (folder / "tune.json").is_file():
        raise RunError(f"{folder} is a search: its images must be where they were; --data is for runs and groups")
    homes = [member.path for member in members_of(folder)] if is_group(folder) else [folder]
    if waiting := [home for home in homes if is_unplanned(home)]:
        raise RunError(
            f"{waiting[0]} is not planned yet: its images must be where they were until its stages have ended"
        )
    return [run for home in homes for run in (RunFolder(home), *(stage_runs(home) if has_stages(home) else ()))]
