"""A run of seconds that has everything an export must carry: looks, a temperature, odd class names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import smallvit
from helpers import make_folder
from smallvit.evaluation.model_file import read_tensors, write_tensors

TINY = {
    "model.kwargs.depth": 1,
    "model.kwargs.embed_dim": 12,
    "model.kwargs.num_heads": 1,
    "data.flips": True,
    "data.shifts": 1,
}


def trained(root: Path, settings: dict[str, Any] = TINY, **more: Any) -> Path:
    """A finished run on three classes of noise; its temperature is set as if it had been fitted."""
    make_folder(root / "photos", {"cat": 20, "dog *x*": 20, "owl <b>": 20}, size=(18, 15))
    flags = {
        "model": "vit_pico",
        "img_size": 12,
        "epochs": 1,
        "batch_size": 8,
        "threads": 1,
        "show_progress": False,
    } | more
    run = smallvit.train(root / "photos", out=root / "a", settings=settings, **flags)
    warm(run.path)
    return run.path


def warm(run: Path, temperature: float = 0.4) -> None:
    tensors, header = read_tensors(run / "model.safetensors")
    write_tensors(run / "model.safetensors", tensors, header | {"temperature": temperature, "calibrate": True})
