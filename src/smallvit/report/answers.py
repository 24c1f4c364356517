"""What a model said of files, as files: a CSV of predictions, an .npz of features. Unreadable ones are listed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smallvit.console import printable, several
from smallvit.data.listed import shown
from smallvit.report.cells import file_cell, name_cell, write_rows
from smallvit.runs.atomic import replacing

if TYPE_CHECKING:
    from smallvit.types import Embedding, Prediction


def write_predictions(
    answers: Iterable[Prediction], path: Path | None, top: int = 1, probabilities: bool = False, likeliest: bool = False
) -> int:
    """CSV to a file or standard output; the unreadable files go to standard error. Returns their number.

    `top` adds columns for the likeliest classes after the first, `probabilities` one for every class, `likeliest` the
    label that an answer has or would have if it were not unknown; the nearest training images have three each, where they
    were asked for.
    """
    rows: list[list[Any]] = []
    unreadable: list[tuple[str, str]] = []
    classes: list[str] = []
    near = 0
    for a in answers:  # which need not be there all at once
        if a.probabilities is None:
            unreadable.append((a.file, a.problem))
            continue
        classes, near = classes or list(a.probabilities), max(near, len(a.nearest))
        first = [
            name_cell(str(a.label)),
            a.probability,
            file_cell(a.file),
            *([name_cell(str(a.likeliest))] * likeliest),
        ]
        others = [name_cell(value) if isinstance(value, str) else value for pair in a.top(top)[1:] for value in pair]
        alike = [
            cell
            for n in a.nearest
            for cell in (file_cell(n.path) if n.path else name_cell(n.file), name_cell(n.label), n.similarity)
        ]
        rows.append([*first, *others, *alike, *(a.probabilities[name] for name in classes if probabilities)])
    more = [f"{word}_{place}" for place in range(2, min(top, len(classes)) + 1) for word in ("label", "probability")]
    more += [f"{word}_{place}" for place in range(1, near + 1) for word in ("nearest", "nearest_label", "similarity")]
    names = ["label", "probability", "file", *(["likeliest"] * likeliest)]
    header: list[Any] = [*names, *more, *(f"p_{name}" for name in classes if probabilities)]
    if path is None:
        write_rows(sys.stdout, [[_shown(cell) for cell in row] for row in [header, *rows]])
    else:
        # surrogateescape: a file name that is not UTF-8 is written as the bytes it has.
        with (
            replacing(path) as part,
            part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
        ):
            write_rows(file, [header, *rows])
        print(printable(f"{several(len(rows), 'prediction')} in {path}"), file=sys.stderr)
    return _list_unreadable(unreadable)


def _shown(cell: Any) -> Any:
    return printable(shown(cell)) if isinstance(cell, str) else cell


def write_features(embedded: Sequence[Embedding], path: Path) -> int:
    """An .npz file of `features` (N x D) and `files` (N); returns the number of files that could not be read."""
    import numpy as np

    good = [(one.file, one.vector) for one in embedded if one.vector is not None]
    if good:
        with replacing(path) as part, part.open("wb") as file:
            files, vectors = zip(*good, strict=True)
            np.savez(file, features=np.stack(vectors), files=np.array(files))
        print(printable(f"features of {several(len(good), 'image')} in {path}"), file=sys.stderr)
    return _list_unreadable([(one.file, one.problem) for one in embedded if one.vector is None])


def _list_unreadable(files: Sequence[tuple[str, str]]) -> int:
    """Files that gave no answer, and why, on standard error. Returns their number."""
    if files:
        print(f"{several(len(files), 'file')} could not be read:", file=sys.stderr)
        for file, problem in files:
            print(printable(f"  {shown(file)}: {problem}"), file=sys.stderr)
    return len(files)
