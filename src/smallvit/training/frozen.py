"""The frozen features of a finished run: taken once, kept in its folder, and probed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from smallvit.data.imageset import ImageSet
from smallvit.data.split import Split
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import digest, load_model, read_tensors, write_tensors
from smallvit.evaluation.probes import Frozen, extract, knn_probe, linear_probe
from smallvit.runs.folder import RunFolder


def frozen_parts(run: RunFolder, images: ImageSet, split: Split, device: torch.device) -> dict[str, Frozen]:
    """Features and labels of the parts that hold images. The run's split and model decide them, so they are kept."""
    model, kept = run.path / "model.safetensors", run.path / "features.safetensors"
    rows = {name: part for name, part in split.parts.items() if len(part)}
    own = digest(model)
    if kept.is_file():
        tensors, header = read_tensors(kept)
        # Another kind of device gives other last bits; files of 0.1 do not say it, and were made on the CPU.
        if (header.get("model"), header.get("device", "cpu")) == (own, device.type):
            return {name: Frozen(tensors[name], images.labels_N[part]) for name, part in rows.items()}
    about = {"model": own, "device": device.type}
    predictor = load_model(model, device).predictor
    parts = {name: extract(predictor, images, part) for name, part in rows.items()}
    write_tensors(kept, {name: part.features_ND for name, part in parts.items()}, about)
    return parts


def probe_parts(parts: Mapping[str, Frozen], num_classes: int, *, knn: bool, linear: bool) -> dict[str, Any]:
    """Fitted on the training part, judged on what a fold left out or on the test part; without one on the validation part."""
    part = next((name for name in ("left_out", "test", "val") if name in parts), None)
    if part is None or num_classes < 2:
        raise UsageError("a probe needs classes, and a test or validation part: the run has none")
    val = parts.get("val") if part != "val" else None
    probes: dict[str, Any] = {"part": part}
    if knn:
        probes["knn"] = knn_probe(parts["train"], parts[part], num_classes)
    if linear:
        probes["linear"] = linear_probe(parts["train"], val, parts[part])
    return probes
