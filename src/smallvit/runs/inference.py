"""What is done with a finished run: open its model, evaluate it on some images, probe its features.

A group of seeds or folds is evaluated as a run is: its models answer as one. What a model says of new images stands in
runs/prediction.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smallvit.console import warn
from smallvit.data.groups import with_groups
from smallvit.data.imageset import ImageSet
from smallvit.data.kept import Data, is_source, lent
from smallvit.data.listed import Where
from smallvit.data.sources import open_source
from smallvit.errors import DataError, RunError, UsageError
from smallvit.evaluation.ensemble import Ensemble
from smallvit.evaluation.metrics import summary
from smallvit.evaluation.model_file import load_model
from smallvit.evaluation.predictor import Predictor
from smallvit.planning.moved import is_same
from smallvit.planning.plan import read_plan
from smallvit.planning.resolve import check_device
from smallvit.planning.stored_split import read_split
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import fold_results, is_folds, is_group, replicate_members
from smallvit.runs.relocation import relocate, relocate_known
from smallvit.runs.seen import Judged, about, about_folds
from smallvit.runs.stored_answers import read_answers
from smallvit.training.frozen import frozen_parts, probe_parts
from smallvit.training.session import computing

# ---- a model, ready to answer ------------------------------------------------------------------------


def open_predictor(path: str | Path, device: str = "auto") -> Predictor:
    """The model of a finished run, or of a model file, on a device: `auto` is as in `device_for`."""
    path = Path(path)
    if path.suffix == ".safetensors":
        return load_model(path, device_for(device)).predictor
    run = finished_run(path)
    return load_model(run.path / "model.safetensors", device_for(device, run)).predictor


def open_ensemble(folder: str | Path, device: str = "auto") -> Ensemble:
    """The finished models of a group of seeds or folds, which answer as one."""
    return Ensemble([open_predictor(run.path, device) for run in _finished_members(Path(folder))])


def _finished_members(folder: Path) -> list[RunFolder]:
    runs = [RunFolder(member.path) for member in replicate_members(folder)]
    if waiting := [run.path.name for run in runs if not run.finished]:
        raise RunError(f"{folder} is not finished ({', '.join(waiting)}): go on with `smallvit resume {folder}`")
    return runs


def open_model(path: Path, device: str) -> Predictor | Ensemble:
    """Of a run, a group or a model file."""
    return open_ensemble(path, device) if is_group(path) else open_predictor(path, device)


def device_for(asked: str, run: RunFolder | None = None) -> torch.device:
    """auto: the kind of device that the run was trained on, or the CPU where this machine lacks it.

    A model file does not say where it was trained: there a GPU is used where one is.
    """
    if asked != "auto":
        return check_device(asked)
    kind = run.device.partition(":")[0] if run else "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return check_device(kind)
    except UsageError:
        return torch.device("cpu")


def finished_run(folder: str | Path) -> RunFolder:
    run = RunFolder(folder)
    if not run.finished:
        raise RunError(f"{run.path} is not finished: go on with `smallvit resume {run.path}`")
    return run


def check_classes(predictor: Predictor | Ensemble, path: Path) -> None:
    if not predictor.class_names:
        labelled = (path / "split.json").is_file() and len(
            RunFolder(path).read("split.json", "class_names")["class_names"]
        ) > 1
        probed = f", or see what its features are worth with `smallvit probe {path}`" if labelled else ""
        raise UsageError(
            f"{path} was pretrained and knows no classes: train it with `smallvit train DATA --init {path}`{probed}"
        )


# ---- evaluate ----------------------------------------------------------------------------------------


def evaluate(
    folder: str | Path,
    part: str | None = None,
    data: Data = None,
    *,
    threads: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Accuracy with interval, per class, on a part of the run's own split or on other images of the same classes.

    `data` is as for `train`. Where its images are those of the run, by their fingerprint, the run's own part of them is judged: they were
    moved. Else they are others: of a set with parts the part, of one without all of them, and under `judged` stands how many the model was
    trained on, pixel for pixel, and its accuracy without these. The part is test where none is given; of folds without one, what
    they left out; "all" is everything that `data` holds. `threads` and the kind of `device` are
    those of the run where they are not given, here and below: others give other last bits.
    """
    path = Path(folder)
    runs = evaluated_runs(path)
    run, asked = runs[0], part
    part = usual_part(path) if part is None else part
    if data is None and _was_left_out(path, part):
        return dict(fold_results(path)["parts"][part])
    predictor = open_model(path, device)
    check_classes(predictor, path)
    judged = own_images(path, run, part) if data is None else given_images(data, predictor, path, runs, asked)
    if judged.own and _was_left_out(path, judged.part):
        about_it = about_folds(judged, runs, read_answers(path), predictor.class_names)
        return fold_results(path)["parts"][judged.part] | {"judged": about_it}
    scores, logits_NK = _judge(predictor, judged, threads or run.threads)
    if data is None and part not in ("all", "train"):
        return scores  # of a part that was held out
    return scores | {"judged": about(judged, runs, logits_NK, predictor.class_names)}


def judge_as_one(folder: str | Path, part: str) -> tuple[dict[str, Any], NDArray[np.bool_], NDArray[np.int64] | None]:
    """Scores of a group on a part that its models share, as `evaluate` has them; of its images (N,) which it labels correctly, and their groups."""
    path = Path(folder)
    run = evaluated_runs(path)[0]
    predictor, judged = open_model(path, "auto"), own_images(path, run, part)
    scores, logits_NK = _judge(predictor, judged, run.threads)
    return scores, (logits_NK.argmax(1) == judged.labels).numpy(), judged.groups


def _judge(predictor: Predictor | Ensemble, judged: Judged, threads: int) -> tuple[dict[str, Any], Tensor]:
    with computing(threads):
        logits_NK = predictor.logits(judged.images, judged.rows)
    return summary(logits_NK, judged.labels, predictor.class_names, groups_N=judged.groups), logits_NK


def _was_left_out(path: Path, part: str) -> bool:
    """Of folds: each image is judged by the models that left it out, as it was stored; as one they were trained on all."""
    return part == "left_out" and is_folds(path)


def evaluated_runs(path: Path) -> list[RunFolder]:
    """The finished run, or those of a group, which share their images and their test part."""
    return _finished_members(path) if is_group(path) else [finished_run(path)]


def usual_part(folder: Path) -> str:
    """What is evaluated where no part is given: of folds without a test part, all that they left out."""
    return "left_out" if is_folds(folder) and "test" not in fold_results(folder)["parts"] else "test"


def own_images(path: Path, run: RunFolder, part: str, images: ImageSet | None = None) -> Judged:
    """A part of the run's own split; of `images` where these are its own, somewhere else."""
    images = images or read_plan(run).images
    parts = {name: rows for name, rows in read_split(run).parts.items() if len(rows)}
    if is_folds(path):  # what one trained on, another left out: as one model they have seen all
        parts = {name: rows for name, rows in parts.items() if name in ("test", "left_out")}
    else:
        parts["all"] = torch.arange(len(images))
    if part not in parts:
        raise UsageError(f"part {part!r} of {path} holds no images: choices: {', '.join(parts)}")
    return Judged(images, parts[part], images.labels_N[parts[part]], part, own=True)


def given_images(
    data: Data, predictor: Predictor | Ensemble, path: Path, runs: Sequence[RunFolder], part: str | None
) -> Judged:  # fmt: skip
    """Those of the run, where they are the same; else others, whose classes are matched by name."""
    p, names = predictor.preparation, predictor.class_names
    with lent(data) as source:
        # Named sets lie where that of the run does.
        images = open_source(Where(str(source), runs[0].recipe.data.dir)).load(p.cache_size, p.fit, p.in_chans, p.white)
    images = _in_groups(images, runs[0].recipe.data.groups)
    if is_same(runs[0], images):
        if is_source(data):
            with suppress(RunError):  # who may only read the run tells it again the next time
                relocate_known(runs, str(source))
        return own_images(path, runs[0], part or usual_part(path), images)
    unknown = [name for name in images.class_names if name not in names]
    if unknown:
        raise DataError(
            f"{source if is_source(data) else 'data'} has classes the model does not know: {', '.join(unknown[:5])}"
        )
    parts = {**images.parts, "all": torch.arange(len(images))}
    part = part or ("test" if "test" in parts else "all")
    if part not in parts:
        raise UsageError(f"--data {source}: it has no part {part!r}: choices: {', '.join(parts)}")
    rows = parts[part]
    number = torch.tensor([names.index(name) for name in images.class_names])
    return Judged(images, rows, number[images.labels_N[rows]], part, own=False)


def _in_groups(images: ImageSet, pattern: str) -> ImageSet:
    """Images with the groups that the run's `--groups` finds in their names, where they have none of their own."""
    if images.groups:
        return images
    try:
        return with_groups(images, pattern)
    except UsageError:
        warn(f"--groups {pattern} of the run does not fit the names of these files: they count as independent images")
        return images


# ---- probe -------------------------------------------------------------------------------------------


def probe(
    folder: str | Path, *, knn: bool = True, linear: bool = True, threads: int | None = None, device: str = "auto",
    data: str | Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What the frozen features of a finished run are worth, on its test part (else on its validation part).

    Works for every run, pretrained or trained. The features are kept in the run folder, the answers in probe.json. `data` is where
    its images are now, if they were moved.
    """
    run = finished_run(folder)
    relocate(folder, data)
    used = device_for(device, run)
    plan = read_plan(run)
    with computing(threads or run.threads):
        parts = frozen_parts(run, plan.images, plan.split, used)
        measured = probe_parts(parts, len(plan.images.class_names), knn=knn, linear=linear)
    measured["floors"] = floors_for(run.path, measured["part"])
    run.write("probe.json", measured)
    return measured


def floors_for(folder: str | Path, part: str) -> dict[str, Any]:
    """The floors of a run, or of folds together, where they were measured on this part."""
    path = Path(folder)
    if is_group(path) and not is_folds(path):
        path = replicate_members(path)[0].path  # seeds share them
    results = fold_results(path) if is_folds(path) else RunFolder(path).results
    return dict(results["floors"]) if results["evaluated_part"] == part else {}
