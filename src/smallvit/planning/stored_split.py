"""What a run folder says of its images, checked against them: the parts, and the objective that decides what they are for."""

from __future__ import annotations

import torch

from smallvit.data.imageset import ImageSet
from smallvit.data.split import Split
from smallvit.errors import RunError, nearest
from smallvit.objectives.base import Objective, objectives
from smallvit.recipe import Recipe
from smallvit.runs.folder import RunFolder


def stored_objective(run: RunFolder, recipe: Recipe) -> type[Objective]:
    known = objectives()
    if recipe.objective.name not in known:
        raise RunError(
            f"{run.path / 'recipe.json'} is damaged: unknown objective {recipe.objective.name!r}: "
            f"{nearest(recipe.objective.name, known)}"
        )
    return known[recipe.objective.name]


def read_split(run: RunFolder, images: ImageSet | None = None) -> Split:
    """The rows of each part, which are among the images where these are known."""
    stored = run.read("split.json")
    parts, file = stored["parts"], run.path / "split.json"
    if missing := {"train", "val", "test"} - parts.keys():
        raise RunError(f"{file} is damaged: it has no part {min(missing)}")
    if images is not None and tuple(stored["class_names"]) != images.class_names:
        raise RunError(f"{file} is damaged: its classes are not those of the images")
    rows = {name: torch.tensor(part["rows"], dtype=torch.int64) for name, part in parts.items()}
    if not len(rows["train"]):
        raise RunError(f"{file} is damaged: its part train holds no images")
    if images is not None and int(torch.cat([*rows.values()]).max()) >= len(images):
        raise RunError(f"{file} is damaged: its rows are not those of {len(images):,} images")
    return Split(**rows, how={name: parts[name]["how"] for name in parts})
