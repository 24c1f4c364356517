"""The page of `smallvit curve`: the curve and its sentence, and before all others the models that were trained on all images."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np

from smallvit.amount.law import LEAST_SHARES
from smallvit.amount.shares import Curve, runs_of
from smallvit.drawing.learning import Fitted, Reached, learning_chart
from smallvit.report.page import Extra, write_report
from smallvit.report.verdict import Verdict, percent


def write_page(curve: Curve, out: Path) -> Path:
    runs = runs_of(curve.folder, curve.points[-1].share)
    recipe = runs[0].recipe
    title = f"{recipe.model.name} on shares of {Path(recipe.data.source).name}"
    verdict = Verdict("note" if curve.told.telling else "caution", "More images", curve.sentence)
    return write_report(runs, out, title, [verdict], [Extra("images-curve", "How many images", _section(curve))])


def _section(curve: Curve) -> str:
    from jinja2 import Environment, StrictUndefined

    text = (resources.files("smallvit.amount") / "page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    law = curve.as_dict()["law"]
    fitted = len(curve.points) >= LEAST_SHARES
    return environment.from_string(text).render(
        chart=learning_chart(
            [Reached(point.images, point.accuracies) for point in curve.points], _fitted(curve) if fitted else None
        ),
        sentence=curve.sentence,
        law=f"error = {law['a']:.3f} + {law['b']:.3g} n^-{law['c']:.2f}" if fitted and law["b"] else "",
        seeds=len(curve.points[0].accuracies),
        rows=[
            (
                f"{point.share:g}",
                f"{point.images:,}",
                percent(point.accuracy),
                ", ".join(map(percent, point.accuracies)),
            )
            for point in curve.points
        ],
    )


def _fitted(curve: Curve) -> Fitted:
    first, last = curve.points[0].images, curve.points[-1].images
    images_X = np.unique(np.concatenate([np.geomspace(first, 2 * last, 60), [last]]))
    middle, low, high = (1 - error_X for error_X in curve.told.band(images_X))
    return Fitted(images_X.tolist(), middle.tolist(), high.tolist(), low.tolist())
