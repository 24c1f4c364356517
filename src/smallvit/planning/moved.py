"""Images that were moved since a run was planned: where they are now, and whether they are the same.

RUN/moved.json holds the place that a command was told (`--data NEW`), once the images there were found to be those of the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smallvit.console import several
from smallvit.data.imageset import ImageSet
from smallvit.data.kinds import kind_of, where_of
from smallvit.data.listed import Where
from smallvit.data.named.opening import is_named
from smallvit.errors import DataError, RunError
from smallvit.recipe import DataSpec, Recipe
from smallvit.runs.folder import RunFolder

FILE = "moved.json"
MOST_NAMED = 3  # classes, in a message


def current_place(run: RunFolder) -> str:
    """Of the places that a run knows the first where something is; that of its recipe where nothing is."""
    first = run.recipe.data.source
    if not (run.path / FILE).is_file():
        return first
    told: str = run.read(FILE, "source")["source"]
    return told if _is_there(told) else first


def with_own_teacher(run: RunFolder) -> Recipe:
    """Its recipe; where the folder was moved, with the teacher that lies in it for the one that is gone. Its digest is checked later."""
    recipe, own = run.recipe, run.path / "teacher" / "model.safetensors"
    teacher = recipe.aux.get("teacher", {})
    if not teacher.get("digest") or Path(str(teacher.get("run"))).exists() or not own.is_file():
        return recipe
    return recipe.model_copy(update={"aux": {**recipe.aux, "teacher": {**teacher, "run": str(own.resolve())}}})


def moved_to(data: DataSpec, place: str) -> Where:
    """The images of a recipe at another place: of a named set, the folder in which it lies now."""
    own = where_of(data)
    if place == own.source:
        return own
    return own._replace(dir=place) if is_named(own) else own._replace(source=place)


def remember(run: RunFolder, place: str) -> None:
    run.write(FILE, {"source": str(Path(place).expanduser().resolve())})


def _is_there(place: str) -> bool:
    try:
        kind_of(place)
    except DataError:
        return False
    return True


def is_same(run: RunFolder, images: ImageSet) -> bool:
    return images.fingerprint == run.recipe.data.fingerprint


def check_same_images(run: RunFolder, place: str, images: ImageSet) -> None:
    if not is_same(run, images):
        own = run.recipe.data.fingerprint
        raise RunError(
            f"the images of {place} are not those that {run.path} was trained on (fingerprint {images.fingerprint[:8]} "
            f"instead of {own[:8]}): {_differences(run.read('split.json', 'class_names', 'parts'), images)}. Put them back, say "
            "where they are (--data NEW), or start a new run"
        )


def _differences(split: dict[str, Any], images: ImageSet) -> str:
    """What there is to be told of it, from what the run knows of its images."""
    had, have = list(split["class_names"]), list(images.class_names)
    told = [f"{word} {_listed(names)}" for word, names in (
        ("it lacks the class", [name for name in had if name not in have]),
        ("it also has the class", [name for name in have if name not in had]),
    ) if names]  # fmt: skip
    if told:
        return ", and ".join(told)
    counts = split.get("counts") or [
        sum(column) for column in zip(*(part["counts"] for part in split["parts"].values()), strict=True)
    ]
    found = images.labels_N.bincount(minlength=len(have)).tolist()
    other = [
        f"{now:,} instead of {before:,} of {name}"
        for name, before, now in zip(had, counts, found, strict=True)
        if now != before
    ]
    whole = "counts" in split or sum(found) < sum(counts)
    if other and whole:
        return f"it has {several(sum(found), 'image')} instead of {sum(counts):,} ({_listed(other)})"
    return "as many images of each class, but other pixels: files that were changed or encoded anew, or another order"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
