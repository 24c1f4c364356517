"""Weights and state on disk: one safetensors file each, with JSON in its header, replaced atomically.

Nothing is unpickled. A state file holds the step (backbone, objective, auxiliaries), the moving average and the
optimizer, all by parameter name, and says after how many steps it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from smallvit.data.preparation import Preparation
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.predictor import Predictor
from smallvit.models.features import Backbone, create_backbone
from smallvit.runs.atomic import replacing
from smallvit.training.header import checked_header
from smallvit.training.loop import Training
from smallvit.training.selection import Best

HEADER = "smallvit"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    plain = {name: tensor.detach().to("cpu", copy=False).contiguous() for name, tensor in tensors.items()}
    with replacing(path) as part:
        try:
            save_file(plain, part, metadata={HEADER: json.dumps(header)})
        except SafetensorError as error:  # a full disk reaches us under this name
            raise OSError(str(error)) from error


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


# ---- the state of training ---------------------------------------------------------------------------


def save_state(path: Path, t: Training, log: Mapping[str, Any] | None = None) -> None:
    """`log` is what the records of the run need to go on; `load_state` gives it back. One process writes."""
    if not t.world.writes:
        return
    tensors = _prefixed("step", t.step.state_dict())
    if t.ema is not None:
        tensors |= _prefixed("ema", t.ema.module.state_dict())
    for name, slots in _optimizer_slots(t).items():
        tensors |= _prefixed(f"optimizer/{name}", slots)
    write_tensors(path, tensors, {"done": t.done, "best": t.best._asdict(), "total": t.total, "log": log or {}})


def load_state(path: Path, t: Training) -> dict[str, Any]:
    tensors, header = read_tensors(path)
    if header.get("total") not in (t.planned, t.decision.total if t.decision else t.planned):
        raise RunError(f"{path} belongs to a run of {header.get('total')} steps, not of {t.total}")
    try:
        t.step.load_state_dict(_under("step", tensors))
        if t.ema is not None:
            t.ema.module.load_state_dict(_under("ema", tensors))
    except RuntimeError as error:  # names or shapes differ: another version of the model
        raise RunError(f"{path} does not fit the model of its recipe: {error}") from None
    for name, parameter in _trained(t).items():
        slots = _under(f"optimizer/{name}", tensors)
        t.optimizer.state[parameter] = {
            # The step counters of a fused optimizer live with the parameter, all slots in its memory layout.
            slot: value.clone().to(parameter.device) if value.ndim == 0 else torch.empty_like(parameter).copy_(value)
            for slot, value in slots.items()
        }
    t.done = int(header["done"])
    t.best = Best.stored(header["best"])
    return dict(header.get("log", {}))


def _trained(t: Training) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in t.step.named_parameters() if p.requires_grad}


def _optimizer_slots(t: Training) -> dict[str, dict[str, Tensor]]:
    return {
        name: {slot: value for slot, value in t.optimizer.state.get(p, {}).items() if isinstance(value, Tensor)}
        for name, p in _trained(t).items()
    }


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}/")}


# ---- the finished model ------------------------------------------------------------------------------


class LoadedModel(NamedTuple):
    """A model that can predict, and what its file says of it: everything comes from the one file."""

    predictor: Predictor
    header: dict[str, Any]


def model_header(t: Training, class_names: tuple[str, ...], which: str, epoch: int) -> dict[str, Any]:
    data = t.recipe.data
    return {
        "model": t.recipe.model.timm_name,
        "kwargs": t.recipe.model.kwargs,
        "class_names": list(class_names),
        **{
            key: getattr(data, key)
            for key in (
                "img_size",
                "cache_size",
                "in_chans",
                "white",
                "fit",
                "mean",
                "std",
                "flips",
                "shifts",
                "calibrate",
            )
        },
        "weights": {"which": which, "ema": t.ema is not None, "epoch": epoch},
    }


def save_model(path: Path, backbone: Backbone, header: Mapping[str, Any]) -> None:
    write_tensors(path, backbone.model.state_dict(), header)


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
        preparation = Preparation.of(header)
    except (UsageError, RuntimeError) as error:
        raise RunError(f"{path} does not hold a smallvit model: {error}") from None
    predictor = Predictor(
        backbone.to(device).eval(), preparation, header["class_names"], header.get("temperature"),
        calibrated=header.get("calibrate", False),
    )  # fmt: skip
    return LoadedModel(predictor, header)
