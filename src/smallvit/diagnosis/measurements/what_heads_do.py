"""Whether heads tell tokens apart, and whether they differ from each other. L layers, M heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smallvit.diagnosis.findings import Array, Finding, ragged
from smallvit.diagnosis.measurements.base import Measurement

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs

BLIND = 0.02  # selectivity of a head that gives every query the same
BLIND_HEADS = 0.15  # share of such heads


class WhatHeadsDo(Measurement):
    name = "heads"
    place = 40
    label = "attention"

    def measure(self, inputs: Inputs) -> Finding | None:
        """`twin`: the correlation of a head with the earlier head of its layer that is most like it."""
        layers = inputs.attended.heads
        if not layers:
            return None
        twin_LM = [twins(layer.likeness_MM.numpy()) for layer in layers]
        arrays = {"selectivity": ragged([layer.selectivity_M.numpy() for layer in layers]), "twin": ragged(twin_LM)}
        numbers = {
            "heads": float(sum(len(twin_M) for twin_M in twin_LM)),
            "selectivity": float(np.nanmedian(arrays["selectivity"])),
            "twin": float(np.nanmedian(arrays["twin"][:, 1:])) if arrays["twin"].shape[1] > 1 else 0.0,
        }
        return Finding("heads", arrays, numbers, {"layers": [layer.layer for layer in layers]})

    def sign(self, finding: Finding) -> str:
        blind, heads = int((finding.arrays["selectivity"] < BLIND).sum()), int(finding.numbers["heads"])
        return f"{blind} of {heads} heads that give every token the same" if blind > BLIND_HEADS * heads else ""


def twins(likeness_MM: Array) -> Array:
    """Of each head the most that an earlier one is like it; the first has none before it, and gets 0."""
    earlier_MM = np.where(np.tri(len(likeness_MM), k=-1, dtype=bool), likeness_MM, -np.inf).max(1)
    return np.where(np.isfinite(earlier_MM), earlier_MM, 0.0)
