"""What the page shows of one image: classes, where the model looks, what its answer hangs on, the nearest training images.

C channels, S side, K classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smallvit.console import warn
from smallvit.data.images import many_reads, read_sent
from smallvit.data.imageset import ImageSet
from smallvit.diagnosis.attended import attend
from smallvit.diagnosis.featuremaps import FeatureMap, feature_maps, main_convolutions
from smallvit.diagnosis.hiding import hangs_on
from smallvit.diagnosis.measurements.where_it_looks import kinds_of_looks, looked_at, masks
from smallvit.drawing.pictures import gallery
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.predictor import Predictor
from smallvit.planning.plan import read_plan
from smallvit.report.verdict import PART_WORDS, percent
from smallvit.runs.folder import RunFolder
from smallvit.runs.inference import open_predictor
from smallvit.runs.members import is_group
from smallvit.runs.nearest import TrainingImages, run_with_images, training_images
from smallvit.training.session import computing
from smallvit.types import Neighbour

MOST_LAYERS = 12  # of a model without attention, spread over its depth
MOST_CLASSES = 100  # told of one image, the likeliest


class Looker:
    """A model, opened once. Its answers are plain values for the page; one thread at a time may ask."""

    def __init__(self, path: Path, nearest: int = 6, threads: int | None = None, device: str = "auto") -> None:
        if is_group(path):
            raise UsageError(f"{path} is a group: the page looks into one model, give one of its runs")
        self.name = path.name if path.suffix != ".safetensors" else str(path)
        self.predictor: Predictor = open_predictor(path, device)
        self.run: RunFolder | None = None if path.suffix == ".safetensors" else run_with_images(path)
        self.threads = threads or torch.get_num_threads()
        self.k = nearest
        self.known: TrainingImages | None = None
        self.images: ImageSet | None = None
        self.missing = "" if nearest else "They were not asked for (--nearest 0)."
        if nearest:
            self._find_training_images(threads)

    def _find_training_images(self, threads: int | None) -> None:
        """What cannot be had is told on the page; the rest of it works."""
        if self.run is None:
            self.missing = "A model file knows no training images: start the page with the run folder."
            return
        try:
            self.known = training_images(self.run, self.predictor, threads)
            self.images = read_plan(self.run).images
        except RunError as error:
            warn(str(error))
            self.missing = f"{error}."

    def about(self) -> dict[str, Any]:
        """What the page says of the model before any image."""
        names = self.predictor.class_names
        size = self.predictor.preparation.img_size
        told = [f"{size} x {size} pixels in, {len(names)} classes" if names else f"{size} x {size} pixels in"]
        if self.run is not None:
            told.insert(0, str(self.run.recipe.model.name))
            told += self._accuracy()
        return {"name": self.name, "told": "; ".join(told), "classes": list(names[:MOST_CLASSES]), "of": len(names)}

    def _accuracy(self) -> list[str]:
        results = self.run.results if self.run else {}
        part = results.get("evaluated_part")
        if not part or not self.predictor.class_names:
            return []
        judged = results["parts"][part]
        low, high = judged["interval"]
        where = f"{judged['n']:,} {PART_WORDS.get(part, part)}"
        return [f"{percent(judged['accuracy'])} of {where} right ({percent(low)} to {percent(high)})"]

    # ---- one image ----

    def answer(self, content: bytes) -> dict[str, Any]:
        """Of the bytes of an image file; what cannot be read is `Unreadable`."""
        with many_reads(), computing(self.threads), torch.no_grad():
            square_CSS = read_sent(content, *self.predictor.preparation.wanted)
            prepared_CSS = self.predictor.prepared(square_CSS[None])[0]
            return {
                "image": self._seen(prepared_CSS),
                "classes": self._classes(square_CSS),
                "looks": self._looks(prepared_CSS),
                "hangs_on": self._hangs_on(prepared_CSS),
                "nearest": self._nearest(square_CSS),
                "missing": self.missing,
            }

    def _seen(self, prepared_CSS: Tensor) -> dict[str, Any]:
        """The square that the model gets, as it is shown."""
        pixels = self.predictor.preparation.pixels(prepared_CSS[None].cpu()).numpy()
        return _picture(pixels if pixels.shape[1] in (1, 3) else pixels[:, :1])

    def _classes(self, square_CSS: Tensor) -> list[tuple[str, float]]:
        names = self.predictor.class_names
        if not names:
            return []
        values = self.predictor.probabilities(square_CSS[None])[0]
        order = values.argsort(descending=True, stable=True)[:MOST_CLASSES].tolist()
        return [(names[number], round(float(values[number]), 6)) for number in order]

    def _looks(self, prepared_CSS: Tensor) -> dict[str, Any]:
        """Attention, where it can be had; else how strongly layers respond, which is something else and said so."""
        model = self.predictor.backbone.model
        try:
            maps = attend(model, [prepared_CSS[None]]).maps
        except UsageError:
            maps = []
        if maps:
            kinds = kinds_of_looks(looked_at(maps), len(maps))
            layers, who = [layer.layer for layer in maps], "class token" if maps[-1].queries.front else "cells"
        else:
            found = _spread(self._feature_maps(prepared_CSS))
            strength = [layer.map_BCHW.float().abs().mean(1).numpy() for layer in found]
            kinds = [("strength", strength, False)] if found else []
            layers, who = [layer.layer for layer in found], ""
        shown = [{"name": name, "masks": masks(values, common, 1)[0]} for name, values, common in kinds]
        return {"attends": bool(maps), "who": who, "layers": layers, "kinds": shown}

    def _feature_maps(self, prepared_CSS: Tensor) -> list[FeatureMap]:
        """Of every convolution; of a model without any (an MLP mixer) the grids of its stages."""
        backbone = self.predictor.backbone
        if main_convolutions(backbone.model) and (maps := feature_maps(backbone.model, prepared_CSS[None])):
            return maps
        grids = backbone(prepared_CSS[None]).grids
        return [FeatureMap(f"stage {number}", grid.cpu()) for number, grid in enumerate(grids, start=1)]

    def _hangs_on(self, prepared_CSS: Tensor) -> dict[str, Any] | None:
        if not self.predictor.class_names:
            return None
        falls = hangs_on(self.predictor, prepared_CSS).clamp_min(0).numpy()
        return {"mask": masks([falls[None]], False, 1)[0][0], "most": round(float(falls.max()), 4)}

    def _nearest(self, square_CSS: Tensor) -> list[dict[str, Any]]:
        if self.known is None:
            return []
        (near,) = self.known.nearest(self.predictor.features(square_CSS[None]), self.k)
        pictures = self._pictures(near)
        return [
            {"file": one.file, "label": one.label, "similarity": one.similarity, "image": picture}
            for one, picture in zip(near, pictures, strict=True)
        ]

    def _pictures(self, near: tuple[Neighbour, ...]) -> list[dict[str, Any] | None]:
        """None where the features were kept and the images have been moved since."""
        if self.images is None:
            return [None] * len(near)
        rows = torch.tensor([one.row for one in near])
        if not 0 <= int(rows.min()) <= int(rows.max()) < len(self.images):  # a folder may be a stranger's
            return [None] * len(near)
        pixels = self.images.images_NCSS[rows].numpy()
        return [_picture(pixels[place : place + 1]) for place in range(len(near))]


def _picture(pixels_1CHW: np.ndarray) -> dict[str, Any]:
    (shown,) = gallery(pixels_1CHW, [{}], budget=1 << 22).pictures
    return {"uri": shown.uri, "small": shown.small}


def _spread(maps: list[FeatureMap]) -> list[FeatureMap]:
    """As many as are shown, from the first to the last, of those that are more than one cell."""
    maps = [layer for layer in maps if min(layer.map_BCHW.shape[-2:]) > 1]
    chosen = np.unique(np.linspace(0, len(maps) - 1, min(MOST_LAYERS, len(maps))).round().astype(int))
    return [maps[place] for place in chosen]
