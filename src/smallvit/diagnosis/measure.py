"""All measurements of one model on one set of images, each as a finding.

N images, B of a batch, L layers, M heads, H by W cells, S side of a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from smallvit.console import say, warn
from smallvit.diagnosis import findings
from smallvit.diagnosis.attention import AttentionMap, attention_maps, head_token_looks, looks, rollout_looks
from smallvit.diagnosis.capture import recorded_attention
from smallvit.diagnosis.cka import LEAST_BATCHES, LEAST_IMAGES, cka, even_batches
from smallvit.diagnosis.featuremaps import feature_maps, main_convolutions
from smallvit.diagnosis.findings import Array, Finding
from smallvit.diagnosis.locality import Locality, locality, uniform_locality
from smallvit.diagnosis.probes import effective_rank, heads, knn_accuracy, layer_vectors, position_similarity
from smallvit.errors import UsageError
from smallvit.models.features import Backbone
from smallvit.models.locality import ShiftedPatchEmbed
from smallvit.models.t2t import TokensToToken

SHOWN = 6  # images whose attention and feature maps are kept
PER_BATCH = 16  # images whose attention is in memory at once
REPLICATES = 100


class Labelled(NamedTuple):
    """Images as the model takes them, and their classes."""

    images_NCHW: Tensor
    labels_N: Tensor

    def batches(self, size: int = PER_BATCH) -> tuple[Tensor, ...]:
        return self.images_NCHW.split(size)


class Other(NamedTuple):
    """Another model, the same images as that one takes them, and what to call it."""

    model: nn.Module
    images_NCHW: Tensor
    name: str


def measure(
    backbone: Backbone, untrained: Backbone, judged: Labelled, train: Labelled, part: str, other: Other | None
) -> list[Finding]:
    """Everything that the model has something to show for: a CNN has no heads, a ViT without a table no positions."""
    model, classes = backbone.model, int(max(judged.labels_N.max(), train.labels_N.max())) + 1
    steps: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("fit", lambda: [measure_fit(model, judged, train, part)]),
        ("attention", lambda: measure_attention(backbone, untrained.model, judged)),
        ("feature maps", lambda: measure_maps(backbone, judged)),
        ("neighbours and rank", lambda: measure_layers(backbone, judged, train, classes)),
        ("similarity", lambda: measure_similarity(model, judged, other)),
    ]
    found: list[Finding] = []
    for name, step in steps:
        say(f"measuring {name}")
        try:
            found += step()
        except UsageError as error:  # of a model that is built unlike any that is known here
            warn(f"{name} cannot be measured: {error}")
    return sorted(found, key=lambda finding: -finding.weight)


def measure_fit(model: nn.Module, judged: Labelled, train: Labelled, part: str) -> Finding:
    return findings.fit(_right(model, train), _right(model, judged), part)


@torch.no_grad()
def _right(model: nn.Module, images: Labelled) -> tuple[int, int]:
    model.eval()
    answers = torch.cat([model(some).argmax(1) for some in images.batches(64)])
    return int((answers == images.labels_N).sum()), len(answers)


# ---- attention ---------------------------------------------------------------------------------------


def measure_attention(backbone: Backbone, untrained: nn.Module, judged: Labelled) -> list[Finding]:
    model, size, grid = backbone.model, backbone.img_size, backbone.final_grid
    now = locality(model, judged.batches())
    if not now:
        return [findings.tokens((grid[0], grid[1]), size, attends=False)] if grid else []
    initial = locality(untrained, judged.batches())
    even = [uniform_locality(one.grid) for one in now]
    layers = [one.layer for one in now]
    found = [
        findings.tokens(now[0].grid, size, attends=True),
        findings.locality(layers, _by_key(now), _by_key(initial), _by_key(even), mixes_neighbours(model)),
        attention_finding(attention_maps(model, judged.images_NCHW[:SHOWN])),
    ]
    measured = heads(model, judged.batches())
    selectivity = [one.selectivity_M.numpy() for one in measured]
    likeness = [one.likeness_MM.numpy() for one in measured]
    found.append(findings.heads([one.layer for one in measured], selectivity, likeness))
    places, before = position_similarity(model), position_similarity(untrained)
    if places is not None and before is not None:
        found.append(findings.positions(places.similarity_NN.numpy(), places.correlation, before.correlation))
    return found


def mixes_neighbours(model: nn.Module) -> bool:
    """Whether something other than attention looks beyond a cell's own pixels; a plain patch embedding does not."""
    return any(
        isinstance(module, TokensToToken | ShiftedPatchEmbed)
        or (isinstance(module, nn.Conv2d) and max(module.kernel_size) > max(module.stride))
        for module in model.modules()
    )


def _by_key(layers: list[Locality]) -> dict[str, list[Array]]:
    return {
        "distance": [one.distance_M.numpy() for one in layers],
        "entropy": [one.entropy_M.numpy() for one in layers],
        "near": [one.near_M.numpy() for one in layers],
    }


def attention_finding(maps: list[AttentionMap]) -> Finding:
    """What each layer looks at in a few images: over all heads, head by head, by rollout, from DHVT's head tokens."""
    arrays: dict[str, Array] = {}
    for number, (found, rolled) in enumerate(zip(maps, rollout_looks(maps), strict=True)):
        arrays[f"looks.{number}"] = looks(found).numpy().astype(np.float16)
        arrays[f"rollout.{number}"] = rolled.numpy().astype(np.float16)
        if found.queries.behind:
            arrays[f"head_tokens.{number}"] = head_token_looks(found).mean(2).numpy().astype(np.float16)
    alike = [_alike(looks(found).mean(1)) for found in maps]
    layers = [found.layer for found in maps]
    verdict, weight = findings.same_looks(layers, alike)
    numbers = {"same_looks": alike[-1]}
    return Finding("attention", arrays, numbers, verdict, weight, {"layers": layers})


def _alike(looks_BHW: Tensor) -> float:
    """Mean correlation between images of where a layer looks; a layer that looks everywhere alike has none."""
    flat_BN = looks_BHW.flatten(1).double()
    if len(flat_BN) < 2 or flat_BN.shape[1] < 3 or (flat_BN.std(1) / flat_BN.mean(1) < 0.05).any():
        return 0.0
    table_BB = torch.corrcoef(flat_BN)
    return float(table_BB[torch.ones_like(table_BB, dtype=torch.bool).triu(1)].mean())


# ---- maps and layers ---------------------------------------------------------------------------------


def measure_maps(backbone: Backbone, judged: Labelled) -> list[Finding]:
    """Every convolution of a CNN; of other models the grids of their blocks or stages."""
    model = backbone.model
    names, maps = _maps(model, judged.images_NCHW[:SHOWN])
    if not maps:
        return []
    arrays: dict[str, Array] = {
        f"mean.{number}": one_BCHW.mean(1).numpy().astype(np.float16) for number, one_BCHW in enumerate(maps)
    }
    _, many = _maps(model, judged.images_NCHW[:64])
    dead = [float((one.amax((0, 2, 3)) == one.amin((0, 2, 3))).double().mean()) for one in many]
    return [findings.dead_channels(names, arrays, dead)]


@torch.no_grad()
def _maps(model: nn.Module, images_BCHW: Tensor) -> tuple[list[str], list[Tensor]]:
    with recorded_attention(model) as calls:
        model(images_BCHW[:1])
    if not calls and main_convolutions(model):
        found = feature_maps(model, images_BCHW)
        return [one.layer for one in found], [one.map_BCHW for one in found]
    if not callable(getattr(model, "forward_intermediates", None)):
        return [], []
    model.eval()
    grids = model.forward_intermediates(images_BCHW, intermediates_only=True)  # type: ignore[operator]
    return _block_names(model), [grid_BDHW.float() for grid_BDHW in grids]


def _block_names(model: nn.Module) -> list[str]:
    return [str(info["module"]) for info in getattr(model, "feature_info", [])]


def measure_layers(backbone: Backbone, judged: Labelled, train: Labelled, classes: int) -> list[Finding]:
    model = backbone.model
    if not callable(getattr(model, "forward_intermediates", None)):
        return []
    bank, asked = layer_vectors(model, train.batches(64)), layer_vectors(model, judged.batches(64))
    layers = list(asked)
    accuracy = [knn_accuracy(bank[name], train.labels_N, asked[name], judged.labels_N) for name in layers]
    ranks = [effective_rank(asked[name]) for name in layers]
    widths = [asked[name].shape[1] for name in layers]
    return findings.neighbours(layers, accuracy, len(judged.labels_N), ranks, widths, classes)


def measure_similarity(model: nn.Module, judged: Labelled, other: Other | None) -> list[Finding]:
    images_NCHW = judged.images_NCHW
    if len(images_NCHW) < LEAST_IMAGES:
        return []
    sizes = even_batches(len(images_NCHW), max(LEAST_IMAGES, min(64, len(images_NCHW) // (LEAST_BATCHES + 2))))
    sizes = sizes if min(sizes) >= LEAST_IMAGES else [len(images_NCHW)]
    replicates = REPLICATES if len(sizes) >= LEAST_BATCHES else 0
    itself = Other(model, images_NCHW, "")
    found = []
    for second, images, name in (itself, other) if other else (itself,):
        batches = _pairs(images_NCHW, images, sizes)
        result = cka(model, second, batches, replicates=replicates, leave_out_constant=True)
        low, high = (None if one is None else one.numpy() for one in (result.low_AC, result.high_AC))
        found.append(
            findings.similarity(
                result.rows,
                result.columns,
                result.cka_AC.numpy(),
                low,
                high,
                _block_names(model),
                name,
                result.constant,
            )
        )
    return found


def _pairs(first: Tensor, second: Tensor, sizes: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(first.split(sizes), second.split(sizes), strict=True)
