"""`smallvit diagnose`: measure a finished run, and store what was found in its folder.

RUN/findings/NAME.json holds the sentence and its numbers, NAME.safetensors beside it the arrays that the report draws.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smallvit.data.imageset import ImageSet
from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.inputs import PER_BATCH, Inputs, Known, Labelled, Other
from smallvit.diagnosis.measure import measure
from smallvit.diagnosis.measurements.base import SHOWN
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import load_model, write_tensors
from smallvit.evaluation.predictor import Predictor
from smallvit.models.aliases import architecture
from smallvit.models.features import Backbone, check_model_name, create_backbone
from smallvit.models.starting_weights import give_weights
from smallvit.planning.plan import Plan, read_plan
from smallvit.randomness import generator
from smallvit.recipe import resolved
from smallvit.runs.atomic import write_text
from smallvit.runs.inference import device_for, finished_run
from smallvit.runs.members import full_name
from smallvit.runs.stored_findings import FINDINGS, VERSION
from smallvit.training.session import computing


def diagnose(
    folder: str | Path,
    against: str | Path | None = None,
    images: int = 256,
    threads: int | None = None,
    device: str = "auto",
) -> list[Finding]:
    """Measure a run on some of its own images, the weightiest finding first.

    `against` is another run, or the name of a model, which is then compared as it is before training.
    """
    run = finished_run(folder)
    if against is not None and Path(against).resolve() == run.path.resolve():
        raise UsageError(
            f"--against {against}: it is the run itself, whose layers are compared among themselves anyway"
        )
    if images < 8:
        raise UsageError(f"--images {images}: give at least 8")
    predictor, header = load_model(run.path / "model.safetensors", device_for(device, run))
    if not predictor.class_names or run.recipe.objective.name != "supervised":
        raise UsageError(f"{run.path} was not trained to classify: diagnose looks at classifiers")
    plan = read_plan(run)
    part, rows = _judged_rows(plan, images)
    train_rows = _some(plan.split.train, images, "train")
    with computing(threads or run.threads):
        judged, train = (_labelled(predictor, plan.images, some) for some in (rows, train_rows))
        order = _telling_first(judged)
        rows, judged = rows[order], Labelled(*(column[order] for column in judged))
        other = None if against is None else _other(against, predictor, plan.images, rows)
        untrained = _untrained(predictor, header["model"], header["kwargs"], plan.recipe.model.weights)
        findings = measure(Inputs(predictor.backbone, untrained, judged, train, _known(plan, part), other))
        findings.append(_pictures(predictor, plan.images, rows, judged))
    _store(run.path / FINDINGS, findings)
    return findings


def _known(plan: Plan, part: str) -> Known:
    floors = {floor["label"]: floor["accuracy"] for floor in plan.floors.values() if floor.get("accuracy") is not None}
    best = max(floors, key=lambda label: floors[label], default="")
    model, augment = plan.recipe.model, plan.recipe.augment
    return Known(
        part, len(plan.images.class_names), best, floors.get(best, 0.0), model.name, model.weights,
        varied=bool(resolved(augment.trivial) or augment.randaugment),
    )  # fmt: skip


def _judged_rows(plan: Plan, images: int) -> tuple[str, Tensor]:
    """Rows of what a fold left out, of the test part, or else of the validation part; without any, of the training part."""
    split = plan.split
    named = {"left-out": split.left_out, "test": split.test, "validation": split.val, "training": split.train}
    for part, rows in named.items():
        if len(rows) >= 8:
            return part, _some(rows, images, part)
    raise UsageError("diagnose needs at least 8 images in a part of the split")


def _some(rows: Tensor, most: int, purpose: str) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator(0, "diagnose", purpose))[:most]]


def _labelled(predictor: Predictor, images: ImageSet, rows: Tensor) -> Labelled:
    """Prepared and predicted here, once for everything that is measured of them."""
    images_NCHW = predictor.prepared(images, rows)
    return Labelled(images_NCHW, images.labels_N[rows], predictor.logits_of(images_NCHW.split(PER_BATCH)))


def _untrained(predictor: Predictor, timm_name: str, kwargs: dict[str, Any], weights: str = "usual") -> Backbone:
    """A model before training, for the images and classes of the one that is diagnosed."""
    takes = predictor.preparation
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        untrained = create_backbone(
            timm_name, kwargs, num_classes=len(predictor.class_names), in_chans=takes.in_chans, img_size=takes.img_size
        )
        give_weights(untrained.model, weights, timm_name)
    return untrained.to(predictor.device).eval()


def _other(against: str | Path, predictor: Predictor, images: ImageSet, rows: Tensor) -> Other:
    takes = predictor.preparation
    if Path(against).exists():
        second, header = load_model(finished_run(against).path / "model.safetensors", predictor.device)
        if (second.preparation.in_chans, second.preparation.cache_size) != (takes.in_chans, takes.cache_size):
            raise UsageError(f"{against} takes images of other channels or size: the two cannot see the same images")
        model, folder = header["model"], full_name(Path(against))
        name = model if folder == model else f"{model} ({folder})"
        return Other(second.backbone.model, second.prepared(images, rows), name)
    check_model_name(str(against))
    backbone = _untrained(predictor, *architecture(str(against), takes.img_size))
    return Other(backbone.model, predictor.prepared(images, rows), f"{against} (untrained)")


def _telling_first(judged: Labelled) -> Tensor:
    """The order of the images: first those that are shown, half of them surely right and half surely wrong."""
    sure, answers = judged.logits_NK.softmax(1).max(1)
    order = sure.argsort(descending=True)
    is_right = (answers == judged.labels_N)[order]
    right, wrong = order[is_right], order[~is_right]
    wrongs = min(len(wrong), max(SHOWN // 2, SHOWN - len(right)))
    shown = torch.cat([right[: SHOWN - wrongs], wrong[:wrongs]])
    rest = torch.ones(len(order), dtype=torch.bool).index_fill(0, shown, False)
    return torch.cat([shown, rest.nonzero()[:, 0]])


def _pictures(predictor: Predictor, images: ImageSet, rows: Tensor, judged: Labelled) -> Finding:
    """The images that attention and feature maps are shown on, with true and predicted class."""
    shown = rows[:SHOWN]
    pixels = images.images_NCSS[shown]
    size = predictor.preparation.img_size
    top = (pixels.shape[-1] - size) // 2
    pixels = pixels[:, : 3 if pixels.shape[1] > 2 else 1, top : top + size, top : top + size]
    names = predictor.class_names
    labels = {
        "true": [names[int(label)] for label in judged.labels_N[:SHOWN]],
        "predicted": [names[int(answer)] for answer in judged.logits_NK[:SHOWN].argmax(1)],
        "files": [images.files[int(row)] for row in shown],
    }
    return Finding("pictures", {"pixels": pixels.numpy().astype(np.uint8)}, {}, labels)


def _store(folder: Path, findings: list[Finding]) -> None:
    """Each finding is replaced whole; what an earlier diagnosis left and this one lacks is removed."""
    folder.mkdir(exist_ok=True)
    names = {finding.name for finding in findings}
    for finding in findings:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in finding.arrays.items()}
        write_tensors(folder / f"{finding.name}.safetensors", tensors, {})
        about = {
            "version": VERSION, "name": finding.name, "verdict": finding.verdict, "weight": finding.weight,
            "numbers": finding.numbers, "labels": {key: list(value) for key, value in finding.labels.items()},
        }  # fmt: skip
        write_text(folder / f"{finding.name}.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    for stale in folder.iterdir():
        if stale.suffix in (".json", ".safetensors") and stale.stem not in names:
            stale.unlink()
