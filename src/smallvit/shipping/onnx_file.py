"""ONNX: one file that onnxruntime runs without torch and without smallvit. Classes and size are in its metadata."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smallvit.shipping.answer import about, trace
from smallvit.shipping.formats import Ask, Shipment
from smallvit.shipping.place import ONNX

INPUT, OUTPUT, KEY = "images", "probabilities", "smallvit"


def write(shipped: Shipment, folder: Path) -> None:
    import onnx

    program = trace(shipped.predictor)
    with _calm():
        # Not simplified: with onnxscript 0.7 that makes another model of T2T-ViT. onnxruntime simplifies what it loads.
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, optimize=False, input_names=[INPUT], output_names=[OUTPUT]
        )
    assert made is not None, "with dynamo it is a program"
    model: Any = made.model_proto
    onnx.helper.set_model_props(model, {KEY: json.dumps(about(shipped.predictor))})
    onnx.save(model, folder / ONNX)


def read(folder: Path) -> Ask:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: that it cannot fold a constant is no concern of the user's
    session = onnxruntime.InferenceSession(str(folder / ONNX), options, providers=["CPUExecutionProvider"])

    def ask(squares_NCSS: np.ndarray) -> np.ndarray:
        return np.asarray(session.run([OUTPUT], {INPUT: squares_NCSS})[0])

    return ask


@contextmanager
def _calm() -> Iterator[None]:
    """What torch and onnxscript tell of their own insides is nothing that the user could act on."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
