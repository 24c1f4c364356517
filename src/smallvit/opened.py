"""A run or a group of runs, with what can be done with it in Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smallvit.amount.shares import is_curve, runs_of
from smallvit.console import bar, quiet, say
from smallvit.data.kept import Data
from smallvit.data.preparation import Preparation
from smallvit.evaluation.model_file import load_model
from smallvit.report.card import card
from smallvit.report.figures import Figures
from smallvit.runs.execution import report_runs as report
from smallvit.runs.folder import RunFolder
from smallvit.runs.group import Diagnosis
from smallvit.runs.inference import evaluate, open_ensemble, open_predictor
from smallvit.runs.members import final_members, fold_results, is_group, replicate_members
from smallvit.runs.prediction import Images, embed, nearest, predict, predict_proba
from smallvit.runs.relocation import relocate
from smallvit.runs.stored_findings import read_findings
from smallvit.shipping.export import Export, export
from smallvit.tuning.folder import FINAL, is_tuning
from smallvit.types import Neighbour, Prediction

if TYPE_CHECKING:
    from smallvit.diagnosis.findings import Finding
    from smallvit.evaluation.ensemble import Ensemble
    from smallvit.evaluation.predictor import Predictor


class Run(RunFolder):
    """A run folder with what can be done with it. It is a path, that of its folder."""

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        """In a notebook: accuracy beside the floors, and the curves."""
        return card(self)

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names, in the order of the probabilities."""
        return _classes(self)

    @property
    def figures(self) -> Figures:
        """What the report shows as matplotlib figures: accuracy, confusion, curves; attention, locality, cka of a diagnosis."""
        return Figures(self)

    @property
    def transform(self) -> Preparation:
        """A function of one image (file, PIL image, array, tensor) that does what prediction does to it: (C, S, S)."""
        return Preparation.of(self.recipe.data.model_dump())

    def predict(self, *images: Images, reject: float | None = None) -> list[Prediction]:
        """Label and probabilities of images: files, folders, PIL images, uint8 arrays and tensors, or lists of these.

        A file that cannot be read has a `problem` in place of a label; `predict_proba` raises.
        `reject=0.05`: `unknown` where the model is less sure than `calibrate_rejection(0.05)` found it must be.
        """
        return predict(self.path, images, reject=reject)

    def calibrate_rejection(self, error: float) -> dict[str, Any]:
        """How sure the model must be so that at most this share of its answers is wrong; stored, and in the report."""
        return calibrate_rejection(self.path, error)

    def predict_proba(self, *images: Images) -> np.ndarray:
        """(N, K): the probabilities of `classes` for each image."""
        return predict_proba(self.path, images)

    def embed(self, *images: Images) -> np.ndarray:
        """(N, D): the features that the classifier stands on, for each image."""
        return embed(self.path, images)

    def nearest(self, *images: Images, k: int = 5, data: str | Path | None = None) -> list[tuple[Neighbour, ...]]:
        """Why this label? For each image the k training images that the model holds for most like it, with their labels.

        `data` is where the training images are now, if they were moved.
        """
        return nearest(self.path, images, k, data=data)

    def evaluate(self, part: str = "test") -> dict[str, Any]:
        """Accuracy with its interval on one part of the run's own split."""
        return evaluate(self.path, part)

    def diagnose(self, against: str | Path | None = None, images: int = 256) -> list[Finding]:
        """Why the model does well or badly, in ranked findings; they are stored and go into the report."""
        return diagnose(self.path, against=against, images=images)

    def model(self) -> Any:
        """The trained timm model, in eval mode. `timm.data.resolve_model_data_config` says how it takes its images.

        Where images are padded to squares (`data.fit = pad`), timm's transform fills with the mean and ours with black: `transform`.
        """
        predictor = load_model(self.path / "model.safetensors").predictor
        model: Any = predictor.backbone.model
        # A new dictionary: timm's own is shared by all models of that name.
        own = predictor.preparation.timm_config() | {"num_classes": len(predictor.class_names)}
        model.pretrained_cfg = model.default_cfg = {**model.pretrained_cfg, **own}
        return model

    def predictor(self, device: str = "auto") -> Predictor:
        """Logits, features and probabilities of files, arrays, PIL images and tensors; where images are many, in batches."""
        return open_predictor(self.path, device)

    def export(self, format: str, out: str | Path | None = None, *, overwrite: bool = False) -> Export:
        """Written for use elsewhere, as onnx, torch-export, timm or hf, and compared with the run on real images."""
        return export(self.path, format, out, overwrite=overwrite)


class Group:
    """Runs that differ in seed or fold, in one folder: they answer as one model, by the mean of their probabilities."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.runs = [Run(member.path) for member in replicate_members(self.path)]

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def results(self) -> dict[str, Any]:
        """Of folds: their accuracy together, every image judged by a model that was not trained on it."""
        return fold_results(self.path)

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names, in the order of the probabilities."""
        return _classes(self.runs[0])

    def predict(self, *images: Images, reject: float | None = None) -> list[Prediction]:
        """Label and probabilities of images, as `Run.predict` takes them."""
        return predict(self.path, images, reject=reject)

    def calibrate_rejection(self, error: float) -> dict[str, Any]:
        """As of a run; of folds by the images that each left out."""
        return calibrate_rejection(self.path, error)

    def predict_proba(self, *images: Images) -> np.ndarray:
        """(N, K): the probabilities of `classes` for each image."""
        return predict_proba(self.path, images)

    def evaluate(self, part: str | None = None) -> dict[str, Any]:
        """Accuracy of all together on the test part; of folds without one, on the images that each left out."""
        return evaluate(self.path, part)

    def predictor(self, device: str = "auto") -> Ensemble:
        """Logits and probabilities of files, arrays, PIL images and tensors."""
        return open_ensemble(self.path, device)

    def export(self, format: str, out: str | Path | None = None, *, overwrite: bool = False) -> Export:
        """Written for use elsewhere, as onnx, torch-export, and compared with the group on real images."""
        return export(self.path, format, out, overwrite=overwrite)


def _classes(run: RunFolder) -> tuple[str, ...]:
    return tuple(run.read("split.json", "class_names")["class_names"])


def diagnose(
    folder: str | Path, *, against: str | Path | None = None, images: int = 256, threads: int | None = None,
    device: str = "auto", show_progress: bool = True, data: str | Path | None = None,
) -> list[Finding]:  # fmt: skip
    """Measure a finished run, the weightiest finding first; they are stored with it, and its report is written anew.

    `against` is another run or a model's name; `data` is where the images of the run are now, if they were moved.
    """
    from smallvit.diagnosis.diagnose import diagnose as measure_run

    with quiet(not show_progress):
        relocate(folder, data)
        findings = measure_run(folder, against, images, threads, device)
        report([Run(folder)], Path(folder) / "report.html")
    return findings


def diagnose_others(runs: Sequence[Run], asked: Diagnosis) -> None:
    """What a group asks for: every run of it but one, against that one."""
    (basis,) = [run for run in runs if run.path.name == asked.against]
    others = [run for run in runs if run is not basis and not read_findings(run)]
    with bar("diagnosing", len(others)) as advance:
        for run in others:
            findings = diagnose(run.path, against=basis.path, images=asked.images, show_progress=False)
            for finding in findings:
                if finding.verdict:
                    say(f"{run.path.name}: {finding.verdict}")
            advance(1, note=run.path.name)


def calibrate_rejection(
    folder: str | Path, error: float, part: str | None = None, data: Data = None, *, threads: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """How sure a finished run, or a group as one model, must be; it is stored, and the report is written anew.

    `part` or `data` is what it is judged on, as for `evaluate`; only what is the run's own is stored.
    """
    from smallvit.runs.rejection import calibrate_rejection as calibrate

    record = calibrate(folder, error, part, data, threads=threads, device=device)
    if data is None:
        with quiet():
            report(open_runs(folder), Path(folder) / "report.html")
    return record


def open_runs(folder: str | Path) -> list[Run]:
    """The run of a folder, or the runs of a group that count."""
    folder = Path(folder)
    if is_tuning(folder):
        return [Run(folder / FINAL)]
    if is_curve(folder):  # the models that were trained on all images
        return [Run(run.path) for run in runs_of(folder, 1.0)]
    return [Run(member.path) for member in final_members(folder)] if is_group(folder) else [Run(folder)]
