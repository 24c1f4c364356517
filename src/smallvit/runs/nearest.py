"""Why this label? The training images that a model holds for most like an image, by the cosine of its features.

The features of the training images are computed once and kept in the run folder, under the digests of its model and of its
data: from then on nothing is needed but the folder. N images, M training images, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.console import bar, warn
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.model_file import digest, read_tensors, write_tensors
from smallvit.evaluation.predictor import BATCH, Predictor
from smallvit.planning.moved import current_place
from smallvit.planning.plan import Plan, read_plan
from smallvit.runs.folder import RunFolder
from smallvit.runs.inference import finished_run
from smallvit.runs.members import is_group
from smallvit.training.session import computing
from smallvit.types import Neighbour

KEPT = "neighbours.safetensors"


class TrainingImages(NamedTuple):
    """What a run was trained on, as its model sees it. Rows are those of the data set."""

    unit_MD: Tensor  # features of length 1
    rows_M: Tensor
    labels_M: Tensor
    class_names: Sequence[str]
    files: Sequence[str]  # what the data set calls them
    home: Path | None = None  # the folder that these names are seen from, where they are files

    def nearest(self, features_ND: Tensor, k: int) -> list[tuple[Neighbour, ...]]:
        """For every image the k training images of the largest cosine, the nearest first."""
        if k < 1:
            raise UsageError(f"{k} nearest training images: at least 1 must be asked for")
        if features_ND.shape[1] != self.unit_MD.shape[1]:
            raise RunError(f"{KEPT} of the run does not hold features of its model: remove the file")
        found: list[tuple[Neighbour, ...]] = []
        for some_BD in features_ND.split(1024):
            cosine_Bk, place_Bk = (F.normalize(some_BD, dim=1) @ self.unit_MD.T).topk(min(k, len(self.files)), dim=1)
            for cosines, places in zip(cosine_Bk.tolist(), place_Bk.tolist(), strict=True):
                found.append(tuple(map(self._neighbour, places, cosines)))
        return found

    def _neighbour(self, place: int, cosine: float) -> Neighbour:
        label = self.class_names[int(self.labels_M[place])]
        path = self.home / self.files[place] if self.home else None
        there = str(path) if path and path.is_file() else None
        return Neighbour(self.files[place], int(self.rows_M[place]), label, round(min(cosine, 1.0), 6), there)


def run_with_images(path: Path) -> RunFolder:
    """A finished run; not what has no training images of its own, or several kinds of features."""
    if is_group(path):
        raise UsageError(f"{path} is a group, and each of its models has features of its own: give one of its runs")
    if path.suffix == ".safetensors":
        raise UsageError(f"{path} is a model file, which knows no training images: give its run folder")
    return finished_run(path)


def training_images(run: RunFolder, predictor: Predictor, threads: int | None = None) -> TrainingImages:
    """As they were kept, or computed now: that takes the images, at the place where the run found them."""
    about = {"model": digest(run.path / "model.safetensors"), "data": run.recipe.data.fingerprint}
    place = Path(current_place(run)).expanduser()
    home = place if place.is_dir() else place.parent if place.is_file() else None  # a table names files beside it
    if kept := _read(run.path / KEPT, about):
        return kept._replace(home=home)
    try:
        plan = read_plan(run)
    except RunError as error:
        raise RunError(f"{error}. The nearest training images need them once; what is found is kept") from None
    with computing(threads or run.threads):
        found = _computed(predictor, plan)
    tensors = {"features": found.unit_MD, "rows": found.rows_M, "labels": found.labels_M}
    try:
        write_tensors(run.path / KEPT, tensors, about | {"class_names": found.class_names, "files": found.files})
    except RunError as error:  # a folder that may only be read
        warn(f"{error}: the features of the training images are computed anew each time")
    return found._replace(home=home)


def _computed(predictor: Predictor, plan: Plan) -> TrainingImages:
    images, rows_M = plan.images, plan.split.train
    units = []
    with bar("features of the training images", len(rows_M)) as advance:
        for some in rows_M.split(4 * BATCH):
            units.append(F.normalize(predictor.features(images, some), dim=1))
            advance(len(some))
    files = [images.files[row] for row in rows_M.tolist()]
    return TrainingImages(torch.cat(units), rows_M, images.labels_N[rows_M], list(images.class_names), files)


def _read(path: Path, about: Mapping[str, str]) -> TrainingImages | None:
    """None where there is nothing, something else, or something damaged: it is computed anew."""
    if not path.is_file():
        return None
    try:
        tensors, header = read_tensors(path)
        found = TrainingImages(
            tensors["features"], tensors["rows"], tensors["labels"], header["class_names"], header["files"]
        )
        lengths = {len(part) for part in (found.unit_MD, found.rows_M, found.labels_M, found.files)}
        fits = len(lengths) == 1 and found.unit_MD.ndim == 2 and int(found.labels_M.min()) >= 0
        fits = fits and int(found.labels_M.max()) < len(found.class_names) and found.unit_MD.dtype == torch.float32
        fits = fits and all(isinstance(name, str) for name in (*found.files, *found.class_names))
    except (RunError, KeyError, TypeError, RuntimeError):
        return None
    return found if fits and {key: header.get(key) for key in about} == about else None
