"""After the last step: judge the chosen weights, and write what report, prediction and comparison read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.data.dealing import places_of_classes
from smallvit.data.imageset import ImageSet
from smallvit.data.split import Split
from smallvit.errors import RunError
from smallvit.evaluation.calibration import calibration
from smallvit.evaluation.floors import beside
from smallvit.evaluation.metrics import group_numbers, summary, worst_mistakes
from smallvit.evaluation.model_file import read_tensors, write_tensors
from smallvit.models.features import count_parameters
from smallvit.objectives.base import Answers, Shown
from smallvit.recipe import resolved
from smallvit.runs.folder import RunFolder
from smallvit.training.checkpoint import model_header, save_model
from smallvit.training.loop import Training
from smallvit.training.session import computing, train_seconds

MOST_MISTAKES, MISTAKE_SIDE = 24, 96
MOST_EXAMPLES, EXAMPLE_SIDE = 104, 64  # one for each of 102 flowers
EXAMPLES_PER_CLASS = 8


def finish(
    run: RunFolder, t: Training, images: ImageSet, split: Split, floors: dict[str, Any], collapse: str = ""
) -> None:  # fmt: skip
    """results.json is written last: a run that has it is finished. `collapse` says why it ended early, if it did."""
    which, epoch = _choose_weights(run.path, t)
    rows = split.judged
    objective = t.step.objective
    answers = _answers(t, rows) if len(images.class_names) > 1 else {}
    part = next(iter(answers), None)
    # Votes of neighbours are no probabilities that anyone would use.
    measured = calibration(answers, part) if part and objective.classifies else {}
    if (temperature := measured.get("temperature")) and t.recipe.data.calibrate:
        answers = {name: (logits_NK / temperature, labels_N) for name, (logits_NK, labels_N) in answers.items()}
        measured["used"] = True
    # A pretrained model has no classifier, so its file names no classes.
    header = model_header(t, images.class_names if objective.classifies else (), which, epoch)
    header |= {"temperature": temperature, "objective": objective.name}
    save_model(run.path / "model.safetensors", t.evaluated, header)
    results: dict[str, Any] = {
        "evaluated_part": part,
        "judged_by": objective.judged_by,
        "parts": {
            name: summary(*pair, images.class_names, groups_N=group_numbers(images.groups, rows[name]))
            for name, pair in answers.items()
        },
        "floors": beside(floors, _right(answers, part), group_numbers(images.groups, rows[part]) if part else None),
        "calibration": measured,
        "weights": header["weights"],
        **({"collapse": collapse} if collapse else {}),
        "timing": {"train_seconds": train_seconds(run.path)},
        "model": {
            "name": t.recipe.model.name,
            "parameters": count_parameters(t.evaluated),
            "grid": list(t.evaluated.final_grid),
        },
    }
    pictures, captions = example_pictures(images, split.train)
    results["examples"] = captions
    results["mistakes"] = []
    if part:
        wrong = worst_mistakes(*answers[part], MOST_MISTAKES)
        pictures["mistakes"] = thumbnails(images.images_NCSS[rows[part][wrong]], MISTAKE_SIDE)
        results["mistakes"] = describe(images, rows[part], *answers[part], wrong)
        _store_answers(run.path, part, rows[part], answers, group_numbers(images.groups, rows[part]))
    if shown := _shown(t, split):
        pictures["shown"] = thumbnails(shown.pixels_NKCSS.flatten(0, 1).cpu(), MISTAKE_SIDE)
        results["shown"] = {"title": shown.title, "words": shown.words, "columns": shown.columns}
    write_tensors(run.path / "images.safetensors", pictures, {})
    run.write("results.json", results)


def _answers(t: Training, rows: Mapping[str, Tensor]) -> dict[str, Answers]:
    """Logits and labels of the parts that hold images."""
    with computing(resolved(t.recipe.threads)):
        return {
            part: t.step.objective.answers(t.evaluated, t.exam(part_rows))
            for part, part_rows in rows.items()
            if len(part_rows)
        }


def _store_answers(
    folder: Path, part: str, rows_N: Tensor, answers: dict[str, Answers], groups_N: np.ndarray | None
) -> None:
    """Takes the logits with it: with many classes there is no room for them beside probabilities and the file."""
    logits_NK, labels_N = answers.pop(part)
    tensors = {"probabilities": logits_NK.softmax(1), "labels": labels_N, "rows": rows_N}
    tensors |= {} if groups_N is None else {"groups": torch.from_numpy(groups_N)}
    del logits_NK
    write_tensors(folder / "predictions.safetensors", tensors, {"part": part})


def _shown(t: Training, split: Split) -> Shown | None:
    """What the objective wants to be seen, of images that were held out where some were."""
    with computing(resolved(t.recipe.threads)):
        return t.step.objective.shown(t.evaluated, t.exam(next(iter(split.judged.values()), split.val)))


def _choose_weights(folder: Path, t: Training) -> tuple[str, int]:
    """Put the best weights in place where they were asked for; say which they are and their epoch."""
    best = folder / "state" / "best.safetensors"
    if t.recipe.select == "best" and best.is_file():
        tensors, header = read_tensors(best)
        try:
            t.evaluated.model.load_state_dict(tensors)
            return "best", int(header["epoch"]) + 1
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{best} does not fit the model of its recipe: {error}") from None
    return "last", -(-t.done // len(t.loader))  # an epoch that was cut short counts


def example_pictures(images: ImageSet, trained: Tensor) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Several training images of every class, as they come, the classes taking turns."""
    labels = images.labels_N[trained]
    turns = torch.zeros_like(labels)
    for places in places_of_classes(labels).values():
        turns[places] = torch.arange(len(places))
    each = min(EXAMPLES_PER_CLASS, max(1, MOST_EXAMPLES // len(images.class_names)))
    rows = trained[(turns * len(images.class_names) + labels).argsort()]
    rows = rows[: min(MOST_EXAMPLES, int((turns < each).sum()))]
    captions = [{"label": images.class_names[images.labels_N[row]], "file": images.files[row]} for row in rows.tolist()]
    return {"examples": thumbnails(images.images_NCSS[rows], EXAMPLE_SIDE)}, captions


def thumbnails(pixels: Tensor, side: int) -> Tensor:
    """Small pictures that a page can show: of more than three channels the first three, of two the first."""
    if (channels := pixels.shape[1]) not in (1, 3):
        pixels = pixels[:, : 3 if channels > 3 else 1]
    if pixels.shape[-1] <= side or not len(pixels):
        return pixels
    return F.interpolate(pixels, (side, side), mode="bilinear", antialias=True)


def _right(answers: Mapping[str, tuple[Tensor, Tensor]], part: str | None) -> np.ndarray:
    """(N,) which images of the part that judges are labelled correctly."""
    if part is None:
        return np.zeros(0, dtype=bool)
    logits_NK, labels_N = answers[part]
    return (logits_NK.argmax(1) == labels_N).numpy()


def describe(
    images: ImageSet, rows: Tensor, logits_NK: Tensor, labels_N: Tensor, wrong: Tensor
) -> list[dict[str, Any]]:
    return [
        {
            "file": images.files[int(rows[place])],
            "true": images.class_names[int(labels_N[place])],
            "predicted": images.class_names[int(probabilities_K.argmax())],
            "probability": float(probabilities_K.max()),
            "true_probability": float(probabilities_K[labels_N[place]]),
        }
        for place, probabilities_K in zip(wrong.tolist(), logits_NK[wrong].softmax(1), strict=True)
    ]
