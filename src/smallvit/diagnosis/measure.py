"""All measurements of one model on one set of images, then what they say together.

N images, B of a batch, L layers, C channels, H by W cells; in a table of similarities A layers by C of the other model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from smallvit.console import bar, warn
from smallvit.diagnosis.cka import LEAST_BATCHES, LEAST_IMAGES, cka, even_batches
from smallvit.diagnosis.featuremaps import FeatureMap, channel_mean, feature_maps, main_convolutions, strongest_channels
from smallvit.diagnosis.findings import Array, Finding
from smallvit.diagnosis.judge import judge
from smallvit.diagnosis.layer_features import layer_vectors
from smallvit.diagnosis.measure_attention import SHOWN, measure_attention
from smallvit.errors import UsageError
from smallvit.evaluation.probes import Frozen, effective_rank, knn_probe
from smallvit.evaluation.statistics import wilson
from smallvit.models.features import Backbone

PER_BATCH = 64
REPLICATES = 100
CHANNELS = 4  # of each layer and image that are shown one by one


class Labelled(NamedTuple):
    """Images as the model takes them, their classes, and what it says of them."""

    images_NCHW: Tensor  # on the model's device; all else is on the CPU
    labels_N: Tensor
    logits_NK: Tensor

    def batches(self) -> tuple[Tensor, ...]:
        return self.images_NCHW.split(PER_BATCH)


class Other(NamedTuple):
    """Another model, the same images as that one takes them, and what to call it."""

    model: nn.Module
    images_NCHW: Tensor
    name: str


class Known(NamedTuple):
    """Of the run, beside its model: which part is judged, how many classes there are, and the best that pixels alone give."""

    part: str
    classes: int
    floor: str = ""
    floor_accuracy: float = 0.0


def measure(
    backbone: Backbone, untrained: Backbone, judged: Labelled, train: Labelled, known: Known, other: Other | None
) -> list[Finding]:
    """Everything that the model has something to show for: a CNN has no heads, a ViT without a table no positions."""
    model, classes = backbone.model, known.classes
    found: list[Finding] = []
    steps: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("fit", lambda: [measure_fit(judged, train, known)]),
        ("attention", lambda: measure_attention(backbone, untrained.model, judged.images_NCHW)),
        ("feature maps", lambda: measure_maps(model, judged, _attends(found))),
        ("neighbours and rank", lambda: measure_layers(model, judged, train, classes)),
        ("its layers among themselves", lambda: [measure_similarity(model, judged, Other(model, judged.images_NCHW, ""))]),
        *([(f"its layers and {other.name}", lambda: [measure_similarity(model, judged, other)])] if other else []),
    ]  # fmt: skip
    with bar("measuring", len(steps)) as advance:
        for name, step in steps:
            try:
                found += step()
            except UsageError as error:  # of a model that is built unlike any that is known here
                warn(f"{name} cannot be measured: {error}")
            advance(1, note=name)
    return judge(found)


# ---- fit ---------------------------------------------------------------------------------------------


def measure_fit(judged: Labelled, train: Labelled, known: Known) -> Finding:
    """Right answers of training images, without augmentation, and of others, each with its interval."""
    numbers: dict[str, float] = {}
    for prefix, images in (("train_", train), ("", judged)):
        right, n = int((images.logits_NK.argmax(1) == images.labels_N).sum()), len(images.labels_N)
        low, high = wilson(right, n)
        numbers |= {f"{prefix}accuracy": right / n, f"{prefix}low": low, f"{prefix}high": high, f"{prefix}images": float(n)}  # fmt: skip
    numbers |= {
        "gap": numbers["train_accuracy"] - numbers["accuracy"],
        "classes": float(known.classes),
        "floor": known.floor_accuracy,
    }
    return Finding("fit", {}, numbers, {"part": [known.part], "floor": [known.floor]})


# ---- maps and layers ---------------------------------------------------------------------------------


def measure_maps(model: nn.Module, judged: Labelled, attends: bool) -> list[Finding]:
    """Every convolution of a CNN; of models that attend the grids of their blocks or stages."""
    maps = _maps(model, judged.images_NCHW[:PER_BATCH], attends)
    if not maps:
        return []
    arrays: dict[str, Array] = {}
    for number, one in enumerate(maps):
        shown = one._replace(map_BCHW=one.map_BCHW[:SHOWN])
        arrays[f"mean.{number}"] = channel_mean(shown).numpy().astype(np.float16)
        arrays[f"channels.{number}"] = strongest_channels(shown, CHANNELS).numpy().astype(np.float16)
    dead = [float((one.map_BCHW.amax((0, 2, 3)) == one.map_BCHW.amin((0, 2, 3))).double().mean()) for one in maps]
    arrays["dead"] = np.asarray(dead)
    return [Finding("feature_maps", arrays, {"dead_last": dead[-1]}, {"layers": [one.layer for one in maps]})]


@torch.no_grad()
def _maps(model: nn.Module, images_BCHW: Tensor, attends: bool) -> list[FeatureMap]:
    if not attends and main_convolutions(model):
        return feature_maps(model, images_BCHW)
    if not _has_blocks(model):
        return []
    model.eval()
    grids = model.forward_intermediates(images_BCHW, intermediates_only=True)  # type: ignore[operator]
    # timm does not promise as many grids as names: what has both is shown.
    return [FeatureMap(name, grid.float().cpu()) for name, grid in zip(_block_names(model), grids, strict=False)]


def _attends(found: Sequence[Finding]) -> bool:
    return any(one.numbers["attends"] > 0 for one in found if one.name == "tokens")


def _has_blocks(model: nn.Module) -> bool:
    return callable(getattr(model, "forward_intermediates", None))


def _block_names(model: nn.Module) -> list[str]:
    return [str(info["module"]) for info in getattr(model, "feature_info", [])]


def _unit(model: nn.Module) -> str:
    """What the parts are called whose outputs are looked at: those of a hierarchical model are stages."""
    return "block" if all(name.startswith("block") for name in _block_names(model)) else "stage"


def measure_layers(model: nn.Module, judged: Labelled, train: Labelled, classes: int) -> list[Finding]:
    """By block: what its nearest neighbours are worth, and how many directions its features use."""
    if not _has_blocks(model):
        return []
    bank, asked = layer_vectors(model, train.batches()), layer_vectors(model, judged.batches())
    layers = list(asked)
    labels = {"layers": layers, "unit": [_unit(model)]}
    accuracy = [
        knn_probe(Frozen(bank[name], train.labels_N), Frozen(asked[name], judged.labels_N), classes)["accuracy"]
        for name in layers
    ]
    best = int(np.argmax(accuracy))
    numbers = {"best": accuracy[best], "best_block": float(best), "last": accuracy[-1], "images": float(len(judged.labels_N))}  # fmt: skip
    ranks, width = [effective_rank(asked[name]) for name in layers], asked[layers[-1]].shape[1]
    return [
        Finding("neighbours", {"accuracy": np.asarray(accuracy)}, numbers, labels),
        Finding(
            "rank",
            {"rank": np.asarray(ranks)},
            {
                "last": ranks[-1],
                "width": float(width),
                "classes": float(classes),
                "images": float(len(judged.labels_N)),
            },
            labels,
        ),
    ]


# ---- similarity --------------------------------------------------------------------------------------


def measure_similarity(model: nn.Module, judged: Labelled, other: Other) -> Finding:
    """CKA of its layers with those of another model, or with themselves (a name that is empty)."""
    images_NCHW = judged.images_NCHW
    sizes = even_batches(len(images_NCHW), max(LEAST_IMAGES, min(PER_BATCH, len(images_NCHW) // (LEAST_BATCHES + 2))))
    sizes = sizes if min(sizes) >= LEAST_IMAGES else [len(images_NCHW)]
    replicates = REPLICATES if len(sizes) >= LEAST_BATCHES else 0
    batches = _pairs(images_NCHW, other.images_NCHW, sizes)
    result = cka(model, other.model, batches, replicates=replicates, leave_out_constant=True)
    arrays: dict[str, Array] = {"cka": result.cka_AC.numpy().astype(np.float32)}
    if result.low_AC is not None and result.high_AC is not None:
        arrays |= {"low": result.low_AC.numpy().astype(np.float32), "high": result.high_AC.numpy().astype(np.float32)}
    labels = {"rows": result.rows, "columns": result.columns, "constant": result.constant, "other": [other.name]}
    if other.name:
        return Finding("similarity", arrays, pattern(arrays["cka"]), labels)
    ends = {block: place for block in _block_names(model) if (place := _end_of(block, result.rows)) is not None}
    places = list(ends.values())
    steps = [float(arrays["cka"][a, b]) for a, b in pairwise(places)]
    arrays["steps"] = np.asarray(steps)
    labels |= {"blocks": list(ends), "unit": [_unit(model)]}
    numbers = {"blocks": float(len(places)), "step": float(np.median(steps)) if steps else 0.0}
    return Finding("self_similarity", arrays, numbers, labels)


def pattern(cka_AC: Array) -> dict[str, float]:
    """Zhu et al.'s pattern in numbers: the lowest quarter against the other's lower half, and the top quarter against all."""
    A, C = cka_AC.shape
    bottom = float(cka_AC[: max(1, A // 4), : max(1, C // 2)].mean())
    top = float(cka_AC[-max(1, A // 4) :].mean())
    return {"bottom": bottom, "top": top, "pattern": bottom - top, "mean": float(cka_AC.mean())}


def _end_of(block: str, rows: Sequence[str]) -> int | None:
    """The row that holds a block's output: its own, or that of its last layer where the block hands that on."""
    inside = [place for place, row in enumerate(rows) if row == block or row.startswith(f"{block}.")]
    return inside[-1] if inside else None


def _pairs(first: Tensor, second: Tensor, sizes: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(first.split(sizes), second.split(sizes), strict=True)
