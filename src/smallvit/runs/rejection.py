"""`evaluate --reject 0.05`: the doubt from which a finished run says "unknown", in its folder as reject.json.

Calibrated on the validation part of a run, or on what folds left out; never on the test part, which tells what it comes
to. `predict --reject 0.05` takes it from there. N images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smallvit.data.imageset import ImageSet
from smallvit.data.kept import Data
from smallvit.errors import UsageError
from smallvit.evaluation.ensemble import Ensemble
from smallvit.evaluation.predictor import Predictor
from smallvit.evaluation.rejection import CONFIDENCE, calibrate, coverage_curve, doubts
from smallvit.evaluation.rejection import judged as judge
from smallvit.runs.folder import RunFolder
from smallvit.runs.inference import check_classes, evaluated_runs, given_images, open_model, own_images, usual_part
from smallvit.runs.members import is_folds, is_group
from smallvit.runs.rejected import check_error, store_rejection
from smallvit.runs.seen import Judged
from smallvit.runs.stored_answers import read_answers
from smallvit.training.session import computing


class Answered(NamedTuple):
    doubt_N: NDArray[np.float64]
    right_N: NDArray[np.bool_]


def calibrate_rejection(
    folder: str | Path, error: float, part: str | None = None, data: Data = None, *, threads: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """The threshold with what it promises, and what it comes to on the part (or `data`) that is evaluated; stored with the run.

    Where there is none the record says why (`why_not`). Coverage against accuracy is there in both cases.
    """
    path = Path(folder)
    check_error(error)
    runs = evaluated_runs(path)
    predictor = open_model(path, device)
    check_classes(predictor, path)
    with computing(threads or runs[0].threads):
        given = None if data is None else given_images(data, predictor, path, runs, part)
        own = given.images if given and given.own else None
        part = given.part if given else part or usual_part(path)
        basis, held_out, cautions = _held_out(path, runs[0], predictor, own)
        shown = held_out
        if (own is None and given) or part != basis:
            shown = _answered(predictor, given or own_images(path, runs[0], part), is_folds(path))
    found = calibrate(held_out.doubt_N, held_out.right_N, error)
    record: dict[str, Any] = {
        "error": error,
        "confidence": CONFIDENCE,
        "calibrated_on": {"part": basis, "n": len(held_out.doubt_N)},
        "cautions": cautions,
    }
    if isinstance(found, str):
        record["why_not"] = found
    else:
        doubt = None if math.isinf(found.doubt) else found.doubt  # JSON has no infinity; None: all are answered
        record |= {"doubt": doubt, "answered": found.answered, "wrong": found.wrong, "thresholds_tried": found.steps}
        record["reached"] = judge(*shown, found.doubt)
    is_other = given is not None and not given.own
    of = {"part": "other images" if is_other else part, "on_own_images": shown is held_out}
    record["judged_on"] = of | {"n": len(shown.doubt_N), "curve": coverage_curve(*shown)}
    if not is_other:
        store_rejection(path, record)
    return record


def _held_out(
    path: Path, run: RunFolder, predictor: Predictor | Ensemble, images: ImageSet | None
) -> tuple[str, Answered, list[str]]:
    """Which part calibrates, what the model said of it, and what weakens the promise. `images`: the run's own, if moved."""
    cautions: list[str] = []
    if is_folds(path):
        stored = read_answers(path)
        right_N = stored.probabilities_NK.argmax(1) == stored.labels_N
        cautions.append(
            "each image was answered by the model that had left it out; together, as `predict` asks them, the models of the folds "
            "are another model, usually a better one, of which nothing is promised: images of a test part show what it comes to"
        )
        part, answered = "left_out", Answered(doubts(stored.probabilities_NK), right_N)
    else:
        part = "val"
        try:
            held_out = own_images(path, run, part, images)
        except UsageError:
            raise UsageError(
                f"--reject: {path} has no validation part to calibrate on, and the test part is for judging alone: train with "
                "--val 0.15, or with --folds 5"
            ) from None
        answered = _answered(predictor, held_out, as_told=False)
        if run.recipe.select == "best":
            cautions.append(
                "the validation images also chose the weights (select = best): a little less is promised than it says"
            )
    if run.has_groups:
        cautions.append("images of one group are not independent: the promise is that of as many groups, not images")
    return part, answered, cautions


def _answered(predictor: Predictor | Ensemble, judged: Judged, as_told: bool) -> Answered:
    """As trained: a temperature that was fitted on the calibration images must not move their order. Of folds as stored."""
    probabilities_NK = predictor.probabilities(judged.images, judged.rows, calibrated=None if as_told else False)
    return Answered(doubts(probabilities_NK.numpy()), (probabilities_NK.argmax(1) == judged.labels).numpy())


def with_doubt(predictor: Predictor | Ensemble, path: Path, calibrated: bool | None) -> Callable[[Tensor], Tensor]:
    """(B, K + 1) of prepared squares: the probabilities as they are wanted, and the doubt that the threshold is about."""
    basis = None if is_group(path) and is_folds(path) else False

    def ask(squares_BCSS: Tensor) -> Tensor:
        wanted_BK = predictor.probabilities(squares_BCSS, calibrated=calibrated)
        same = not predictor.temperatures or calibrated is basis
        plain_BK = wanted_BK if same else predictor.probabilities(squares_BCSS, calibrated=basis)
        doubt_B = torch.from_numpy(doubts(plain_BK.numpy()))
        return torch.cat([wanted_BK.double(), doubt_B[:, None]], 1)

    return ask
