"""What a model said of files, as files: a CSV of predictions, an .npz of features. Unreadable ones are listed."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from smallvit.console import several
from smallvit.data.listed import shown
from smallvit.runs.atomic import replacing

if TYPE_CHECKING:
    from smallvit.types import Embedding, Prediction


def write_predictions(
    answers: Sequence[Prediction], path: Path | None, top: int = 1, probabilities: bool = False
) -> int:
    """CSV to a file or standard output; the unreadable files go to standard error. Returns their number.

    `top` adds columns for the likeliest classes after the first, `probabilities` one for every class; the nearest training
    images have three each, where they were asked for.
    """
    good = [(answer, answer.probabilities) for answer in answers if answer.probabilities is not None]
    classes = list(good[0][1]) if good else []
    more = [f"{word}_{place}" for place in range(2, min(top, len(classes)) + 1) for word in ("label", "probability")]
    near = max((len(answer.nearest) for answer, _ in good), default=0)
    more += [f"{word}_{place}" for place in range(1, near + 1) for word in ("nearest", "nearest_label", "similarity")]
    header = ["label", "probability", "file", *more, *(f"p_{name}" for name in classes if probabilities)]
    rows = [
        [a.label, a.probability, a.file, *(value for pair in a.top(top)[1:] for value in pair)]
        + [value for known in a.nearest for value in (known.file, known.label, known.similarity)]
        + [of_class[name] for name in classes if probabilities]
        for a, of_class in good
    ]
    if path is None:
        told = [[*row[:2], shown(str(row[2])), *row[3:]] for row in rows]
        csv.writer(sys.stdout, lineterminator="\n").writerows([header, *told])
    else:
        # surrogateescape: a file name that is not UTF-8 is written as the bytes it has.
        with (
            replacing(path) as part,
            part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
        ):
            csv.writer(file, lineterminator="\n").writerows([header, *rows])
        print(f"{several(len(rows), 'prediction')} in {path}", file=sys.stderr)
    return _list_unreadable([(answer.file, answer.problem) for answer in answers if answer.label is None])


def write_features(embedded: Sequence[Embedding], path: Path) -> int:
    """An .npz file of `features` (N x D) and `files` (N); returns the number of files that could not be read."""
    import numpy as np

    good = [(one.file, one.vector) for one in embedded if one.vector is not None]
    if good:
        with replacing(path) as part, part.open("wb") as file:
            files, vectors = zip(*good, strict=True)
            np.savez(file, features=np.stack(vectors), files=np.array(files))
        print(f"features of {several(len(good), 'image')} in {path}", file=sys.stderr)
    return _list_unreadable([(one.file, one.problem) for one in embedded if one.vector is None])


def _list_unreadable(files: Sequence[tuple[str, str]]) -> int:
    """Files that gave no answer, and why, on standard error. Returns their number."""
    if files:
        print(f"{several(len(files), 'file')} could not be read:", file=sys.stderr)
        for file, problem in files:
            print(f"  {shown(file)}: {problem}", file=sys.stderr)
    return len(files)
