"""A folder that timm loads by itself: config.json and model.safetensors, as timm reads them from the Hugging Face hub.

    timm.create_model("local-dir:FOLDER", pretrained=True)

timm's model gives logits of normalised images. What comes before and after them stands beside it, in config.json under
`smallvit`, and the example that ships with it does all of it. B images, C channels, S side.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from safetensors.torch import save_file

from smallvit.data.preparation import Preparation
from smallvit.evaluation.predictor import Predictor
from smallvit.models.features import Backbone
from smallvit.shipping.answer import OneAnswer, about, temperature_of
from smallvit.shipping.formats import Ask, Shipment
from smallvit.shipping.place import CONFIG, WEIGHTS


def write(shipped: Shipment, folder: Path) -> None:
    predictor = shipped.predictor
    assert isinstance(predictor, Predictor), "a group is refused before"
    model = predictor.backbone.model
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / WEIGHTS)
    config = _config(predictor, shipped.architecture, shipped.arguments)
    (folder / CONFIG).write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _config(predictor: Predictor, architecture: str, arguments: dict[str, Any]) -> dict[str, Any]:
    model: Any = predictor.backbone.model
    p, classes = predictor.preparation, list(predictor.class_names)
    fixed = bool(model.pretrained_cfg.get("fixed_input_size"))
    sized = {"img_size": p.img_size} if fixed else {}
    return {
        "architecture": architecture,
        "num_classes": len(classes),
        "num_features": predictor.backbone.width,
        "label_names": classes,
        "model_args": {**arguments, **sized, "num_classes": len(classes), "in_chans": p.in_chans},
        # Without names of first layer and classifier: timm would convert the one, and could drop the other.
        "pretrained_cfg": {
            **p.timm_config(),
            "num_classes": len(classes),
            "fixed_input_size": fixed,
            "architecture": architecture,
            "tag": "smallvit",
        },
        "smallvit": about(predictor)
        | {
            "img_size": p.img_size,
            "mean": p.mean,
            "std": p.std,
            "flips": p.flips,
            "shifts": p.shifts,
            "few_looks": p.few_looks,
            "temperature": temperature_of(predictor),
        },
    }


def read(folder: Path) -> Ask:
    """All from the folder: the model as timm builds and loads it, and the rest from its configuration."""
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True)
    beside = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["smallvit"]
    names = {"cache_size": beside["size"], "in_chans": beside["channels"]}
    preparation = Preparation.of(beside | names)
    backbone = Backbone(model, preparation.img_size, preparation.in_chans)
    answer = OneAnswer(Predictor(backbone, preparation, beside["class_names"], beside["temperature"], calibrated=True))
    answer.eval()

    def ask(squares_NCSS: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return answer(torch.from_numpy(squares_NCSS)).numpy()

    return ask
