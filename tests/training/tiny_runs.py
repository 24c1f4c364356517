"""What the tests of this folder share: small recipes, and when two runs are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import smallvit
from smallvit.evaluation.model_file import read_tensors
from smallvit.planning.plan import Plan, make_plan
from smallvit.training.build import build_training
from smallvit.training.loop import Training

Reference = Callable[[str], Path]  # the run of a recipe that nobody disturbed

# 110 training images in batches of 8: 13 steps an epoch, so that epochs do not end where records do (every 10 steps).
# They are validated and the best weights kept, which is more to resume than the default has.
SMALL: dict[str, Any] = {
    "data": "digits", "per_class": 11, "batch_size": 8, "epochs": 3, "threads": 1, "val": 0.15, "select": "best",
}  # fmt: skip

# Everything that draws random numbers or keeps a state of its own, in four runs.
RECIPES: dict[str, dict[str, Any]] = {
    "vit": {
        "model": "vit_pico", "drop_path": 0.1, "mixup": 0.8, "cutmix": 1.0, "ema": 0.99,
        "model.kwargs.proj_drop_rate": 0.1, "augment.erase": 0.5, "augment.brightness": 0.3, "augment.contrast": 0.3,
    },
    "resnet": {"model": "resnet_nano", "ema": 0.9, "in_chans": 3, "augment.hue": 0.1, "augment.crop": "resized"},
    "sgd": {"model": "resnet_nano", "optimizer.name": "sgd", "lr": 0.05, "select": "last"},
    "hybrid": {
        "model": "hybrid_nano", "optimizer.name": "muon", "data.flips": True, "data.shifts": 1, "precision": "fp32",
        "ema": 0.9, "objective.grow": 0.4,
    },
}  # fmt: skip

FLAGS = (
    "data",
    "per_class",
    "batch_size",
    "epochs",
    "threads",
    "model",
    "drop_path",
    "mixup",
    "cutmix",
    "lr",
    "in_chans",
    "val",
)


def command(recipe: str, **changes: Any) -> list[str]:
    """The arguments of `smallvit train` for a recipe; a checkpoint after every step."""
    given = {**SMALL, **RECIPES[recipe], "checkpoint_seconds": 0, **changes}
    words = ["train", given.pop("data")]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)] if name in FLAGS else ["--set", f"{name}={value}"]
    return words


def plan(recipe: str | None = None, **changes: Any) -> Plan:
    given = {**SMALL, **(RECIPES[recipe] if recipe else {"model": "vit_pico"}), **changes}
    flags = {name: given.pop(name) for name in FLAGS if name in given}
    return make_plan(smallvit.make_recipe(settings=given, **flags), with_floors=False)


def training(recipe: str | None = None, **changes: Any) -> Training:
    made = plan(recipe, **changes)
    return build_training(made.recipe, made.images, made.split)


def assert_same_tensors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    different = [name for name, tensor in expected.items() if not same_bits(found[name], tensor)]
    assert not different, f"{len(different)} of {len(expected)} tensors differ, the first: {different[0]}"


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Bits, not values: 0.0 and -0.0 differ, and two NaN are the same."""
    return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def assert_same_run(found: Path, expected: Path) -> None:
    """Two finished run folders hold the same, but for time."""
    names = {path.relative_to(expected) for path in expected.rglob("*")}
    assert {path.relative_to(found) for path in found.rglob("*")} == names
    for name in sorted(str(name) for name in names if name.suffix == ".safetensors"):
        tensors, header = read_tensors(found / name)
        expected_tensors, expected_header = read_tensors(expected / name)
        assert without_clock(header) == without_clock(expected_header), name
        assert_same_tensors(tensors, expected_tensors)
    assert records(found) == records(expected)
    assert without_time(smallvit.Run(found).results) == without_time(smallvit.Run(expected).results)


def without_clock(header: dict[str, Any]) -> dict[str, Any]:
    """Of a state: what a run with a budget has spent is time, too."""
    return {**header, "log": {k: v for k, v in header["log"].items() if k != "clock"}} if "log" in header else header


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [without_time(json.loads(line)) for line in lines]


def without_time(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("seconds", "images_per_second", "timing")}


def all_tensors(t: Training) -> dict[str, Tensor]:
    """A copy of everything that training changes."""
    parts = {f"step/{name}": tensor for name, tensor in t.step.state_dict().items()}
    if t.ema is not None:
        parts |= {f"ema/{name}": tensor for name, tensor in t.ema.module.state_dict().items()}
    for number, slots in t.optimizer.state_dict()["state"].items():
        parts |= {f"optimizer/{number}/{slot}": value for slot, value in slots.items() if isinstance(value, Tensor)}
    return {name: torch.clone(tensor, memory_format=torch.contiguous_format) for name, tensor in parts.items()}
