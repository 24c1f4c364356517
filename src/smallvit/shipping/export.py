"""`smallvit export`: a finished run as a folder for elsewhere. Written, tried against the run, and only then put in its place."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from smallvit.console import bar, quiet, say
from smallvit.evaluation.ensemble import Ensemble
from smallvit.evaluation.model_file import load_model
from smallvit.runs.inference import check_classes
from smallvit.runs.relocation import relocate
from smallvit.shipping import exported_program, onnx_file, timm_folder
from smallvit.shipping.agreement import BATCHES, Agreement, compare, own_squares, refuse_other, squares_of
from smallvit.shipping.example import example
from smallvit.shipping.formats import Shipment
from smallvit.shipping.model_card import card
from smallvit.shipping.place import CARD, EXAMPLE, building
from smallvit.shipping.request import Request, make_request

FORMATS = {"onnx": onnx_file, "torch-export": exported_program, "timm": timm_folder, "hf": timm_folder}
PREPARING = 40  # tracing and writing take as long as so many images, roughly


class Export(NamedTuple):
    """What was written, and how far its probabilities are from the run's."""

    path: Path
    format: str
    agreement: Agreement


def export(
    folder: str | Path, format: str, out: str | Path | None = None, *, images: str | Path | None = None,
    overwrite: bool = False, show_progress: bool = True, data: str | Path | None = None,
) -> Export:  # fmt: skip
    """Write a finished run, or a group as one model, for use elsewhere: onnx, torch-export, timm or hf.

    The folder `out` (RUN-FORMAT beside the run where it is not given) holds the model, predict.py, which labels files with
    it, and README.md, its card. It is compared with the run on up to 200 of the run's own images, or on the files of `images`;
    what differs by more than 1e-4 in any probability is refused. `overwrite` replaces an earlier export. `data` is
    where the images of the run are now, if they were moved.
    """
    request = make_request(Path(folder), format, out, overwrite)
    with quiet(not show_progress):
        relocate(request.source, data)
        shipped = _open(request)
        predictor = shipped.predictor
        squares = own_squares(request.runs[0]) if images is None else squares_of(Path(images), predictor.preparation)
        steps = PREPARING + len(BATCHES) * len(squares.pixels_NCSS)
        with building(request.place, overwrite) as part, bar("exporting", steps) as advance:
            FORMATS[format].write(shipped, part)
            advance(PREPARING, note="comparing")
            agreement = compare(predictor, FORMATS[format].read(part), squares, advance)
            refuse_other(agreement, request.kind.title)
            (part / EXAMPLE).write_text(example(request, shipped), encoding="utf-8")
            (part / CARD).write_text(card(request, shipped, agreement), encoding="utf-8")
        say(f"{agreement.sentence[0].upper()}{agreement.sentence[1:]}.")
    return Export(request.place, format, agreement)


def _open(request: Request) -> Shipment:
    """On the CPU, whatever trained it."""
    loaded = [load_model(run.path / "model.safetensors") for run in request.runs]
    predictors, header = [one.predictor for one in loaded], loaded[0].header
    predictor = predictors[0] if len(predictors) == 1 else Ensemble(predictors)
    check_classes(predictor, request.source)
    return Shipment(predictor, header["model"], header["kwargs"])
