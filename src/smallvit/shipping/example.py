"""predict.py: a few lines that label image files with an export, and need nothing of smallvit where the export does not."""

from __future__ import annotations

from importlib import resources
from typing import Any

import timm

from smallvit.shipping.formats import Shipment
from smallvit.shipping.request import Request


def example(request: Request, shipped: Shipment) -> str:
    preparation = shipped.predictor.preparation
    return render(
        "predict.py.j2",
        format=request.format,
        fit=preparation.fit,
        channels=preparation.in_chans,
        ours=is_ours(shipped.architecture),
        flips=preparation.flips,
        shifts=preparation.shifts,
        few=preparation.few_looks,
    )


def is_ours(architecture: str) -> bool:
    """Whether timm knows it from smallvit alone."""
    return timm.models.model_entrypoint(architecture).__module__.startswith("smallvit.")


def render(template: str, **values: Any) -> str:
    """Plain text, not html: what comes from the user is made harmless by whoever gives it."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    text = (resources.files("smallvit.shipping") / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(**values)
