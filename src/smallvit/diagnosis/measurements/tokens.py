"""How many cells there are to attend among."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smallvit.console import several
from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.measurements.base import Findings, Measurement, Said

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs

FEW_TOKENS = 4  # cells, a grid of 2 x 2


class Tokens(Measurement):
    name = "tokens"
    place = 20
    label = "attention"

    def measure(self, inputs: Inputs) -> Finding:
        """The grid that cells first attend among; without attention the grid that the model ends with."""
        backbone, now = inputs.backbone, inputs.attended
        attended = [layer.grid for layer in now.locality] + [layer.keys.grid for layer in now.maps]
        rows, columns = [*attended, backbone.final_grid or (1, 1)][0]
        numbers = {
            "cells": float(rows * columns), "rows": float(rows), "columns": float(columns),
            "img_size": float(backbone.img_size), "attends": float(inputs.attends),
            "patches": float(hasattr(inputs.model, "patch_embed")),
        }  # fmt: skip
        return Finding("tokens", {}, numbers)

    def say(self, findings: Findings) -> Said | None:
        """Digits do without more, photos do not: the count alone cannot tell, so the advice is to try."""
        numbers = findings["tokens"].numbers
        cells, size, rows = (int(numbers[key]) for key in ("cells", "img_size", "rows"))
        if not numbers["attends"] or cells > FEW_TOKENS:
            return None
        patch = size // rows
        smaller = f"--set model.kwargs.patch_size={max(1, patch // 4)}, or " if numbers.get("patches", 1.0) else ""
        return Said(
            f"{'a patch' if smaller else 'a cell'} of {patch} px leaves {several(cells, 'token')} of an image of {size} px",
            f"there is little to attend among; it cost vit_nano ten points on CIFAR-10 and nothing on digits: try "
            f"{smaller}larger images",
            0.6,
        )
