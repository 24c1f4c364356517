"""Which of the images that a model is judged by it was trained on: by the digest of their decoded pixels. N images, K classes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smallvit.console import are, bar, several
from smallvit.data.imageset import ImageSet
from smallvit.errors import RunError
from smallvit.evaluation.ensemble import log_of
from smallvit.evaluation.metrics import group_numbers, summary
from smallvit.planning.plan import read_plan
from smallvit.runs.folder import RunFolder
from smallvit.runs.stored_answers import StoredAnswers

AT_ONCE = 512


class Judged(NamedTuple):
    """The images that a model is judged by: which rows of a set, and their labels as the model numbers them."""

    images: ImageSet
    rows: Tensor
    labels: Tensor
    part: str
    own: bool  # the run's own, by its split

    @property
    def groups(self) -> NDArray[np.int64] | None:
        return group_numbers(self.images.groups, self.rows)


def about(judged: Judged, runs: Sequence[RunFolder], logits_NK: Tensor, class_names: tuple[str, ...]) -> dict[str, Any]:
    """What was judged, and what of it was not new to the models of these runs."""
    facts: dict[str, Any] = {"source": judged.images.source, "part": judged.part, "of_the_run": judged.own}
    known = _trained_on(runs, judged)
    if isinstance(known, str):
        return facts | {"trained_on": None, "unknown_because": known}
    is_new_N = torch.tensor([digest not in known for digest in pixel_digests(judged.images, judged.rows)])
    return facts | _without_known(is_new_N, logits_NK, judged.labels, class_names, judged.groups)


def about_folds(
    judged: Judged, runs: Sequence[RunFolder], answers: StoredAnswers, class_names: tuple[str, ...]
) -> dict[str, Any]:
    """The same of what folds left out, of which `answers` tell: an image is new to the model that was not trained on it."""
    facts: dict[str, Any] = {"source": judged.images.source, "part": judged.part, "of_the_run": judged.own}
    digests = pixel_digests(judged.images, torch.arange(len(judged.images)))
    known: set[int] = set()
    for run in runs:
        parts = run.read("split.json", "parts")["parts"]
        trained = {digests[row] for row in parts["train"]["rows"]}
        known |= {row for row in parts[judged.part]["rows"] if digests[row] in trained}
    is_new_N = torch.tensor([row not in known for row in answers.rows_N.tolist()])
    logits_NK, labels_N = log_of(torch.from_numpy(answers.probabilities_NK)), torch.from_numpy(answers.labels_N)
    groups_N = group_numbers(judged.images.groups, torch.from_numpy(answers.rows_N))
    return facts | _without_known(is_new_N, logits_NK, labels_N, class_names, groups_N)


def _without_known(
    is_new_N: Tensor, logits_NK: Tensor, labels_N: Tensor, class_names: tuple[str, ...],
    groups_N: NDArray[np.int64] | None,
) -> dict[str, Any]:  # fmt: skip
    known = int((~is_new_N).sum())
    if not 0 < known < len(is_new_N):
        return {"trained_on": known}
    own_N = None if groups_N is None else groups_N[is_new_N.numpy()]
    rest = summary(logits_NK[is_new_N], labels_N[is_new_N], class_names, groups_N=own_N)
    return {"trained_on": known, "not_trained_on": {key: rest[key] for key in ("n", "accuracy", "interval")}}


def in_words(judged: Mapping[str, Any], n: int) -> list[str]:
    """The same for the user, a line each."""
    whose = "of the run's own images" if judged["of_the_run"] else "of them"
    what = f"all {whose}" if judged["part"] == "all" else f"the {judged['part'].replace('_', '-')} part {whose}"
    lines = [f"judged: {what}, {several(n, 'image')}"]
    if (seen := judged["trained_on"]) is None:
        lines.append(f"how many of them it was trained on cannot be said: {judged['unknown_because']}")
    elif not seen:
        lines.append("it was trained on none of them, pixel for pixel")
    else:
        rest = judged.get("not_trained_on")
        without = (
            f"; without them it is {rest['accuracy']:.1%} ({rest['interval'][0]:.1%} to {rest['interval'][1]:.1%})"
            if rest
            else ""
        )
        lines.append(
            f"{are(seen, 'image', n)} among those that it was trained on, pixel for pixel: the accuracy is too good{without}"
        )
    return lines


def _trained_on(runs: Sequence[RunFolder], judged: Judged) -> set[bytes] | str:
    """Of all models that answer; or why that cannot be known."""
    digests: set[bytes] = set()
    done: set[tuple[int, ...]] = set()
    for run in runs:
        rows = run.read("split.json", "parts")["parts"]["train"]["rows"]
        if (key := tuple(rows)) in done:
            continue
        done.add(key)
        try:
            images = judged.images if judged.own else read_plan(run).images
        except RunError as error:
            return str(error)
        digests |= {*pixel_digests(images, torch.tensor(rows, dtype=torch.int64))}
    return digests


def pixel_digests(images: ImageSet, rows: Tensor) -> list[bytes]:
    found: list[bytes] = []
    with bar("looking for images that the model was trained on", len(rows)) as advance:
        for some in rows.split(AT_ONCE):
            pixels = images.images_NCSS[some].contiguous().numpy()
            found += [hashlib.blake2b(image, digest_size=16).digest() for image in pixels]
            advance(len(some))
    return found
