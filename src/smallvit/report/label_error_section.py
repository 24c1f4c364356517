"""Labels that are probably wrong: what models say of images that they were not trained on, against the label given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smallvit.report.collect import Content
from smallvit.report.data_section import stored_gallery
from smallvit.report.verdict import percent


def label_error_section(contents: Sequence[Content], image_bytes: int) -> dict[str, Any]:
    """The surest first. Only folds have judged every image."""
    found = [(run, stored_gallery(run, "label_errors", image_bytes)) for run in contents if run.folds]
    return {
        "label_errors": [
            {"label": run.label, "says": _says(run), "pictures": gallery.pictures, "dropped": gallery.dropped}
            for run, gallery in found
            if run.results.get("suspected_labels")
        ]
    }


def _says(run: Content) -> str:
    n, of = run.results["suspected_labels"], run.result["n"]
    shown = len(run.results["label_errors"])
    more = "" if shown == n else f" The {shown} surest are here."
    return (
        f"{n:,} of {of:,} labels, {percent(n / of)}.{more} All are in label-errors.csv beside this page. Look before you change one: "
        f"the models are right {percent(run.result['accuracy'])} of the time, and some images are hard, not wrong."
    )
