"""Initial weights from elsewhere (`--init`): an earlier run, or a checkpoint that the authors of a model released."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from smallvit.console import are
from smallvit.data.imageset import ImageSet
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.header import checked_header, has_model
from smallvit.evaluation.model_file import digest, parse_header, read_tensors
from smallvit.models.features import Backbone
from smallvit.models.transfer import Transfer, classifier_names, load_authors_weights, read_checkpoint, transfer
from smallvit.recipe import DataSpec, ModelSpec
from smallvit.runs.axes import Place, listed
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import final_members, is_group


def member_starts(init: str, places: Sequence[Place]) -> dict[Place, Path]:
    """Place of a new run -> the run of a group to start from, which is the same replicate; empty where it is no group.

    Where the group has several arms, each starts from its own.
    """
    folder = Path(init).expanduser().resolve()
    if not is_group(folder):
        return {}
    theirs = {member.place: member.path for member in final_members(folder)}
    arms = {place.arm for place in theirs}
    own: dict[Place, Path] = {}
    for place in places:
        arm = place.arm if len(arms) > 1 else next(iter(arms))
        if path := theirs.get(place.replicate._replace(arm=arm)):
            own[place] = path
    if missing := [place for place in places if place not in own]:
        raise UsageError(f"--init {init}: the group has no run of {listed(missing)}")
    return own


class Started(NamedTuple):
    """The model that a file of ours holds."""

    timm_name: str
    kwargs: dict[str, Any]
    img_size: int
    in_chans: int


def initial_model(path: Path) -> Started | None:
    """None for checkpoints of others."""
    if path.suffix != ".safetensors":
        return None
    try:
        with safe_open(path, "pt") as file:
            header = parse_header(file.metadata())
    except (OSError, SafetensorError, ValueError):
        return None  # loading the weights says what is wrong with it
    if not has_model(header):
        return None
    header = checked_header(path, header)
    return Started(header["model"], header["kwargs"], header["img_size"], header["in_chans"])


def already_seen(file: Path, data: DataSpec, images: ImageSet, parts: dict[str, Tensor]) -> str:
    """Which held-out images the runs that this one starts from were trained on, in words; empty where none.

    Rows are compared, so only runs on the same source count: a copy of it elsewhere is not noticed. Where images came
    or went since, rows are others now, and that is said.
    """
    counts = torch.bincount(images.labels_N, minlength=len(images.class_names)).tolist()
    told: dict[Path, list[str]] = {}  # by run: each is asked once, whatever it says it started from
    while (folder := folder_of_start(file)) not in told and (folder / "recipe.json").is_file():
        run, told[folder] = RunFolder(folder), []
        recipe, split = run.recipe, run.read("split.json", "parts", "class_names")
        own = (recipe.data.source, recipe.data.lists) == (data.source, data.lists)
        own = own and tuple(split["class_names"]) == images.class_names
        if own and split.get("counts", counts) != counts:
            told[folder].append(
                f"{data.source} has changed since {folder} was trained on it, and what that has seen cannot be told"
            )
        elif own:
            trained = torch.tensor(split["parts"]["train"]["rows"], dtype=torch.int64)
            for part, rows in parts.items():
                if seen := int(torch.isin(rows, trained).sum()):
                    told[folder].append(
                        f"{are(seen, f'{part} image', len(rows))} among those that {folder} was trained on"
                    )
        if not (start := recipe.continued.file or recipe.model.init):
            break
        file = Path(start)
    return ", ".join(words for of_run in told.values() for words in of_run)


def folder_of_start(file: Path) -> Path:
    """The run that a model, or the state of its training, lies in."""
    return file.parent.parent if file.parent.name == "state" else file.parent


def load_initial_weights(backbone: Backbone, spec: ModelSpec, class_names: tuple[str, ...]) -> Transfer:
    """Fill the backbone. The classifier of a run comes along where its classes are the same; pretraining has none."""
    path = Path(spec.init)
    if digest(path) != spec.init_digest:
        raise RunError(f"{path} is not the file that the run was planned with: put it back, or start a new run")
    if path.suffix == ".safetensors":
        tensors, header = read_tensors(path)
        if has_model(header):
            header = checked_header(path, header)
            if tuple(header["class_names"]) != class_names:
                tensors = {
                    name: t for name, t in tensors.items() if not name.startswith(classifier_names(backbone.model))
                }
            return _from_run(backbone, tensors, spec, header["model"])
    return load_authors_weights(backbone.model, read_checkpoint(path))


def _from_run(backbone: Backbone, tensors: dict[str, Tensor], spec: ModelSpec, held: str) -> Transfer:
    try:
        return transfer(backbone.model, tensors)
    except UsageError:
        if held == spec.timm_name:
            raise
        raise UsageError(
            f"--init: {spec.init} holds {held}, and this run is {_both_names(spec)}: give --model {held}"
        ) from None


def _both_names(spec: ModelSpec) -> str:
    return spec.name if spec.name == spec.timm_name else f"{spec.name} ({spec.timm_name})"
