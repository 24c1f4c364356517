"""The training section: the curves that every run has, and what its losses want drawn and shown beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from smallvit.drawing import figures
from smallvit.drawing.figures import Curve
from smallvit.drawing.pictures import gallery
from smallvit.report.collect import Content
from smallvit.runs.curves import CurvePanel

CURVE_POINTS = 240  # more cannot be seen in a panel of 340 px
LOSS = CurvePanel(
    "loss", "Loss", ("train_loss", "val_loss"), "Training and validation loss", faint=("train_loss",), from_zero=False
)
RATE = CurvePanel("lr", "Learning rate", ("lr",), "Learning rate")


def training_section(contents: Sequence[Content]) -> dict[str, Any]:
    courses = [course(run) for run in contents]
    x_label = courses[0][1]
    panels = []
    for panel in curve_panels(contents):
        curves = [curves[key] for curves, _ in courses for key in panel.keys if key in curves]
        if curves:
            last = ", ".join(f"{curve.y[-1]:.3g}" for curve in curves)
            label = f"{panel.spoken} by {x_label}; last values {last}"
            drawn = figures.curve_panel(curves, panel.name, label, x_label, panel.percent, panel.from_zero)
            panels.append((panel.title, drawn))
    legend = [(run.label, figures.color_name(run.series), figures.dash_name(run.series)) for run in contents]
    return {
        "panels": panels,
        "legend": legend,
        "is_pretraining": all(run.pretrained for run in contents),
        "has_val": any("val_loss" in curves for curves, _ in courses),
        "has_mark": any(curve.mark for curves, _ in courses for curve in curves.values()),
    }


def shown_section(contents: Sequence[Content], image_bytes: int) -> dict[str, Any]:
    """The pictures that objectives wanted to be seen: of each run a title, words, and rows of pictures side by side."""
    return {"shown": [_shown(run, image_bytes) for run in contents if "shown" in run.results]}


def _shown(run: Content, image_bytes: int) -> dict[str, Any]:
    about = run.results["shown"]
    columns = [str(column) for column in about["columns"]]
    pixels = run.images.get("shown", np.zeros((0, 1, 1, 1), np.uint8))
    captions = [{"label": column} for _ in range(len(pixels) // len(columns)) for column in columns]
    found = gallery(pixels, captions, image_bytes).pictures
    whole = len(found) // len(columns) * len(columns)
    rows = [found[start : start + len(columns)] for start in range(0, whole, len(columns))]
    return {"label": run.label, "title": about["title"], "words": about["words"], "rows": rows}


def curve_panels(contents: Sequence[Content]) -> list[CurvePanel]:
    """Every panel once, also where several runs declare it."""
    judge = "k-NN accuracy on the validation part" if contents[0].pretrained else "Validation accuracy"
    # Zero means nothing to a loss or an accuracy that is far away from it.
    accuracy = CurvePanel("val-accuracy", judge, ("val_accuracy",), judge, percent=True, from_zero=False)
    objective = [panel for run in contents for panel in run.curves.objective]
    aux = [panel for run in contents for panel in run.curves.aux]
    panels: dict[str, CurvePanel] = {}
    for panel in (LOSS, accuracy, *objective, RATE, *aux):
        panels.setdefault(panel.name, panel)
    return list(panels.values())


def course(content: Content) -> tuple[dict[str, Curve], str]:
    """Curves by key of a record, those that are drawn, and what x counts."""
    steps = [
        {**record, "train_loss": record.get("loss", math.nan)} | record.get("parts", {})
        for record in _records(content.metrics, "train")
    ]
    epochs = _records(content.metrics, "epoch")
    per_epoch = epochs[0]["step"] / (epochs[0]["epoch"] + 1) if epochs else 1.0  # the last one may be cut short
    curves = {}
    for panel in curve_panels([content]):
        for key in panel.keys:
            # The mean loss of an epoch is recorded too, but that of every few steps shows more.
            of_epochs = key != "train_loss" and any(key in record for record in epochs)
            records = epochs if of_epochs else steps
            curves[key] = _curve(records, key, per_epoch, content.series, faint=key in panel.faint)
    chosen = content.results.get("weights", {}).get("epoch")
    curves["val_accuracy"] = _marked(curves["val_accuracy"], epochs, chosen, per_epoch)
    return {key: curve for key, curve in curves.items() if curve.x}, "epoch" if epochs else "step"


def _records(metrics: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """One record per step, in order: a resumed run logs the steps since its last checkpoint again."""
    by_step = {record["step"]: record for record in metrics if record.get("kind") == kind}
    return [by_step[step] for step in sorted(by_step)]


def _curve(records: Sequence[Mapping[str, Any]], key: str, per_epoch: float, series: int, faint: bool = False) -> Curve:
    """Values over epochs, averaged in bins where there are more records than a panel can show."""
    known = [record for record in records if _is_number(record.get(key))]
    bins = np.array_split(np.arange(len(known)), min(len(known), CURVE_POINTS)) if known else []
    x = np.array([record["step"] / per_epoch for record in known])
    y = np.array([record[key] for record in known], dtype=float)
    return Curve([float(x[rows].mean()) for rows in bins], [float(y[rows].mean()) for rows in bins], series, faint)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _marked(curve: Curve, epochs: Sequence[Mapping[str, Any]], chosen: int | None, per_epoch: float) -> Curve:
    """The curve with the point stressed whose weights became the model, where it was validated."""
    places = [
        record["step"] / per_epoch for record in epochs if record["epoch"] + 1 == chosen and "val_accuracy" in record
    ]
    if not places:
        return curve
    return curve._replace(mark=min(zip(curve.x, curve.y, strict=True), key=lambda point: abs(point[0] - places[0])))
