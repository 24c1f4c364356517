"""What its blocks hold: what the nearest neighbours of an image are worth after each, and in how many directions features differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from smallvit.diagnosis.findings import Array, Finding
from smallvit.diagnosis.measurements.base import Canvas, Measurement, Panel, StoredFindings
from smallvit.drawing.figures import Curve, curve_panel

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs

PEAK = 0.02  # accuracy of neighbours that is lost between the best block and the last
RANK_BY_CLASS = 1.2  # effective rank of the last block, for each class
IMAGES_BY_RANK = 5  # images for each direction that is asked for: few images differ in few directions


class Neighbours(Measurement):
    name = "neighbours"
    place = 80
    label = "neighbours"

    def measure(self, inputs: Inputs) -> Finding | None:
        from smallvit.evaluation.probes import Frozen, knn_probe

        if not inputs.has_blocks or inputs.known.part == "training":  # an image is its own nearest neighbour
            return None
        train, judged, classes = inputs.train, inputs.judged, inputs.known.classes
        bank, asked = inputs.train_vectors, inputs.judged_vectors
        accuracy = [
            knn_probe(Frozen(bank[name], train.labels_N), Frozen(asked[name], judged.labels_N), classes)["accuracy"]
            for name in asked
        ]
        best = int(np.argmax(accuracy))
        numbers = {"best": accuracy[best], "best_block": float(best), "last": accuracy[-1], "images": float(len(judged.labels_N))}  # fmt: skip
        return Finding("neighbours", {"accuracy": np.asarray(accuracy)}, numbers, _labels(inputs))

    def sign(self, finding: Finding) -> str:
        best, last, images = (finding.numbers[key] for key in ("best", "last", "images"))
        # Two shares of the same images: twice the larger standard error is a cautious bound for their difference.
        noise = 2 * math.sqrt(max(share * (1 - share) for share in (best, last)) / images)
        if best - last <= max(PEAK, noise):
            return ""
        layer, unit = finding.labels["layers"][int(finding.numbers["best_block"])], finding.labels["unit"][0]
        return f"nearest neighbours that are right for {best:.0%} after {layer} but {last:.0%} after the last {unit}"

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel:
        unit = _unit(findings)
        words = (
            f"How often the nearest neighbours of an image, by the features after each {unit}, have its class: more is better, "
            "and it should rise to the end."
        )
        values = findings["neighbours"].arrays["accuracy"]
        return _by_block(50, "neighbours", "Right by nearest neighbours", words, values, unit, canvas, percent=True)


class Rank(Measurement):
    name = "rank"
    place = 90
    label = "directions in use"

    def measure(self, inputs: Inputs) -> Finding | None:
        from smallvit.evaluation.probes import effective_rank

        if not inputs.has_blocks:
            return None
        asked = inputs.judged_vectors
        ranks = [effective_rank(vectors_ND) for vectors_ND in asked.values()]
        numbers = {
            "last": ranks[-1],
            "width": float(list(asked.values())[-1].shape[1]),
            "classes": float(inputs.known.classes),
            "images": float(len(inputs.judged.labels_N)),
        }
        return Finding("rank", {"rank": np.asarray(ranks)}, numbers, _labels(inputs))

    def sign(self, finding: Finding) -> str:
        rank, classes = finding.numbers["last"], int(finding.numbers["classes"])
        needed = min(RANK_BY_CLASS * classes, finding.numbers["width"] / 2)
        enough = finding.numbers["images"] >= IMAGES_BY_RANK * needed
        few = classes > 2 and enough and rank < needed
        return f"features of {rank:.1f} directions for {classes} classes" if few else ""

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel:
        words = "In how many directions the features differ: about as many as there are classes or more, in models that fit."
        values = findings["rank"].arrays["rank"]
        return _by_block(51, "rank", "Directions in use (effective rank)", words, values, _unit(findings), canvas)


def _labels(inputs: Inputs) -> dict[str, list[str]]:
    return {"layers": list(inputs.judged_vectors), "unit": [inputs.unit]}


def _unit(findings: StoredFindings) -> str:
    return findings["neighbours"].labels["unit"][0] if "neighbours" in findings else "block"


def _by_block(
    place: int, name: str, title: str, words: str, values: Array, unit: str, canvas: Canvas, percent: bool = False
) -> Panel:
    numbers = [float(value) for value in values]
    curve = Curve([float(n) for n in range(1, len(numbers) + 1)], numbers, canvas.series, False)
    spoken = f"{title} by {unit}: " + ", ".join(f"{value:.3g}" for value in numbers)
    drawn = curve_panel([curve], f"{name}-{canvas.series}", spoken, unit, percent)
    return Panel(place, f"What its {unit}s hold", words, ((title, drawn),))
