"""What the report shows, as matplotlib figures for notebooks and papers: drawn from the run folder alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smallvit.diagnosis.measurements.how_far_it_looks import TITLES, draw_locality
from smallvit.diagnosis.measurements.shown_images import captions
from smallvit.diagnosis.measurements.where_it_looks import kinds_of_looks
from smallvit.drawing.figures import Bar, draw_accuracy, draw_confusion, draw_curves
from smallvit.drawing.svg import fit, style
from smallvit.errors import RunError, UsageError, nearest
from smallvit.report.collect import Content, collect
from smallvit.report.training_section import course, curve_panels
from smallvit.report.verdict import floor_scores, run_score
from smallvit.runs.folder import RunFolder
from smallvit.runs.stored_findings import StoredFinding

if TYPE_CHECKING:
    from smallvit.drawing.notebook import NotebookFigure


class Figures:
    """`run.figures.confusion()` and so on. Each is a `matplotlib.figure.Figure`, made anew at every call."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def __repr__(self) -> str:
        names = ", ".join(name for name in vars(type(self)) if not name.startswith("_"))
        return f"figures of {self._run.path}: {names}"

    def accuracy(self) -> NotebookFigure:
        """Accuracy with its interval beside the floors."""
        content = self._judged()
        scores = [run_score(content.label, content.result, 1), *floor_scores(content.results.get("floors", {}))]
        bars = [Bar(score.label, score.accuracy, score.low, score.high, score.series) for score in scores]
        return _alone(draw_accuracy(bars).figure)

    def confusion(self) -> NotebookFigure:
        """Rows are true classes, columns what was predicted."""
        content = self._judged()
        if not content.result.get("confusion"):
            raise RunError(f"{self._run.path} has no confusion matrix: it was judged without a classifier")
        return _alone(draw_confusion(content.result["confusion"], content.class_names, "confusion").figure)

    def curves(self) -> NotebookFigure:
        """The course of training: loss, validation accuracy, learning rate, and what the losses declare."""
        from smallvit.drawing.notebook import alone, panels

        content = self._content()
        by_key, x_label = course(content)
        drawn = [(panel, [by_key[key] for key in panel.keys if key in by_key]) for panel in curve_panels([content])]
        drawn = [(panel, curves) for panel, curves in drawn if curves]
        if not drawn:
            raise RunError(f"{self._run.path / 'metrics.jsonl'} holds no curves")
        with style("curves"):
            figure, axes = panels(len(drawn), 300, 250)
            for one, (panel, curves) in zip(axes, drawn, strict=True):
                draw_curves(one, curves, x_label, panel.percent, panel.from_zero)
                one.set_title(fit(panel.title, 44), fontsize=12)
            return alone(figure)

    def attention(self, image: int = 0, shown: str = "mean of the heads") -> NotebookFigure:
        """Where every layer looks, on one of the images of the diagnosis; `shown` is also rollout, head 1, head 2, ..."""
        from smallvit.drawing.notebook import overlays

        found, pictures = self._finding("attention", "no layer with attention"), self._finding("pictures")
        layers, words = list(found.labels["layers"]), captions(pictures)
        kinds = {name: maps for name, maps, _ in kinds_of_looks(found.arrays, len(layers))}
        if shown not in kinds:
            raise UsageError(f"shown {shown!r}: {nearest(shown, kinds)}")
        if not 0 <= image < len(words):
            raise UsageError(f"image {image}: the diagnosis holds {len(words)}, from 0 to {len(words) - 1}")
        masks = [maps_BHW[image] for maps_BHW in kinds[shown]]
        return overlays(_pixels(pictures, image), masks, layers, f"{words[image]}: {shown}")

    def locality(self) -> NotebookFigure:
        """How far the heads of every layer look; dashed what it was untrained, dotted what looks at all cells alike."""
        from smallvit.drawing.notebook import alone, panels

        arrays = self._finding("locality", "no layer in which cells attend among each other").arrays
        with style("locality"):
            figure, axes = panels(len(TITLES), 320, 250)
            for one, (key, title) in zip(axes, TITLES.items(), strict=True):
                draw_locality(one, arrays[key], arrays[f"{key}_initial"], arrays[f"{key}_uniform"], series=1)
                one.set_title(title, fontsize=12)
            return alone(figure)

    def cka(self, own: bool = False) -> NotebookFigure:
        """How alike layers are: its own and those of the model it was diagnosed against; `own`: among themselves."""
        from smallvit.drawing.notebook import likeness_map

        if own:
            found = self._finding("self_similarity")
        else:
            hint = f"it was not diagnosed against another model: `smallvit diagnose {self._run.path} --against MODEL`, or cka(own=True)"
            found = self._finding("similarity", hint)
        model = str(self._run.recipe.model.name)
        other = found.labels["other"][0] or model
        title = f"CKA of {model} and {other}" if not own else f"CKA of the layers of {model}"
        return likeness_map(found.arrays["cka"], found.labels["rows"], found.labels["columns"], (model, other), title)

    # ---- what the folder holds ----

    def _content(self) -> Content:
        if not self._run.finished:
            raise RunError(f"{self._run.path} is not finished: go on with `smallvit resume {self._run.path}`")
        return collect([self._run])[0]

    def _judged(self) -> Content:
        content = self._content()
        if not content.part:
            raise RunError(f"{self._run.path} was judged on no images: it has neither a test nor a validation part")
        return content

    def _finding(self, name: str, lacks: str = "nothing of the kind") -> StoredFinding:
        findings = self._content().findings
        again = f"`smallvit diagnose {self._run.path}`, or run.diagnose()"
        if findings is None:
            raise RunError(f"the diagnosis of {self._run.path} was stored by another version of smallvit: {again}")
        if not findings:
            raise RunError(f"{self._run.path} has not been diagnosed: {again}")
        if name not in findings:
            raise RunError(f"the diagnosis of {self._run.path} has no {name}: {lacks}")
        return findings[name]


def _alone(figure: Any) -> NotebookFigure:
    from smallvit.drawing.notebook import alone

    with style("figure"):
        return alone(figure)


def _pixels(pictures: StoredFinding, image: int) -> Any:
    """H x W, or H x W x 3."""
    pixels_CHW = pictures.arrays["pixels"][image]
    return pixels_CHW[0] if len(pixels_CHW) != 3 else np.moveaxis(pixels_CHW, 0, -1)
