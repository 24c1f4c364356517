"""torch.export: one file that torch alone runs, without timm and without smallvit. Classes and size are in it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import torch

from smallvit.shipping.answer import about, trace
from smallvit.shipping.formats import Ask, Shipment
from smallvit.shipping.place import EXPORTED

KEY = "smallvit.json"


def write(shipped: Shipment, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(
            trace(shipped.predictor), folder / EXPORTED, extra_files={KEY: json.dumps(about(shipped.predictor))}
        )


def read(folder: Path) -> Ask:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.export.load(folder / EXPORTED).module()

    def ask(squares_NCSS: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(squares_NCSS)).numpy()

    return ask
