"""Where it looks: attention of every layer over some images. B images, L layers, M heads, H by W cells, T head tokens."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smallvit.diagnosis.findings import Array, Finding
from smallvit.diagnosis.measurements.base import SHOWN, Canvas, Measurement, Panel, StoredFindings
from smallvit.diagnosis.measurements.shown_images import captions
from smallvit.drawing.pictures import gallery
from smallvit.drawing.script import in_script

if TYPE_CHECKING:
    from torch import Tensor

    from smallvit.diagnosis.attention import AttentionMap
    from smallvit.diagnosis.inputs import Inputs

MOST_HEADS = 8  # whose maps can be chosen one by one


class WhereItLooks(Measurement):
    name = "attention"
    place = 50
    label = "attention"

    def measure(self, inputs: Inputs) -> Finding | None:
        """What each layer looks at: over all heads, head by head, by rollout, from DHVT's head tokens."""
        from smallvit.diagnosis.attention import looks

        maps = inputs.attended.maps
        if not maps:
            return None
        arrays = looked_at([layer._replace(weights_BMQK=layer.weights_BMQK[:SHOWN]) for layer in maps])
        numbers = {"same_looks": _alike(looks(maps[-1]).mean(1)), "class_token": float(maps[-1].queries.front > 0)}
        return Finding("attention", arrays, numbers, {"layers": [layer.layer for layer in maps]})

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel | None:
        """The masks as bytes: a grid of 8 x 8 takes 64 of them, so every head of every layer can be had."""
        attention, pictures = findings["attention"], findings.get("pictures")
        if pictures is None:
            return None
        layers, words = list(attention.labels["layers"]), captions(pictures)
        budget = canvas.image_bytes // 4
        shown = gallery(pictures.arrays["pixels"], [{"label": text} for text in words], budget).pictures
        if not shown:
            return None
        kinds = kinds_of_looks(attention.arrays, len(layers))
        data = {
            "layers": layers,
            "captions": words[: len(shown)],
            "images": [{"uri": picture.uri, "width": picture.width, "height": picture.height} for picture in shown],
            "kinds": [{"name": name, "masks": masks(maps, common, len(shown))} for name, maps, common in kinds],
        }
        values = {
            "data": in_script(data),
            "layers": layers,
            "captions": words[: len(shown)],
            "kinds": [name for name, _, _ in kinds],
            "who": "the class token" if attention.numbers.get("class_token") else "all cells on average",
            "series": canvas.series,
        }
        return Panel(10, "Where it looks", piece="where_it_looks", values=values, by_script=True)


def looked_at(maps: Sequence[AttentionMap]) -> dict[str, Array]:
    """What each layer looks at, by its number: head by head, by rollout, and from DHVT's head tokens."""
    from smallvit.diagnosis.attention import head_token_looks, looks, rollout_looks

    arrays: dict[str, Array] = {}
    for number, (layer, rolled) in enumerate(zip(maps, rollout_looks(maps), strict=True)):
        arrays[f"looks.{number}"] = looks(layer).numpy().astype(np.float16)
        arrays[f"rollout.{number}"] = rolled.numpy().astype(np.float16)
        if layer.queries.behind:
            arrays[f"head_tokens.{number}"] = head_token_looks(layer).mean(2).numpy().astype(np.float16)
    return arrays


def _alike(looks_BHW: Tensor) -> float:
    """Mean correlation between images of where a layer looks; a layer that looks everywhere alike has none."""
    import torch

    flat_BN = looks_BHW.flatten(1).double()
    if len(flat_BN) < 2 or flat_BN.shape[1] < 3 or (flat_BN.std(1) / flat_BN.mean(1) < 0.05).any():
        return 0.0
    table_BB = torch.corrcoef(flat_BN)
    return float(table_BB[torch.ones_like(table_BB, dtype=torch.bool).triu(1)].mean())


def kinds_of_looks(arrays: Mapping[str, Array], layers: int) -> list[tuple[str, list[Array], bool]]:
    """What can be chosen: name, (B, H, W) of every layer, and whether all layers share one scale."""

    def stored(name: str) -> list[Array]:
        return [arrays[f"{name}.{number}"].astype(np.float32) for number in range(layers)]

    looks_L = stored("looks")
    mean_L = [looks_BMHW.mean(1) for looks_BMHW in looks_L]
    kinds = [
        ("mean of the heads", mean_L, False),
        ("mean of the heads, one scale for all layers", mean_L, True),
        ("rollout", stored("rollout"), False),
    ]
    fewest, heads = (choose(looks_BMHW.shape[1] for looks_BMHW in looks_L) for choose in (min, max))
    for head in range(min(MOST_HEADS, heads)):
        words = f"head {head + 1}" if head < fewest else f"head {head + 1} (dark: the layer has fewer)"
        maps = [looks[:, head] if head < looks.shape[1] else np.zeros_like(looks[:, 0]) for looks in looks_L]
        kinds.append((words, maps, False))
    if "head_tokens.0" in arrays:
        tokens_L = stored("head_tokens")
        kinds += [
            (f"from head token {token + 1}", [tokens_BTHW[:, token] for tokens_BTHW in tokens_L], False)
            for token in range(min(MOST_HEADS, tokens_L[0].shape[1]))
        ]
    return kinds


def masks(maps_L: Sequence[Array], common: bool, images: int) -> list[list[dict[str, Any]]]:
    """For every image and layer: rows, columns and bytes, 255 at the maximum of the layer or of all layers."""
    found = []
    for image in range(images):
        most = max(float(maps_BHW[image].max()) for maps_BHW in maps_L)
        row = []
        for maps_BHW in maps_L:
            largest = most if common else float(maps_BHW[image].max())
            values = np.clip(255 * maps_BHW[image] / max(largest, 1e-12), 0, 255).round().astype(np.uint8)
            row.append({"rows": values.shape[0], "columns": values.shape[1], "bytes": _encoded(values)})
        found.append(row)
    return found


def _encoded(values: NDArray[np.uint8]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
