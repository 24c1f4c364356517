"""From measurements to sentences: what a number means, when it may be said, and what to do about it.

A finding is a measurement with its numbers and arrays. Its verdict is one sentence with its number and advice, or
nothing where the measurement does not bear one out. Its weight, from 0 to 1, is how much it matters for accuracy.
L layers, M heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvit.evaluation.statistics import wilson

Array = NDArray[Any]


class Finding(NamedTuple):
    name: str
    arrays: dict[str, Array]
    numbers: dict[str, float]
    verdict: str = ""
    weight: float = 0.0
    labels: Mapping[str, Sequence[str]] = {}  # names of layers and images that the arrays are about


class Thresholds:
    """From where on a number is worth a sentence. They decide what is said, never what is measured or stored.

    A share counts as different only where intervals agree. Distances and similarities have no interval over other
    trainings of the same model, so their thresholds are set apart from what runs give that do well and runs that do
    not: vit_nano, deit_tiny and dhvt_nano of 0.7 M parameters on 2,000 images of CIFAR-10 (34, 34 and 51 % right),
    and vit_nano, dhvt_pico and resnet_nano on 600 and 1,000 digits (26 to 97 %). Few runs, all small, and none held
    out to try the thresholds on: a threshold is where a look is worth while, not a test.
    """

    under_fit = 0.80  # accuracy on training images below which the model has not learned even those
    gap = 0.10  # accuracy on training images beyond that on others
    few_tokens = 16  # cells, a grid of 4 x 4
    local = 0.80  # attention distance of the first layer as a share of what it was untrained: below, it is local
    global_still = 0.95  # above, nothing was learned
    same_looks = 0.95  # correlation of where a layer looks between images
    repeats = 0.99  # CKA of a block with the one before
    unlike = 0.25  # mean CKA below which the top of a model is unlike the other
    like = 0.50  # mean CKA above which the bottom is like the other
    peak = 0.02  # accuracy of neighbours that is lost between the best block and the last
    rank_share = 0.25  # of the directions that classes need
    unordered = 0.15  # correlation of position similarity with nearness
    blind = 0.02  # selectivity of a head that gives every query the same
    duplicate = 0.98  # correlation of two heads of a layer
    idle_heads = 0.15  # share of heads that are blind or duplicates
    dead_channels = 0.10  # share of channels of the last map that give the same for every image


LOCAL_HELP = "dhvt, --set model.kwargs.spt=true with model.kwargs.lsa=true, or --aux drloc add it"


def fit(train: tuple[int, int], judged: tuple[int, int], part: str) -> Finding:
    """Right answers and images, of training images without augmentation and of those it was judged on."""
    (train_right, train_n), (right, n) = train, judged
    numbers = {"train_accuracy": train_right / train_n, "accuracy": right / n, "images": float(train_n)}
    numbers["gap"] = gap = numbers["train_accuracy"] - numbers["accuracy"]
    (train_low, train_high), (_, high) = wilson(train_right, train_n), wilson(right, n)
    verdict, weight = "", 0.0
    if train_high < Thresholds.under_fit:
        verdict = (
            f"It labels only {numbers['train_accuracy']:.0%} of its own training images correctly: it under-fits; "
            "train longer, raise the learning rate, or take a larger model or weaker augmentation."
        )
        weight = 1.0 - 0.4 * numbers["train_accuracy"]  # before all else
    elif train_low - high > 0 and gap > Thresholds.gap:
        verdict = (
            f"It labels {numbers['train_accuracy']:.0%} of its training images but {numbers['accuracy']:.0%} of the "
            f"{part} images correctly: it learns images by heart; more images, stronger augmentation, mixup or a model "
            "with more built in (dhvt, a ResNet) help."
        )
        weight = min(1.0, 2 * gap)
    return Finding("fit", {}, numbers, verdict, weight)


def tokens(grid: tuple[int, int], img_size: int, attends: bool) -> Finding:
    cells = math.prod(grid)
    numbers = {"cells": float(cells), "rows": float(grid[0]), "columns": float(grid[1]), "img_size": float(img_size)}
    verdict = ""
    if cells <= Thresholds.few_tokens and attends:
        verdict = (
            f"An image of {img_size} px becomes {cells} token{'s' if cells > 1 else ''} in the first layer, each of "
            f"{img_size // grid[0]} px: too few to attend among; a smaller patch (--set model.kwargs.patch_size="
            f"{max(1, img_size // grid[0] // 2)}) or larger images give more."
        )
    elif cells == 1:
        verdict = (
            f"The last map of an image of {img_size} px is a single cell: the layers before it have thrown away where "
            "things are; a model with a smaller stride (resnet18_32, resnet_nano) keeps more."
        )
    return Finding("tokens", {}, numbers, verdict, 0.8 if verdict else 0.0)


def locality(
    layers: Sequence[str],
    now: Mapping[str, list[Array]],
    initial: Mapping[str, list[Array]],
    uniform: Mapping[str, list[Array]],
    mixes_neighbours: bool,
) -> Finding:
    """Distance, entropy and nearness by layer and head: of the model, of an untrained one, of one that looks everywhere.

    Where convolutions mix neighbours, attention that looks far is no fault: nothing is said of it.
    """
    arrays: dict[str, Array] = {}
    for key in ("distance", "entropy", "near"):
        arrays[key], arrays[f"{key}_initial"] = _ragged(now[key]), _ragged(initial[key])
        arrays[f"{key}_uniform"] = _ragged(uniform[key])
    first, before = float(now["distance"][0].mean()), float(initial["distance"][0].mean())
    near, near_before = float(now["near"][0].mean()), float(initial["near"][0].mean())
    numbers = {"distance": first, "distance_initial": before, "near": near, "near_initial": near_before}
    share = first / before if before else 1.0
    verdict, weight = "", 0.0
    if share > Thresholds.global_still and not mixes_neighbours:
        verdict = (
            f"The first layer's heads look {first:.2f} of the image's width away on average, as far as untrained "
            f"({before:.2f}): no locality was learned; {LOCAL_HELP}."
        )
        weight = 0.7
    elif share < Thresholds.local:
        verdict = (
            f"The first layer has learned to look near: {first:.2f} of the image's width away on average, against "
            f"{before:.2f} untrained, with {near:.0%} of its attention on the nearest cells; nothing to do here."
        )
        weight = 0.2
    return Finding("locality", arrays, numbers, verdict, weight, {"layers": list(layers)})


def same_looks(layers: Sequence[str], correlation_L: Sequence[float]) -> tuple[str, float]:
    """Whether the last layer looks at the same places in every image. Verdict and weight for the attention finding."""
    last = correlation_L[-1]
    if last < Thresholds.same_looks:
        return "", 0.0
    return (
        f"The last layer ({layers[-1]}) looks at the same places whatever the image shows (correlation {last:.2f} "
        "between images): its attention is a fixed pooling; global average pooling (--set model.kwargs.global_pool=avg) "
        "would do the same, and more training may change it."
    ), 0.35


def neighbours(
    layers: Sequence[str],
    accuracy_L: Sequence[float],
    images: int,
    rank_L: Sequence[float],
    width_L: Sequence[int],
    classes: int,
) -> list[Finding]:
    best = int(np.argmax(accuracy_L))
    lost = accuracy_L[best] - accuracy_L[-1]
    # Two shares of the same images: twice the larger standard error is a cautious bound for their difference.
    noise = 2 * math.sqrt(max(share * (1 - share) for share in (accuracy_L[best], accuracy_L[-1])) / images)
    numbers = {"best": accuracy_L[best], "last": accuracy_L[-1], "images": float(images)}
    verdict = ""
    if best < len(layers) - 1 and lost > max(Thresholds.peak, noise):
        verdict = (
            f"Nearest neighbours label {accuracy_L[best]:.0%} of the images by the features of {layers[best]} and "
            f"{accuracy_L[-1]:.0%} by those of the last block: the blocks after it make the features worse; fewer "
            "blocks (--set model.kwargs.depth), drop-path or longer training help."
        )
    found = [
        Finding(
            "neighbours",
            {"accuracy": np.asarray(accuracy_L)},
            numbers,
            verdict,
            min(0.6, 4 * lost) if verdict else 0.0,
            {"layers": list(layers)},
        )
    ]
    needed = Thresholds.rank_share * min(classes - 1, width_L[-1])
    verdict = ""
    if classes > 2 and rank_L[-1] < needed:
        verdict = (
            f"The features of the last block use about {rank_L[-1]:.1f} directions, where {classes} classes need up to "
            f"{classes - 1}: they have collapsed; a lower learning rate, less weight decay or longer warm-up help."
        )
    arrays: dict[str, Array] = {"rank": np.asarray(rank_L), "width": np.asarray(width_L)}
    numbers = {"last": rank_L[-1], "needed": needed}
    found.append(Finding("rank", arrays, numbers, verdict, 0.5 if verdict else 0.0, {"layers": list(layers)}))
    return found


def positions(similarity_NN: Array, correlation: float, before: float) -> Finding:
    verdict = ""
    if correlation < Thresholds.unordered:
        verdict = (
            f"The position embeddings of neighbouring cells are no more alike than those of distant ones (correlation "
            f"{correlation:.2f} with nearness): training has not taught it which cells are neighbours; --aux drloc, or "
            "dhvt, whose convolutions know, help."
        )
    numbers = {"correlation": correlation, "correlation_initial": before}
    return Finding("positions", {"similarity": similarity_NN}, numbers, verdict, 0.25 if verdict else 0.0)


def heads(layers: Sequence[str], selectivity_LM: Sequence[Array], likeness_LMM: Sequence[Array]) -> Finding:
    """Heads that give every query the same, and heads that do what another one does."""
    blind = sum(int((one < Thresholds.blind).sum()) for one in selectivity_LM)
    copies = sum(int((np.tril(one, -1).max(1) > Thresholds.duplicate).sum()) for one in likeness_LMM if len(one) > 1)
    total = sum(len(one) for one in selectivity_LM)
    idle = min(total, blind + copies)
    numbers = {"heads": float(total), "blind": float(blind), "copies": float(copies)}
    verdict = ""
    if idle / total > Thresholds.idle_heads:
        verdict = (
            f"Of {total} heads, {blind} give every token the same and {copies} do what another head of their layer "
            "does: fewer heads or blocks, or a lower learning rate, would lose nothing."
        )
    arrays = {"selectivity": _ragged(selectivity_LM)}
    return Finding("heads", arrays, numbers, verdict, 0.3 * idle / total if verdict else 0.0, {"layers": list(layers)})


def similarity(
    rows: Sequence[str],
    columns: Sequence[str],
    cka_AC: Array,
    low_AC: Array | None,
    high_AC: Array | None,
    blocks: Sequence[str],
    other: str,
    constant: Sequence[str],
) -> Finding:
    """CKA with another model (`other` is its name), or of the model with itself (`other` is empty)."""
    arrays: dict[str, Array] = {"cka": cka_AC.astype(np.float32)}
    if low_AC is not None and high_AC is not None:
        arrays |= {"low": low_AC.astype(np.float32), "high": high_AC.astype(np.float32)}
    labels = {"rows": list(rows), "columns": list(columns), "constant": list(constant), "other": [other]}
    verdict, weight, numbers = _pattern(cka_AC, other) if other else _repeats(rows, cka_AC, blocks)
    return Finding("similarity" if other else "self_similarity", arrays, numbers, verdict, weight, labels)


def _pattern(cka_AC: Array, other: str) -> tuple[str, float, dict[str, float]]:
    """Zhu et al.'s pattern as one number: the lowest quarter against the other's lower half, less the top quarter."""
    A, C = cka_AC.shape
    bottom = float(cka_AC[: max(1, A // 4), : max(1, C // 2)].mean())
    top = float(cka_AC[-max(1, A // 4) :].mean())
    numbers = {"bottom": bottom, "top": top, "pattern": bottom - top}
    if top < Thresholds.unlike and bottom > Thresholds.like:
        verdict = (
            f"The lowest quarter of its layers sees images like the lower half of {other} (CKA {bottom:.2f}), the top "
            f"quarter like no layer of it ({top:.2f}): what it does in the end is its own."
        )
        return verdict, 0.25, numbers
    if bottom < Thresholds.unlike:
        verdict = (
            f"Even the lowest quarter of its layers is unlike the lower half of {other} (CKA {bottom:.2f}): it has not "
            f"found the edges and colours that a CNN begins with; {LOCAL_HELP}."
        )
        return verdict, 0.3, numbers
    return "", 0.0, numbers


def _repeats(rows: Sequence[str], cka_AC: Array, blocks: Sequence[str]) -> tuple[str, float, dict[str, float]]:
    places = [place for block in blocks if (place := _end_of(block, rows)) is not None]
    steps = [float(cka_AC[a, b]) for a, b in pairwise(places)]
    repeated = [rows[place] for place, value in zip(places[1:], steps, strict=True) if value > Thresholds.repeats]
    numbers = {"repeated": float(len(repeated)), "blocks": float(len(places))}
    if len(repeated) < 2:
        return "", 0.0, numbers
    verdict = (
        f"{len(repeated)} of {len(places)} blocks hardly change what the block before gave (CKA above "
        f"{Thresholds.repeats}): {', '.join(repeated)}; they have hardly begun to do something of their own: train "
        "longer, or try fewer blocks."
    )
    return verdict, 0.4 * len(repeated) / len(places), numbers


def _end_of(block: str, rows: Sequence[str]) -> int | None:
    """The row that holds a block's output: its own, or that of its last layer where the block hands that on."""
    inside = [place for place, row in enumerate(rows) if row == block or row.startswith(f"{block}.")]
    return inside[-1] if inside else None


def dead_channels(layers: Sequence[str], maps: Mapping[str, Array], dead_L: Sequence[float]) -> Finding:
    """`dead_L`: the share of each layer's channels that give the same for every image and cell."""
    numbers = {"dead_last": dead_L[-1]}
    verdict = ""
    if dead_L[-1] > Thresholds.dead_channels:
        verdict = (
            f"{dead_L[-1]:.0%} of the channels of {layers[-1]} give the same for every image: a lower learning rate or "
            "less weight decay keeps them alive."
        )
    arrays = {**maps, "dead": np.asarray(dead_L)}
    return Finding("feature_maps", arrays, numbers, verdict, 0.4 if verdict else 0.0, {"layers": list(layers)})


def _ragged(rows: Sequence[Array]) -> Array:
    """(L, M) with NaN where a layer has fewer heads than another."""
    table = np.full((len(rows), max(len(row) for row in rows)), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table
