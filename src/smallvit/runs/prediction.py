"""What a trained model says of new images: labels, probabilities, features.

Images are files, folders of them, PIL images, arrays, tensors, or lists of these. `folder` is a run, a group of seeds or
folds, or a model file. N images, K classes, D width.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smallvit.console import are, bar, say
from smallvit.data.images import Unreadable, many_reads
from smallvit.data.preparation import Picture, Preparation
from smallvit.data.sources import image_files
from smallvit.errors import DataError, UsageError
from smallvit.evaluation.ensemble import Ensemble
from smallvit.evaluation.predictor import Predictor, listed
from smallvit.runs.inference import check_classes, open_model, open_predictor
from smallvit.runs.members import is_group
from smallvit.runs.nearest import TrainingImages, run_with_images, training_images
from smallvit.runs.rejected import stored_threshold
from smallvit.runs.rejection import with_doubt
from smallvit.runs.relocation import relocate
from smallvit.training.session import computing
from smallvit.types import Embedding, Neighbour, Prediction

IMAGES_AT_ONCE = 64
ROUNDED = 1e-6  # probabilities are told to six places
UNKNOWN = "unknown"  # instead of a label, where the model is not sure enough

# One image or many, in lists within lists; a folder stands for the images below it.
Images = Picture | Sequence[Any]


def predict(
    folder: str | Path, images: Images, *, calibrated: bool | None = None, threads: int | None = None,
    device: str = "auto", reject: float | None = None, nearest: int = 0, data: str | Path | None = None,
) -> list[Prediction]:  # fmt: skip
    """Label and probabilities of every image. A file that cannot be read is an answer of its own, not an error.

    `calibrated` divides the logits by the temperature that suited the validation part: other probabilities, the same
    labels. Without it they are as the run was told (data.calibrate). `reject=0.05`: where the model is less sure than the
    threshold that `evaluate --reject 0.05` found, the label is `unknown`. `threads` are torch's own choice where they are not
    given: a model file has no run to take them from. `nearest` asks for so many training images that the model holds for
    most like each; `data` is where these are now, if they were moved.
    """
    return list(
        predictions(
            folder, images, calibrated=calibrated, threads=threads, device=device, reject=reject, nearest=nearest, data=data
        )
    )  # fmt: skip


def predictions(
    folder: str | Path, images: Images, *, calibrated: bool | None = None, threads: int | None = None,
    device: str = "auto", reject: float | None = None, nearest: int = 0, data: str | Path | None = None,
    most: int | None = None,
) -> Iterator[Prediction]:  # fmt: skip
    """The same one after the other; `most`: with the probabilities of so many classes only, the likeliest.

    All classes of all images are more than a machine holds where there are thousands of both.
    """
    path = Path(folder)
    relocate(path, data)
    run = run_with_images(path) if nearest else None
    threshold = None if reject is None else stored_threshold(path, reject)
    predictor = _classifier(path, device, calibrated)
    known = training_images(run, predictor, threads) if run and isinstance(predictor, Predictor) else None
    plain = partial(predictor.probabilities, calibrated=calibrated)
    said = plain if threshold is None else with_doubt(predictor, path, calibrated)

    def ask(squares_BCSS: Tensor) -> Tensor:
        if known is None or not isinstance(predictor, Predictor):
            return said(squares_BCSS)
        return torch.cat([said(squares_BCSS), predictor.features(squares_BCSS)], dim=1)

    for one in _see(predictor.preparation, images, threads, ask):
        yield _prediction(one, predictor.class_names, most, threshold, known, nearest)


def nearest(
    folder: str | Path, images: Images, k: int = 5, *, threads: int | None = None, device: str = "auto",
    data: str | Path | None = None,
) -> list[tuple[Neighbour, ...]]:  # fmt: skip
    """For every image the k training images whose features are most like its own, the nearest first.

    The features of the training images are computed at the first call and kept in the run folder; `data` is where the
    images are now, if they were moved. An image that cannot be read is an error.
    """
    relocate(folder, data)
    run = run_with_images(Path(folder))
    predictor = open_predictor(run.path, device)
    known = training_images(run, predictor, threads)
    features_ND = _stacked(_see(predictor.preparation, images, threads, predictor.features))
    return known.nearest(torch.from_numpy(features_ND), k)


def predict_proba(
    folder: str | Path, images: Images, *, calibrated: bool | None = None, threads: int | None = None,
    device: str = "auto",
) -> np.ndarray:  # fmt: skip
    """(N, K): the probabilities in the order of the classes. An image that cannot be read is an error."""
    predictor = _classifier(Path(folder), device, calibrated)
    return _stacked(
        _see(
            predictor.preparation, images, threads,
            lambda squares_BCSS: predictor.probabilities(squares_BCSS, calibrated=calibrated),
        )
    )  # fmt: skip


def embed(folder: str | Path, images: Images, *, threads: int | None = None, device: str = "auto") -> np.ndarray:
    """(N, D): the pooled features that the classifier stands on. An image that cannot be read is an error."""
    return _stacked(embeddings(folder, images, threads=threads, device=device))


def embeddings(
    folder: str | Path, images: Images, *, threads: int | None = None, device: str = "auto"
) -> list[Embedding]:
    """The same one by one: a file that cannot be read is an answer, not an error."""
    if is_group(Path(folder)):
        raise UsageError(f"{folder} is a group, and each of its models has features of its own: give one of its runs")
    predictor = open_predictor(folder, device)
    return list(_see(predictor.preparation, images, threads, predictor.features))


def _classifier(path: Path, device: str, calibrated: bool | None) -> Predictor | Ensemble:
    predictor = open_model(path, device)
    check_classes(predictor, path)
    if predictor.calibrated if calibrated is None else calibrated:
        if told := ", ".join(f"{temperature:.4g}" for temperature in predictor.temperatures):
            say(f"probabilities at temperature {told}, fitted on the run's validation part{_others(predictor)}")
        elif calibrated:
            raise UsageError(f"{path} has no temperature: it takes a run with a validation part to fit one")
    return predictor


def _others(predictor: Predictor | Ensemble) -> str:
    """Of several models those without a temperature, in words."""
    models = len(predictor.members) if isinstance(predictor, Ensemble) else 1
    without = models - len(predictor.temperatures)
    return (
        f"; {are(without, 'model', models)} without one and answer{'s' * (without == 1)} as trained" if without else ""
    )


def _prediction(
    seen: Embedding, class_names: Sequence[str], most: int | None, threshold: float | None,
    known: TrainingImages | None, k: int,
) -> Prediction:  # fmt: skip
    """Behind the probabilities stands the doubt, with a threshold, and then features, where the training images are known."""
    if seen.vector is None:
        return Prediction(seen.file, None, None, seen.problem)
    chances_K, behind = seen.vector[: len(class_names)], seen.vector[len(class_names) :]
    classes = _likeliest(chances_K, most)
    probabilities = {class_names[place]: round(float(chances_K[place]), 6) for place in classes}
    label = class_names[int(chances_K.argmax())]
    rejected = threshold is not None and not behind[0] < threshold
    features_D = behind[int(threshold is not None) :]
    near = known.nearest(torch.from_numpy(features_D)[None].float(), k)[0] if known else ()
    said = UNKNOWN if rejected else label
    return Prediction(seen.file, said, probabilities[label], "", probabilities, rejected, near)


def _likeliest(chances_K: np.ndarray, most: int | None) -> Sequence[int]:
    """Places of the likeliest classes, in the order of all classes; those that look alike when they are rounded come along."""
    if most is None or most >= len(chances_K):
        return range(len(chances_K))
    least = np.partition(chances_K, len(chances_K) - most)[-most]
    return [int(place) for place in np.flatnonzero(chances_K >= least - ROUNDED)]


def _stacked(given: Iterable[Embedding]) -> np.ndarray:
    seen = list(given)
    values = [one.vector for one in seen if one.vector is not None]
    if bad := next((one for one in seen if one.vector is None), None):
        raise DataError(f"{bad.file}: {bad.problem}")
    return np.stack(values)


def _see(
    preparation: Preparation, images: Images, threads: int | None, ask: Callable[[Tensor], Tensor]
) -> Iterator[Embedding]:
    """What the model makes of each image: its features, or any other vector that is asked for."""
    named = list(named_images(images, preparation.in_chans))
    if not named:
        raise UsageError("there are no images to look at")
    with computing(threads or torch.get_num_threads()), many_reads(), bar("predicting", len(named)) as advance:
        for some in read_ahead(preparation, named):
            squares = [square for _, square in some if isinstance(square, Tensor)]
            values = iter(ask(torch.stack(squares)).numpy()) if squares else iter(())
            for name, square in some:
                yield Embedding(name, next(values)) if isinstance(square, Tensor) else Embedding(name, None, square)
            advance(len(some))


def read_ahead(
    preparation: Preparation, named: Sequence[tuple[str, Picture]]
) -> Iterator[list[tuple[str, Tensor | str]]]:
    """Each image with its square, or with why it has none, some at a time: the next are read while these are answered.

    Files are read by threads, for Pillow decodes without Python's lock; pixels in memory are nobody's to share.
    """
    cores = _available_cores()
    readers = cores if all(isinstance(picture, Path) for _, picture in named) else 1
    chunks = [named[start : start + IMAGES_AT_ONCE] for start in range(0, len(named), IMAGES_AT_ONCE)]

    def read(some: Sequence[tuple[str, Picture]]) -> list[Tensor | str]:
        return [_square_or_problem(preparation, picture) for _, picture in some]

    if cores == 1:  # threads could only take turns with the model
        for some in chunks:
            yield [(name, square) for (name, _), square in zip(some, read(some), strict=True)]
        return

    with ThreadPoolExecutor(readers, thread_name_prefix="smallvit-read") as pool:

        def begin(place: int) -> list[Future[list[Tensor | str]]]:
            return (
                [pool.submit(read, chunks[place][start::readers]) for start in range(readers)]
                if place < len(chunks)
                else []
            )

        begun = begin(0)
        for place, some in enumerate(chunks):
            reading, begun = begun, begin(place + 1)
            squares: list[Tensor | str] = [""] * len(some)
            for start, future in enumerate(reading):
                squares[start::readers] = future.result()
            yield [(name, square) for (name, _), square in zip(some, squares, strict=True)]


def _available_cores() -> int:
    """Those that this process may use: `taskset` may leave it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _square_or_problem(preparation: Preparation, picture: Picture) -> Tensor | str:
    try:
        return preparation.square(picture)
    except Unreadable as error:
        return str(error)


def named_images(images: Images, channels: int) -> Iterator[tuple[str, Picture]]:
    for place, picture in enumerate(_pictures(images, channels)):
        yield (str(picture) if isinstance(picture, Path) else f"image {place}"), picture


def _pictures(images: Images, channels: int) -> Iterator[Picture]:
    """Folders are searched, batches and lists are taken apart. A missing file is an answer, too."""
    if isinstance(images, str | Path):
        path = Path(images)
        if path.is_dir() and not (inside := image_files(path)):
            raise DataError(f"no images below {path}")
        yield from inside if path.is_dir() else [path]
    elif isinstance(images, Image.Image | np.ndarray | Tensor):
        yield from listed(images, channels)
    elif isinstance(images, Sequence):
        for some in images:
            yield from _pictures(some, channels)
    else:
        raise UsageError(
            f"{type(images).__name__} is no image: give files, folders, PIL images, arrays, tensors, or lists of these"
        )
