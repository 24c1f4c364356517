"""Feature maps: what each convolution or block gives inside the running network. B images, C channels, H by W cells, K pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smallvit.diagnosis.findings import Array, Finding
from smallvit.diagnosis.measurements.base import SHOWN, Canvas, Measurement, Panel, StoredFindings
from smallvit.diagnosis.measurements.shown_images import captions
from smallvit.drawing.pictures import gallery

if TYPE_CHECKING:
    from smallvit.diagnosis.featuremaps import FeatureMap
    from smallvit.diagnosis.inputs import Inputs

CHANNELS = 4  # of each layer and image that are shown one by one
MOST_MAPS = 20  # layers of the grid of feature maps


class FeatureMapRows(Measurement):
    name = "feature_maps"
    place = 70
    label = "feature maps"

    def measure(self, inputs: Inputs) -> Finding | None:
        """Every convolution of a CNN; of models that attend the grids of their blocks or stages."""
        from smallvit.diagnosis.featuremaps import channel_mean, strongest_channels

        maps = _maps(inputs)
        if not maps:
            return None
        arrays: dict[str, Array] = {}
        for number, layer in enumerate(maps):
            shown = layer._replace(map_BCHW=layer.map_BCHW[:SHOWN])
            arrays[f"mean.{number}"] = channel_mean(shown).numpy().astype(np.float16)
            arrays[f"channels.{number}"] = strongest_channels(shown, CHANNELS).numpy().astype(np.float16)
        maps_BCHW = [layer.map_BCHW for layer in maps]
        dead = [float((map_BCHW.amax((0, 2, 3)) == map_BCHW.amin((0, 2, 3))).double().mean()) for map_BCHW in maps_BCHW]
        arrays["dead"] = np.asarray(dead)
        return Finding("feature_maps", arrays, {"dead_last": dead[-1]}, {"layers": [layer.layer for layer in maps]})

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel | None:
        """Name and pictures of every layer, or of as many as fit, spread over the depth; before them the images.

        Of a layer: the mean of its channels for the first image and the last, and some channels one by one for the first.
        """
        if "pictures" not in findings:
            return None
        maps, pictures = findings["feature_maps"], findings["pictures"]
        layers, words = list(maps.labels["layers"]), captions(pictures)
        chosen = np.unique(np.linspace(0, len(layers) - 1, min(MOST_MAPS, len(layers))).round().astype(int)).tolist()
        budget = canvas.image_bytes // 2 // (1 + len(chosen))
        ends = [0, -1] if len(words) > 1 else [0]
        rows = [("images", gallery(pictures.arrays["pixels"][ends], [{"words": words[end]} for end in ends], budget))]
        for number in chosen:
            means_BHW, channels_BCHW = maps.arrays[f"mean.{number}"], maps.arrays[f"channels.{number}"]
            spoken = [f"mean of the channels of {layers[number]}, {words[end]}" for end in ends]
            spoken += [f"a channel of {layers[number]}, {words[0]}"] * channels_BCHW.shape[1]
            grey_KHW = _grey(np.concatenate([means_BHW[ends], channels_BCHW[0]]).astype(np.float32))
            rows.append((layers[number], gallery(grey_KHW[:, None], [{"words": text} for text in spoken], budget)))
        values = {"rows": [(name, shown.pictures) for name, shown in rows]}
        return Panel(70, "Feature maps", piece="feature_map_rows", values=values)


def _maps(inputs: Inputs) -> list[FeatureMap]:
    import torch

    from smallvit.diagnosis.featuremaps import FeatureMap, feature_maps, main_convolutions
    from smallvit.diagnosis.inputs import PER_BATCH

    model, images_BCHW = inputs.model, inputs.judged.images_NCHW[:PER_BATCH]
    with torch.no_grad():
        if not inputs.attends and main_convolutions(model):
            return feature_maps(model, images_BCHW)
        if not inputs.has_blocks:
            return []
        model.eval()
        grids = model.forward_intermediates(images_BCHW, intermediates_only=True)  # type: ignore[operator]
    # timm does not promise as many grids as names: what has both is shown.
    return [FeatureMap(name, grid.float().cpu()) for name, grid in zip(inputs.block_names, grids, strict=False)]


def _grey(maps_KHW: Array) -> NDArray[np.uint8]:
    """Each from its darkest to its brightest value."""
    low, high = maps_KHW.min((1, 2), keepdims=True), maps_KHW.max((1, 2), keepdims=True)
    return (255 * (maps_KHW - low) / np.maximum(high - low, 1e-12)).round().astype(np.uint8)
