"""How alike layers are (CKA): those of another model with its own, and its own among themselves.

A layers by C of the other model.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from smallvit.diagnosis.findings import Array, Finding
from smallvit.diagnosis.measurements.base import Canvas, Findings, Measurement, Panel, Said, StoredFindings
from smallvit.drawing.script import in_script
from smallvit.runs.stored_findings import StoredFinding

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs, Other

Labels = dict[str, Sequence[str]]
REPLICATES = 100
ALIKE = 0.50  # CKA from which on layers are called alike
PARTING = 0.10  # CKA with another model that the bottom has beyond the top
REPEATS = 0.99  # CKA of a block with the one before


class SelfSimilarity(Measurement):
    name = "self_similarity"
    place = 100
    label = "its layers among themselves"

    def measure(self, inputs: Inputs) -> Finding:
        from smallvit.diagnosis.inputs import Other

        arrays, labels = _cka(inputs, Other(inputs.model, inputs.judged.images_NCHW, ""))
        rows = labels["rows"]
        ends = {block: place for block in inputs.block_names if (place := _end_of(block, rows)) is not None}
        places = list(ends.values())
        steps = [float(arrays["cka"][a, b]) for a, b in pairwise(places)]
        arrays["steps"] = np.asarray(steps)
        labels |= {"blocks": list(ends), "unit": [inputs.unit]}
        numbers = {"blocks": float(len(places)), "step": float(np.median(steps)) if steps else 0.0}
        return Finding("self_similarity", arrays, numbers, labels)

    def sign(self, finding: Finding) -> str:
        blocks, unit = int(finding.numbers["blocks"]), finding.labels["unit"][0]
        repeated = int((finding.arrays["steps"] > REPEATS).sum())
        return f"{repeated} of {blocks} {unit}s that hardly change what the {unit} before gave (CKA above {REPEATS})" if repeated > 1 else ""  # fmt: skip

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel:
        return _map(31, findings["self_similarity"], canvas)


class Similarity(Measurement):
    name = "similarity"
    place = 110
    label = "its layers and those of the other model"

    def measure(self, inputs: Inputs) -> Finding | None:
        if inputs.other is None:
            return None
        arrays, labels = _cka(inputs, inputs.other)
        return Finding("similarity", arrays, pattern(arrays["cka"]), labels)

    def say(self, findings: Findings) -> Said:
        """Of the other model that was asked for there is always a sentence."""
        finding = findings["similarity"]
        other = finding.labels["other"][0]
        bottom, top, mean = (finding.numbers[key] for key in ("bottom", "top", "mean"))
        if bottom - top <= PARTING:
            way = "no part of it stands out"
        elif bottom >= ALIKE:
            way = "they begin alike and part on the way up"
        else:
            way = "they have little in common from the start, and less on the way up"
        return Said(
            f"its layers are like those of {other} by {mean:.2f} on average (CKA; 1 is the same), by {bottom:.2f} at the bottom "
            f"(the lowest quarter with the other's lower half) and by {top:.2f} at the top (the top quarter with all)",
            way,
            0.25,
        )

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel:
        return _map(30, findings["similarity"], canvas)


def _cka(inputs: Inputs, other: Other) -> tuple[dict[str, Array], Labels]:
    """CKA of its layers with those of another model, or with themselves (a name that is empty)."""
    from smallvit.diagnosis.alignment import LEAST_BATCHES, LEAST_IMAGES, cka, even_batches
    from smallvit.diagnosis.inputs import PER_BATCH

    images_NCHW = inputs.judged.images_NCHW
    sizes = even_batches(len(images_NCHW), max(LEAST_IMAGES, min(PER_BATCH, len(images_NCHW) // (LEAST_BATCHES + 2))))
    sizes = sizes if min(sizes) >= LEAST_IMAGES else [len(images_NCHW)]
    replicates = REPLICATES if len(sizes) >= LEAST_BATCHES else 0
    batches = zip(images_NCHW.split(sizes), other.images_NCHW.split(sizes), strict=True)
    result = cka(inputs.model, other.model, batches, replicates=replicates, leave_out_constant=True)
    arrays: dict[str, Array] = {"cka": result.cka_AC.numpy().astype(np.float32)}
    if result.low_AC is not None and result.high_AC is not None:
        arrays |= {"low": result.low_AC.numpy().astype(np.float32), "high": result.high_AC.numpy().astype(np.float32)}
    labels: Labels = {
        "rows": result.rows,
        "columns": result.columns,
        "constant": result.constant,
        "other": [other.name],
    }
    return arrays, labels


def pattern(cka_AC: Array) -> dict[str, float]:
    """Zhu et al.'s pattern in numbers: the lowest quarter against the other's lower half, and the top quarter against all."""
    A, C = cka_AC.shape
    bottom = float(cka_AC[: max(1, A // 4), : max(1, C // 2)].mean())
    top = float(cka_AC[-max(1, A // 4) :].mean())
    return {"bottom": bottom, "top": top, "pattern": bottom - top, "mean": float(cka_AC.mean())}


def _end_of(block: str, rows: Sequence[str]) -> int | None:
    """The row that holds a block's output: its own, or that of its last layer where the block hands that on."""
    inside = [place for place, row in enumerate(rows) if row == block or row.startswith(f"{block}.")]
    return inside[-1] if inside else None


def _map(place: int, finding: StoredFinding, canvas: Canvas) -> Panel:
    cka_AC, other, model = finding.arrays["cka"], finding.labels["other"][0], canvas.model
    data = {
        "models": [model, other or model],
        "rows": finding.labels["rows"],
        "columns": finding.labels["columns"],
        **{
            name: np.round(1000 * finding.arrays[key]).astype(int).ravel().tolist()
            for name, key in (("value", "cka"), ("low", "low"), ("high", "high"))
            if key in finding.arrays
        },
    }
    title = f"{model} and {other}" if other else f"{model} with itself"
    values: dict[str, Any] = {
        "data": in_script(data),
        "title": title,
        "row_model": model,
        "column_model": other or model,
        "shape": f"{cka_AC.shape[0]} by {cka_AC.shape[1]}",
        "mean": f"{float(cka_AC.mean()):.2f}",
        "left_out": list(finding.labels.get("constant", [])),
        "id": f"cka-{canvas.series}-{'other' if other else 'self'}",
    }
    return Panel(place, f"How alike layers are: {title}", piece="layer_likeness", values=values, by_script=True)
