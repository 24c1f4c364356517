"""What is done with a finished run: evaluate it on a part or on other images, label files, probe its features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smallvit.console import bar, say
from smallvit.data.images import FULL_WHITE, Unreadable, many_reads, read_image
from smallvit.data.imageset import Images
from smallvit.data.sources import image_files, open_source
from smallvit.errors import DataError, RunError, UsageError
from smallvit.evaluation.metrics import predict_logits, summary
from smallvit.planning.plan import read_plan
from smallvit.recipe import resolved
from smallvit.runs.folder import RunFolder
from smallvit.training.checkpoint import LoadedModel, load_model
from smallvit.training.frozen import frozen_parts, probe_parts
from smallvit.training.session import fixed_threads


def evaluate(
    folder: str | Path, part: str = "test", data: str | Path | None = None, *, threads: int | None = None
) -> dict[str, Any]:
    """Accuracy with interval, per class, on a part of the run's own split or on other images of the same classes.

    `threads` are those of the run where they are not given, here and below: another number gives other last bits.
    """
    run = RunFolder(folder)
    loaded = _trained_model(run)
    names = tuple(loaded.header["class_names"])
    if data is not None:
        images, rows, labels = _other_images(str(data), loaded)
    else:
        plan = read_plan(run)
        parts = dict(zip(("train", "val", "test"), plan.split[:3], strict=True))
        if part not in parts or not len(parts[part]):
            has = [name for name, rows in parts.items() if len(rows)]
            raise UsageError(f"part {part!r} of {run.path} holds no images: choices: {', '.join(has)}")
        images, rows = plan.images.images_NCSS, parts[part]
        labels = plan.images.labels_N[rows]
    with fixed_threads(threads or resolved(run.recipe.threads)):
        found = predict_logits(loaded.backbone, _batches(loaded, images, rows, labels))
    return summary(*found, names)


def _trained_model(run: RunFolder) -> LoadedModel:
    if not run.finished:
        raise RunError(f"{run.path} is not finished: go on with `smallvit resume {run.path}`")
    return _with_classes(load_model(run.path / "model.safetensors"), run.path)


def _with_classes(loaded: LoadedModel, path: Path) -> LoadedModel:
    if not loaded.header["class_names"]:
        labelled = (path / "split.json").is_file() and len(
            RunFolder(path).read("split.json", "class_names")["class_names"]
        ) > 1
        probed = f", or see what its features are worth with `smallvit probe {path}`" if labelled else ""
        raise UsageError(
            f"{path} was pretrained and knows no classes: train it with `smallvit train DATA --init {path}`{probed}"
        )
    return loaded


def _other_images(source: str, loaded: LoadedModel) -> tuple[Images, Tensor, Tensor]:
    """Images of another source, which rows of them, and their labels: classes are matched by name."""
    h = loaded.header
    images = open_source(source).load(h["cache_size"], h["fit"], h["in_chans"], h.get("white", FULL_WHITE))
    unknown = [name for name in images.class_names if name not in h["class_names"]]
    if unknown:
        raise DataError(f"{source} has classes the model does not know: {', '.join(unknown[:5])}")
    rows = images.parts.get("test", torch.arange(len(images)))
    number = torch.tensor([h["class_names"].index(name) for name in images.class_names])
    return images.images_NCSS, rows, number[images.labels_N[rows]]


def _batches(loaded: LoadedModel, images: Images, rows: Tensor, labels: Tensor) -> Any:
    for some, their_labels in zip(rows.split(256), labels.split(256), strict=True):
        yield loaded.augmenter.prepare(images[some], loaded.header["img_size"]), their_labels


class Prediction(NamedTuple):
    file: str
    label: str | None  # None: the file could not be read
    probability: float | None
    problem: str = ""


def predict(
    folder: str | Path,
    files: str | Path | Sequence[str | Path],
    *,
    calibrated: bool = False,
    threads: int | None = None,
) -> list[Prediction]:
    """Label and probability of every image file, those below folders included. `folder` is a run or its model file.

    `calibrated` divides the logits by the temperature that suited the validation part: other probabilities, the same
    labels. `threads` are torch's own choice where they are not given: a model file has no run to take them from.
    """
    path = Path(folder)
    loaded = _with_classes(load_model(path), path) if path.suffix == ".safetensors" else _trained_model(RunFolder(path))
    temperature = _temperature(path, loaded) if calibrated else 1.0
    found = list(_expand([files] if isinstance(files, str | Path) else files))
    answers: list[Prediction] = []
    with fixed_threads(threads or torch.get_num_threads()), many_reads(), bar("predicting", len(found)) as advance:
        for start in range(0, len(found), 64):
            some = found[start : start + 64]
            answers += _predict_some(loaded, some, temperature)
            advance(len(some))
    return answers


def _temperature(path: Path, loaded: LoadedModel) -> float:
    temperature = loaded.header.get("temperature")
    if temperature is None:
        raise UsageError(f"{path} has no temperature: it takes a run with a validation and a test part to fit one")
    say(f"probabilities at temperature {temperature:.4g}, fitted on the run's validation part")
    return float(temperature)


def _predict_some(loaded: LoadedModel, files: Sequence[Path], temperature: float = 1.0) -> list[Prediction]:
    h, images, answers = loaded.header, [], {}
    for file in files:
        try:
            images.append(
                (file, read_image(file, h["cache_size"], h["fit"], h["in_chans"], h.get("white", FULL_WHITE)))
            )
        except Unreadable as error:
            answers[file] = Prediction(str(file), None, None, str(error))
    if images:
        pixels, rows = torch.stack([image for _, image in images]), torch.arange(len(images))
        logits, _ = predict_logits(loaded.backbone, _batches(loaded, pixels, rows, torch.zeros(len(images))))
        for (file, _), (probability, index) in zip(
            images, zip(*(logits / temperature).softmax(1).max(1), strict=True), strict=True
        ):
            answers[file] = Prediction(str(file), h["class_names"][int(index)], round(float(probability), 6))
    return [answers[file] for file in files]


def _expand(files: Sequence[str | Path]) -> Any:
    for name in files:
        path = Path(name)
        if path.is_dir():
            inside = image_files(path)
            if not inside:
                raise DataError(f"no images below {path}")
            yield from inside
        else:
            yield path  # a missing file is an answer too: it is listed with the unreadable ones


def probe(folder: str | Path, *, knn: bool = True, linear: bool = True, threads: int | None = None) -> dict[str, Any]:
    """What the frozen features of a finished run are worth, on its test part (else on its validation part).

    Works for every run, pretrained or trained. The features are kept in the run folder, the answers in probe.json.
    """
    run = RunFolder(folder)
    if not run.finished:
        raise RunError(f"{run.path} is not finished: go on with `smallvit resume {run.path}`")
    plan = read_plan(run)
    with fixed_threads(threads or resolved(run.recipe.threads)):
        parts = frozen_parts(run, plan.images, plan.split)
        found = probe_parts(parts, len(plan.images.class_names), knn=knn, linear=linear)
    found["floors"] = floors_for(run.path, found["part"])
    run.write("probe.json", found)
    return found


def floors_for(folder: str | Path, part: str) -> dict[str, Any]:
    """The floors of a run, where they were measured on this part."""
    results = RunFolder(folder).results
    return dict(results["floors"]) if results["evaluated_part"] == part else {}
