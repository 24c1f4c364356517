"""What our timm registrations share."""

from __future__ import annotations

from typing import Any


def config(size: int, first_conv: str | None, classifier: str, fixed_size: bool, paper: str = "") -> dict[str, Any]:
    """A timm default_cfg for a model without published weights; `paper` is where it comes from, none if it is ours."""
    return {
        "url": "",
        "num_classes": 10,
        "input_size": (3, size, size),
        "pool_size": None,
        "crop_pct": 1.0,
        "interpolation": "bilinear",
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "first_conv": first_conv,
        "classifier": classifier,
        "fixed_input_size": fixed_size,
        "paper_name": paper or None,
    }
