"""The state of training on disk: one safetensors file with JSON in its header, replaced atomically.

It holds the step (backbone, objective, auxiliaries), the moving average and the optimizer, all by parameter name, and
says after how many steps it was written. The file of a finished model is read in evaluation/model_file.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from smallvit.console import several, warn
from smallvit.errors import RunError
from smallvit.evaluation.model_file import read_tensors, write_tensors
from smallvit.models.features import Backbone
from smallvit.runs.stored import first_mistake
from smallvit.training.loop import Training
from smallvit.training.selection import Best


def save_state(path: Path, t: Training, log: Mapping[str, Any] | None = None) -> None:
    """`log` is what the records of the run need to go on; `load_state` gives it back. One process writes."""
    if not t.world.writes:
        return
    tensors = _prefixed("step", t.step.state_dict())
    if t.ema is not None:
        tensors |= _prefixed("ema", t.ema.module.state_dict())
    for name, slots in _optimizer_slots(t).items():
        tensors |= _prefixed(f"optimizer/{name}", slots)
    header = {"done": t.done, "best": t.best._asdict(), "total": t.total, "log": log or {}, "processes": t.world.size}
    write_tensors(path, tensors, header)


def load_state(path: Path, t: Training) -> dict[str, Any]:
    tensors, header = read_tensors(path)
    stored = _checked(path, header)
    if header.get("total") not in (t.planned, t.decision.total if t.decision else t.planned):
        raise RunError(f"{path} belongs to a run of {several(header.get('total') or 0, 'step')}, not of {t.total}")
    _fill(path, t, tensors)
    if stored.processes not in (None, t.world.size):
        before, now = (several(size or 1, "process") for size in (stored.processes, t.world.size))
        warn(f"this run was trained by {before} so far, and is by {now} from here: the result has other last bits")
    t.done = stored.done
    t.best = Best.stored(header["best"])
    return dict(header.get("log", {}))


def go_on_from(path: Path, t: Training) -> str:
    """Begin where another run ended, in a training that has taken no step; what was taken over, in words."""
    tensors, header = read_tensors(path)
    if "done" in header:
        _checked(path, header)
        _fill(path, t, tensors)
        return f"all of its training after {several(int(header['done']), 'step')}; the learning rate runs its course once more"
    try:
        for backbone in filter(None, (t.step.backbone, t.ema.module if t.ema is not None else None)):
            backbone.model.load_state_dict(tensors)
    except RuntimeError as error:
        raise RunError(f"{path} does not fit the model of its recipe: {error}") from None
    return "the weights of its model; the state of its training is gone, so the optimizer begins anew"


def _fill(path: Path, t: Training, tensors: Mapping[str, Tensor]) -> None:
    try:
        t.step.load_state_dict(_under("step", tensors))
        if t.ema is not None:
            t.ema.module.load_state_dict(_under("ema", tensors))
        for name, parameter in _trained(t).items():
            slots = _under(f"optimizer/{name}", tensors)
            t.optimizer.state[parameter] = {
                # The step counters of a fused optimizer live with the parameter, all slots in its memory layout.
                slot: value.clone().to(parameter.device)
                if value.ndim == 0
                else torch.empty_like(parameter).copy_(value)
                for slot, value in slots.items()
            }
    except RuntimeError as error:  # names or shapes differ: another version of the model
        raise RunError(f"{path} does not fit the model of its recipe: {error}") from None
    if broken := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
        raise RunError(f"{path} is damaged: {broken[0]} holds values that are no numbers")


class Window(BaseModel):
    """What the records of a run need to go on."""

    window: list[dict[str, float]]
    epoch_loss: float
    epoch_steps: Annotated[int, Field(ge=0)]
    clock: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    mark: tuple[int, float] | None = None


class StoredBest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    epoch: int
    accuracy: float
    highest: float
    recent: list[float]


class StateHeader(BaseModel):
    """Of version 0.1 `best` is accuracy, loss and epoch; up to 0.2 nothing is said of processes."""

    done: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=1)]
    best: StoredBest | tuple[float, float, int]
    log: Window | Annotated[dict[str, Any], Field(max_length=0)] = {}
    processes: Annotated[int, Field(ge=1)] | None = None  # that trained together

    @model_validator(mode="after")
    def _within(self) -> StateHeader:
        if self.done > self.total:
            raise ValueError(f"{self.done} steps of {self.total} are done")
        return self


def _checked(path: Path, header: Mapping[str, Any]) -> StateHeader:
    try:
        return StateHeader.model_validate(header)
    except ValidationError as error:
        raise RunError(f"{path} is damaged: {first_mistake(error)}") from None


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
                "few_looks",
                "calibrate",
            )
        },
        "weights": {"which": which, "ema": t.ema is not None, "epoch": epoch},
    }


def save_model(path: Path, backbone: Backbone, header: Mapping[str, Any]) -> None:
    write_tensors(path, backbone.model.state_dict(), header)
