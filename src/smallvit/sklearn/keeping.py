"""Where a fitted estimator keeps its run: in a folder that lives as long as it does, in bytes on the way to another process,
or where it was saved. What makes an estimator of a run is one more file in its folder, estimator.json.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smallvit.errors import RunError
from smallvit.opened import Run
from smallvit.runs.folder import claimed, make_folder, write_json
from smallvit.runs.ownership import LOCK
from smallvit.runs.stored import read_json

ABOUT = "estimator.json"
CLASS_KINDS = "iufbU"  # of labels: numbers, truth values, text


class About(NamedTuple):
    """What an estimator knows beside its run."""

    parameters: dict[str, Any]
    classes: np.ndarray
    n_features_in: int | None = None  # of flat images


@contextmanager
def new_folder() -> Iterator[Path]:
    """For a run that is on its way; what fails leaves nothing."""
    folder = Path(tempfile.mkdtemp(prefix="smallvit-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def lasting(run: Run, folder: Path) -> Run:
    """The folder goes when nothing holds the run any more, or with this process."""
    weakref.finalize(run, _remove, folder, os.getpid())
    return run


def _remove(folder: Path, made_by: int) -> None:
    if os.getpid() == made_by:  # a forked process has the run too, but not the folder
        shutil.rmtree(folder, ignore_errors=True)


def storable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an estimator as JSON has them."""
    plain = {name: str(value) if isinstance(value, Path) else _plain(value) for name, value in parameters.items()}
    try:
        json.dumps(plain)
    except TypeError as error:
        raise RunError(f"the parameters of the estimator cannot be kept: {error}") from None
    return plain


def _plain(value: Any) -> Any:
    """A search over np.arange(...) gives numbers of numpy."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def write_about(run: Run, about: About) -> None:
    parameters = storable(about.parameters)
    classes = {"values": about.classes.tolist(), "dtype": about.classes.dtype.str}
    run.write(ABOUT, {"parameters": parameters, "classes": classes, "n_features_in": about.n_features_in})


def read_about(run: Run) -> About:
    """Of a run that no estimator trained: its model, and its classes by name."""
    if not (run.path / ABOUT).is_file():
        return About({"model": run.recipe.model.name}, np.array(run.classes))
    tree = run.read(ABOUT, "parameters", "classes", "n_features_in")
    try:
        dtype = np.dtype(tree["classes"]["dtype"])
        if dtype.kind not in CLASS_KINDS:
            raise ValueError(f"labels of the type {dtype}")
        classes = np.array(tree["classes"]["values"], dtype=dtype)
        if len(classes) != len(run.classes):
            raise ValueError(f"{len(classes)} classes, the run has {len(run.classes)}")
        return About(dict(tree["parameters"]), classes, tree["n_features_in"])
    except (TypeError, ValueError, KeyError) as error:
        raise RunError(f"{run.path / ABOUT} is damaged: {error}") from None


# ---- the run as bytes --------------------------------------------------------------------------------


def packed(run: Run) -> dict[str, bytes]:
    """The files of a finished run, its stages among them. Not its images, and not where training stood."""
    inside = {path.relative_to(run.path): path for path in sorted(run.path.rglob("*")) if path.is_file()}
    kept = [name for name in inside if LOCK.parent.name not in name.parts]
    kept.sort(key=lambda name: name.name == "recipe.json")  # last: it makes a folder a run
    return {name.as_posix(): inside[name].read_bytes() for name in kept}


def unpacked(files: Mapping[str, bytes]) -> Run:
    """In a folder of its own."""
    with new_folder() as folder:
        _write(files, folder / "run")
        return lasting(Run(folder / "run"), folder)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        make_folder((folder / name).parent)
        (folder / name).write_bytes(content)


def copied(run: Run, folder: Path, overwrite: bool) -> Run:
    """The run in another place, with its images beside it where they are still there."""
    images, files = Path(run.recipe.data.source), packed(run)  # now: the folder that is emptied may be its own
    with claimed(folder, overwrite) as place:
        _write(files, place)
        if images.is_file() and images.suffix == ".npz":  # a table means files beside it, which stay where they are
            beside = place.resolve().parent / images.name
            if not beside.exists():
                shutil.copyfile(images, beside)
            for recipe in place.rglob("recipe.json"):
                tree = read_json(recipe, "resolved")
                tree["resolved"]["data"]["source"] = str(beside)
                write_json(recipe, tree)
    return Run(folder)
