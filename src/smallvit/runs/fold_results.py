"""What the folds of a group reach together: every image judged by models that were not trained on it.

The group's folder then reads as that of a run: results.json, predictions.safetensors, images.safetensors. Beside them lie the
labels that are probably wrong. N images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smallvit.console import say
from smallvit.data.imageset import ImageSet
from smallvit.errors import RunError
from smallvit.evaluation.calibration import calibration
from smallvit.evaluation.ensemble import log_of
from smallvit.evaluation.label_errors import may_doubt, suspected_labels
from smallvit.evaluation.metrics import group_numbers, summary, worst_mistakes
from smallvit.evaluation.model_file import write_tensors
from smallvit.evaluation.statistics import wilson
from smallvit.planning.plan import read_plan
from smallvit.report.cells import file_cell, name_cell, write_rows
from smallvit.runs.atomic import replacing
from smallvit.runs.folder import RunFolder, write_json
from smallvit.runs.inference import evaluate
from smallvit.runs.members import Member, replicate_members
from smallvit.runs.stored_answers import read_answers
from smallvit.training.finish import MISTAKE_SIDE, MOST_MISTAKES, describe, example_pictures, thumbnails

PART = "left_out"
MOST_SHOWN = 48  # suspected labels with pictures; label-errors.csv has all
COLUMNS = ("file", "given", "said", "probability", "given_probability")


class LeftOut(NamedTuple):
    """The answers for all images that were left out, in the order of the set."""

    rows_N: Tensor
    labels_N: Tensor
    fold_N: Tensor
    probabilities_NK: Tensor  # of the runs that left an image out, their mean


def finish_folds(folder: Path) -> None:
    """Judge the finished folds of a group together; results.json is written last."""
    if (folder / "results.json").is_file():
        return
    say("judging the folds together")
    members = replicate_members(folder)
    runs = [RunFolder(member.path) for member in members]
    plan, found = read_plan(runs[0]), left_out(members)
    pictures, captions = example_pictures(plan.images, found.rows_N)
    logits_NK, judged = log_of(found.probabilities_NK), _judged(found, plan.images)
    results = {
        "evaluated_part": PART,
        "judged_by": "classifier",
        "folds": runs[0].recipe.data.folds,
        "runs": len(runs),
        "parts": {PART: judged, **_on_test(folder, runs[0])},
        "floors": _floors([run.results for run in runs], len(runs) // (runs[0].recipe.data.folds or 1)),
        "calibration": calibration({PART: (logits_NK, found.labels_N)}, PART),
        "weights": runs[0].results["weights"],
        "timing": {"train_seconds": sum(run.results["timing"]["train_seconds"] for run in runs)},
        "model": runs[0].results["model"],
        "examples": captions,
    }
    suspects, places = _suspects(found, plan.images) if may_doubt(judged) else ([], torch.zeros(0, dtype=torch.int64))
    wrong = worst_mistakes(logits_NK, found.labels_N, len(found.rows_N))
    wrong = wrong[~torch.isin(wrong, places)][:MOST_MISTAKES]  # a suspected label is shown as that
    pictures["mistakes"] = thumbnails(plan.images.images_NCSS[found.rows_N[wrong]], MISTAKE_SIDE)
    results["mistakes"] = describe(plan.images, found.rows_N, logits_NK, found.labels_N, wrong)
    pictures["label_errors"] = thumbnails(plan.images.images_NCSS[found.rows_N[places[:MOST_SHOWN]]], MISTAKE_SIDE)
    results |= {"label_errors": suspects[:MOST_SHOWN], "suspected_labels": len(suspects)}
    _write_suspects(folder / "label-errors.csv", suspects)
    stored = {"probabilities": found.probabilities_NK, "labels": found.labels_N, "rows": found.rows_N}
    groups_N = group_numbers(plan.images.groups, found.rows_N)
    stored |= {} if groups_N is None else {"groups": torch.from_numpy(groups_N)}
    write_tensors(folder / "predictions.safetensors", stored | {"folds": found.fold_N}, {"part": PART})
    write_tensors(folder / "images.safetensors", pictures, {})
    write_json(folder / "results.json", results)


def left_out(members: Sequence[Member]) -> LeftOut:
    """Every image once; what several seeds say of it is averaged."""
    said: dict[int, list[Tensor]] = {}
    about: dict[int, tuple[int, int]] = {}
    for path, place in members:
        part, rows_N, labels_N, probabilities_NK, _ = read_answers(path)
        if part != PART:
            raise RunError(f"{path} was judged on its {part} part, not on what a fold leaves out")
        for row, label, answer_K in zip(
            rows_N.tolist(), labels_N.tolist(), torch.from_numpy(probabilities_NK), strict=True
        ):
            if about.setdefault(row, (label, place.fold or 0)) != (label, place.fold or 0):
                raise RunError(f"{path} and another fold of its group leave out the same image, number {row}")
            said.setdefault(row, []).append(answer_K)
    rows = sorted(said)
    labels_N, fold_N = torch.tensor([about[row] for row in rows]).T
    return LeftOut(torch.tensor(rows), labels_N, fold_N, torch.stack([torch.stack(said[row]).mean(0) for row in rows]))


def _judged(found: LeftOut, images: ImageSet) -> dict[str, Any]:
    """As of a run, but the intervals know that images of a fold share a model, and those of a group a scene."""
    right_N = (found.probabilities_NK.argmax(1) == found.labels_N).double().numpy()
    of_fold = {int(fold): float(right_N[(found.fold_N == fold).numpy()].mean()) for fold in found.fold_N.unique()}
    told = summary(
        log_of(found.probabilities_NK), found.labels_N, images.class_names, folds_N=found.fold_N.numpy(),
        groups_N=group_numbers(images.groups, found.rows_N),
    )  # fmt: skip
    return told | {"of_fold": of_fold}


def _on_test(folder: Path, run: RunFolder) -> dict[str, Any]:
    """What the folds reach as one model on a test part that none of them was trained on, where there is one."""
    return {"test": evaluate(folder, "test")} if "test" in run.results["parts"] else {}


def _floors(results: Sequence[Mapping[str, Any]], seeds: int) -> dict[str, Any]:
    """Each simple method over all folds: every image judged where it was left out, and counted once for all seeds of a fold."""
    floors: dict[str, Any] = {}
    for name, floor in results[0]["floors"].items():
        pairs = [(of_fold["floors"][name]["accuracy"], of_fold["parts"][PART]["n"]) for of_fold in results]
        correct, n = sum(accuracy * n for accuracy, n in pairs) / seeds, sum(n for _, n in pairs) // seeds
        floors[name] = floor | {"accuracy": correct / n, "interval": wilson(correct, n)}
        for of_one in ("balanced_accuracy", "ahead_over_groups", "p_over_groups"):
            floors[name].pop(of_one, None)  # that of all images is not the mean of those of the folds
        for key in ("n", "only_model", "only_floor"):  # older folds have none
            if all(key in of_fold["floors"][name] for of_fold in results):
                floors[name][key] = round(sum(of_fold["floors"][name][key] for of_fold in results) / seeds)
    return floors


def _suspects(found: LeftOut, images: ImageSet) -> tuple[list[dict[str, Any]], Tensor]:
    """Labels that are probably wrong, the surest first, with their places among the images."""
    places, said, _ = suspected_labels(found.probabilities_NK, found.labels_N)
    suspects = [
        {
            "file": images.files[int(found.rows_N[place])],
            "given": images.class_names[int(found.labels_N[place])],
            "said": images.class_names[klass],
            "probability": round(float(found.probabilities_NK[place, klass]), 6),
            "given_probability": round(float(found.probabilities_NK[place, found.labels_N[place]]), 6),
        }
        for place, klass in zip(places.tolist(), said.tolist(), strict=True)
    ]
    return suspects, places


def _write_suspects(path: Path, suspects: Sequence[Mapping[str, Any]]) -> None:
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, [COLUMNS, *map(_cells, suspects)])


def _cells(suspect: Mapping[str, Any]) -> list[Any]:
    names = {"file": file_cell, "given": name_cell, "said": name_cell}
    return [names[column](suspect[column]) if column in names else suspect[column] for column in COLUMNS]
