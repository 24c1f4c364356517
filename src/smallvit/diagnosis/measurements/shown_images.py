"""Captions of the images that attention and feature maps are shown on: those that it is surely right or wrong about."""

from __future__ import annotations

from smallvit.runs.stored_findings import StoredFinding


def captions(pictures: StoredFinding) -> list[str]:
    true, predicted = pictures.labels["true"], pictures.labels["predicted"]
    return [a if a == b else f"{a}, taken for {b}" for a, b in zip(true, predicted, strict=True)]
