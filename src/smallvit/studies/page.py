"""The report of a study: claims, ours beside theirs, differences, curves with bands, what failed."""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path
from typing import Any

from smallvit.drawing.beside import Band, Row, band_panel, beside_chart
from smallvit.drawing.figures import color_name
from smallvit.drawing.svg import SERIES
from smallvit.evaluation.statistics import mean_interval
from smallvit.report.page import page_style
from smallvit.runs.atomic import write_text
from smallvit.runs.axes import means_over_images
from smallvit.studies.differences import differences
from smallvit.studies.lines import lines_of, meetings
from smallvit.studies.record import Opened, Record
from smallvit.studies.statuses import statuses
from smallvit.studies.tables import about, arm_rows, counted, floor_rows, unequal_time

LEVELS = {
    "holds": "good", "fails": "bad", "direction seen at laptop scale": "good", "not decided": "caution",
    "cannot be decided here": "note",
}  # fmt: skip
COURSES = {"train_loss": "Loss in training", "val_accuracy": "Accuracy on validation images"}


def write_page(opened: Opened, out: Path) -> Path:
    from jinja2 import Environment, StrictUndefined

    study, record = opened.study, opened.record
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = (resources.files("smallvit.studies") / "page.html.j2").read_text(encoding="utf-8")
    rows, found = arm_rows(study, record), differences(study, record)
    chance = record.floors_of(rows[0].arm).get("majority", {}).get("accuracy", math.nan) if rows else math.nan
    page = environment.from_string(text).render(
        style=page_style(),
        study=study,
        record=record,
        about=about(opened),
        over=counted(record),
        unequal=unequal_time(record, rows),
        claims=[(LEVELS[one.word], one) for one in statuses(study, record, found)],
        rows=rows,
        has_published=any(not math.isnan(row.published) for row in rows),
        floors=floor_rows(record),
        beside=beside_chart([Row(row.arm, row.mean, row.low, row.high, row.published) for row in rows], 100 * chance)
        if rows
        else "",
        differences=list(found.values()),
        panels=[*_axis_panel(opened), *_course_panels(record)],
        meetings=meetings(lines_of(study, record)),
        nan=math.isnan,
    )
    write_text(out, page.strip() + "\n")
    return out


def _axis_panel(opened: Opened) -> list[dict[str, Any]]:
    """Accuracy along the study's axis, with t intervals over seeds or draws."""
    lines = {name: points for name, points in lines_of(opened.study, opened.record).items() if len(points) > 1}
    if not lines:
        return []
    bands = [
        Band(name, [p.x for p in points], *_bounds([p.interval for p in points]), series=number)
        for number, (name, points) in enumerate(lines.items(), start=1)
    ]
    positive = all(x > 0 for band in bands for x in band.x)
    title = f"Accuracy against {opened.study.x}"
    return [_panel(title, bands, band_panel(bands, "axis", title, opened.study.x, percent=True, log_x=positive))]


def _course_panels(record: Record) -> list[dict[str, Any]]:
    found = []
    for key, title in COURSES.items():
        bands: list[Band] = []
        for arm in record.arms:
            each = {place: run.courses[key] for place, run in record.of(arm).items() if key in run.courses}
            epochs = [x for x, _ in next(iter(each.values()), [])]
            each = {place: course for place, course in each.items() if [x for x, _ in course] == epochs}
            if each and len(bands) < SERIES:
                at = [{place: course[i][1] for place, course in each.items()} for i in range(len(epochs))]
                values = [mean_interval(means_over_images(own)[0]) for own in at]
                bands.append(Band(arm, [x + 1 for x in epochs], *_bounds(values), series=len(bands) + 1))
        if bands:
            percent = key == "val_accuracy"
            if percent:
                bands = [_in_percent(band) for band in bands]
            spoken = f"{title} over the epochs of {len(bands)} arms"
            more = (
                ""
                if len(bands) < SERIES or len(record.arms) == SERIES
                else f"the first {SERIES} of {len(record.arms)} arms"
            )
            found.append(_panel(title, bands, band_panel(bands, key.replace("_", "-"), spoken, "epoch", percent), more))
    return found


def _in_percent(band: Band) -> Band:
    mean, low, high = ([100 * value for value in values] for values in (band.mean, band.low, band.high))
    return band._replace(mean=mean, low=low, high=high)


def _bounds(values: list[tuple[float, float, float]]) -> tuple[list[float], list[float], list[float]]:
    """Means, and both ends of their intervals; one run has no band."""
    filled = [
        (mean, mean if math.isnan(low) else low, mean if math.isnan(high) else high) for mean, low, high in values
    ]
    return [one[0] for one in filled], [one[1] for one in filled], [one[2] for one in filled]


def _panel(title: str, bands: list[Band], chart: str, note: str = "") -> dict[str, Any]:
    legend = [(band.label, color_name(band.series)) for band in bands]
    return {"title": title, "legend": legend, "chart": chart, "note": note}
