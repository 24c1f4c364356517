"""The file of a finished model: safetensors with JSON in its header, which says all that prediction needs.

Nothing is unpickled. Whoever uses a trained model opens it here: prediction, diagnosis, and a run that learns from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from smallvit.console import several
from smallvit.data.preparation import Preparation
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.header import checked_header
from smallvit.evaluation.predictor import Predictor
from smallvit.models.features import create_backbone
from smallvit.runs.atomic import replacing
from smallvit.runs.folder import runs_inside

HEADER = "smallvit"


def model_file(given: str, flag: str) -> Path:
    """The file that a run folder or a file name means; `flag` is where it was given, for the error."""
    path = Path(given).expanduser().resolve()
    if not path.is_dir():
        return path
    if not (path / "recipe.json").is_file():
        inside = runs_inside(path)
        hint = f"it holds {several(len(inside), 'run')}, give one of them: {flag} {given}/{inside[0]}" if inside else ""
        raise UsageError(f"{flag} {given}: the folder is not a run; {hint or 'give a run folder or a checkpoint file'}")
    if not (path / "model.safetensors").is_file():
        raise UsageError(f"{flag} {given}: the run has no model yet; finish it with `smallvit resume {given}`")
    return path / "model.safetensors"


def digest(path: Path, flag: str = "--init") -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{flag}: cannot read {path}: {error.strerror}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    plain = {name: tensor.detach().to("cpu", copy=False).contiguous() for name, tensor in tensors.items()}
    # Not by safetensors' own writing, which has a temporary file of its own that a kill would leave.
    content = save(plain, metadata={HEADER: json.dumps(header)})
    with replacing(path) as part:
        part.write_bytes(content)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        # Read in one go: safetensors opens a file twice, and a run under way may replace it in between.
        content = path.read_bytes()
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return tensors, parse_header(header.get("__metadata__"))
    except FileNotFoundError:
        raise RunError(f"no such file: {path}") from None
    except (OSError, SafetensorError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}") from None


def parse_header(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """Our part of a file's metadata; empty in the files of others."""
    try:
        header = json.loads((metadata or {}).get(HEADER, "{}"))
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header


class LoadedModel(NamedTuple):
    """A model that can predict, and what its file says of it: everything comes from the one file."""

    predictor: Predictor
    header: dict[str, Any]


def load_model(path: Path, device: str | torch.device = "cpu") -> LoadedModel:
    tensors, header = read_tensors(path)
    header = checked_header(path, header)
    try:
        with torch.random.fork_rng(devices=[]):  # initial weights are drawn, then replaced: leave no trace
            backbone = create_backbone(
                header["model"], header["kwargs"], num_classes=len(header["class_names"]),
                in_chans=header["in_chans"], img_size=header["img_size"],
                # A few of timm's models are built larger and then pruned, to a third.
                most_parameters=4 * sum(tensor.numel() for tensor in tensors.values()),
            )  # fmt: skip
        backbone.model.load_state_dict(tensors)
        if broken := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
            raise UsageError(f"{broken[0]} holds values that are no numbers")
        preparation = Preparation.of(header)
    except (UsageError, RuntimeError) as error:
        raise RunError(f"{path} does not hold a smallvit model: {error}") from None
    predictor = Predictor(
        backbone.to(device).eval(), preparation, header["class_names"], header.get("temperature"),
        calibrated=header.get("calibrate", False),
    )  # fmt: skip
    return LoadedModel(predictor, header)
