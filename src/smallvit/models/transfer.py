"""Weights of another model into this one: authors' checkpoints, or an earlier run.

`transfer` takes every tensor whose name and shape fit, resizes tables of positions, and says what it left.
`load_authors_weights` first takes the checkpoint out of its wrappers and gives its tensors the names that we use.
"""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from timm.models.pvt_v2 import PyramidVisionTransformerV2
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn

from smallvit.errors import UsageError
from smallvit.models.architectures.zhu import renamed
from smallvit.models.positions import (
    Grid,
    is_offset_table,
    is_table,
    layout_of_checkpoint,
    layout_of_model,
    resample,
    stretched,
)

ENOUGH = 0.5  # of the model's numbers, its classifier not counted: with less, it would in truth start at random


class Transfer(NamedTuple):
    """What became of a checkpoint, by the names of the model (those of `dropped` may be unknown to it)."""

    taken: tuple[str, ...]
    resized: dict[str, str]  # name -> "7x7 to 14x14"
    dropped: dict[str, str]  # name -> why
    missing: tuple[str, ...]  # keep their initial values

    def __str__(self) -> str:
        parts = [f"{len(self.taken)} tensors taken"]
        parts += [f"{name} resized from {how}" for name, how in self.resized.items()]
        for reason in dict.fromkeys(self.dropped.values()):
            parts.append(f"{_few(name for name, why in self.dropped.items() if why == reason)} dropped ({reason})")
        left = [name for name in self.missing if name not in self.dropped]
        if left:
            parts.append(f"{_few(left)} new")
        return ", ".join(parts)


def load_authors_weights(model: nn.Module, checkpoint: Mapping[str, Any], from_grid: Grid | None = None) -> Transfer:
    """Fill `model` from a published checkpoint of its architecture."""
    return transfer(model, to_our_names(model, unwrap(checkpoint)), from_grid)


def transfer(model: nn.Module, state_dict: Mapping[str, Tensor], from_grid: Grid | None = None) -> Transfer:
    """Fill `model` with what fits, or refuse when that is too little.

    `from_grid` is the grid of the checkpoint's positions, where it is not square.
    """
    own = model.state_dict()
    heads = classifier_names(model)
    fitting: dict[str, Tensor] = {}
    resized: dict[str, str] = {}
    dropped: dict[str, str] = {}
    for name, tensor in state_dict.items():
        if name not in own:
            dropped[name] = "unknown to the model"
        elif is_table(name, tensor) and (table := _resized(model, own[name], state_dict, name, from_grid)):
            fitting[name], resized[name] = table
        elif tensor.shape == own[name].shape:
            fitting[name] = tensor
        elif is_offset_table(name, tensor) and len(tensor) == len(own[name]):
            fitting[name] = stretched(tensor, own[name].shape[1:])
            resized[name] = f"{_shape(tensor[0])} to {_shape(own[name][0])}"
        elif name.startswith(heads):
            dropped[name] = f"{len(tensor)} classes instead of {len(own[name])}"
        else:
            dropped[name] = f"{_shape(tensor)} instead of {_shape(own[name])}"
    _check_enough(own, fitting, state_dict, heads)
    model.load_state_dict({**own, **fitting})
    taken = tuple(name for name in fitting if name not in resized)
    return Transfer(taken, resized, dropped, tuple(name for name in own if name not in fitting))


def _resized(
    model: nn.Module, own_1ND: Tensor, state_dict: Mapping[str, Tensor], name: str, from_grid: Grid | None
) -> tuple[Tensor, str] | None:
    """The table for the model's grid and what was done to it; None where it can be taken as it is, or not at all."""
    table_1ND = state_dict[name]
    ours = layout_of_model(model, own_1ND)
    as_it_is = table_1ND.shape == own_1ND.shape and (from_grid is None or ours is None or from_grid == ours.grid)
    if as_it_is or ours is None or table_1ND.shape[2] != own_1ND.shape[2]:
        return None
    tokens = [state_dict[key] for key in ("cls_token", "dist_token", "reg_token") if key in state_dict]
    theirs = layout_of_checkpoint(table_1ND, sum(token.shape[1] for token in tokens), ours, from_grid)
    return theirs and (resample(table_1ND, theirs, own_1ND, ours), f"{theirs} to {ours}")


def classifier_names(model: nn.Module) -> tuple[str, ...]:
    """How the names of the classifier's tensors begin."""
    get = getattr(model, "get_classifier", None)
    classifier = get() if get is not None else ()
    heads = classifier if isinstance(classifier, tuple | list) else (classifier,)
    return tuple(f"{name}." for name, module in model.named_modules() if name and any(module is head for head in heads))


def _check_enough(
    own: Mapping[str, Tensor], fitting: Mapping[str, Tensor], state_dict: Mapping[str, Tensor], heads: tuple[str, ...]
) -> None:
    body = [name for name in own if not name.startswith(heads)]
    size = sum(own[name].numel() for name in body)
    fitted = sum(own[name].numel() for name in body if name in fitting)
    if fitted < ENOUGH * size:
        lacking = [name for name in body if name not in fitting]
        raise UsageError(
            f"the checkpoint does not fit the model: {fitted / size:.0%} of the weights have their name and shape in it"
            f" (it has {_few(state_dict)}; the model lacks {_few(lacking)})"
        )


def _few(names: Iterable[str], most: int = 3) -> str:
    known = list(names)
    shown = ", ".join(known[:most]) or "nothing"
    return shown if len(known) <= most else f"{shown} and {len(known) - most} more"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


# ---- names of the authors ----------------------------------------------------------------------------


def to_our_names(model: nn.Module, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the model's own `from_authors`, or by the table below for models of timm's; else as they are."""
    own = getattr(model, "from_authors", None)
    if own is not None:
        return own(state_dict)
    for kind, rename in _TIMM.items():
        if isinstance(model, kind):
            return rename(state_dict)
    return state_dict


def _pvt_v2(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The authors count stages from 1 and keep each one's patches, blocks and norm side by side."""

    def rename(name: str) -> str:
        name = re.sub(r"^patch_embed1\.", "patch_embed.", name).replace(".dwconv.dwconv.", ".dwconv.")
        part = re.match(r"(patch_embed|block|norm)([1-4])\.(.*)", name)
        if part is None:
            return name
        inside = {"patch_embed": "downsample", "block": "blocks", "norm": "norm"}[part[1]]
        return f"stages.{int(part[2]) - 1}.{inside}.{part[3]}"

    return {rename(name): tensor for name, tensor in state_dict.items()}


def _swin(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The authors halve the grid at the end of a stage, timm at the start of the next one."""
    if not any(name.startswith("layers.0.downsample.") for name in state_dict):
        return state_dict
    stored = [name for name in state_dict if not name.endswith(("relative_position_index", "attn_mask"))]

    def rename(name: str) -> str:
        later = re.sub(r"^layers\.(\d+)\.downsample\.", lambda m: f"layers.{int(m[1]) + 1}.downsample.", name)
        return renamed(later, [(r"^head\.(weight|bias)$", r"head.fc.\1")])

    return {rename(name): state_dict[name] for name in stored}


_TIMM: dict[type[nn.Module], Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    PyramidVisionTransformerV2: _pvt_v2,
    SwinTransformer: _swin,
}


# ---- files -------------------------------------------------------------------------------------------

PICKLED = (".pth", ".pt", ".pth.tar", ".bin")
WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model")  # moving averages first: they are what was published


def read_checkpoint(path: Path | str) -> dict[str, Tensor]:
    """The tensors of a checkpoint file by name. Code in it is never run: files that need it are refused."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path} is a folder, not a checkpoint" if path.is_dir() else f"no such file: {path}")
    if path.name.endswith(".safetensors"):
        return unwrap(_read_safetensors(path))
    if path.name.endswith(PICKLED):
        return unwrap(_read_pickled(path))
    raise UsageError(f"{path} is no checkpoint that smallvit reads: .safetensors, {', '.join(PICKLED)}")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _read_pickled(path: Path) -> Any:
    try:
        # Training scripts store their command line beside the weights: a Namespace holds values and runs nothing.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        needed = re.search(r"GLOBAL (\S+)", str(error))
        if needed is None:
            raise UsageError(f"{path} is not a PyTorch checkpoint, or it is damaged") from None
        raise UsageError(
            f"{path} is a pickle that needs {needed[1]}; smallvit never unpickles code. Where you trust it, store its"
            " state dict alone and give that file"
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = "" if isinstance(error, KeyError) else f": {error}".partition("\n")[0]  # a key says nothing to anyone
        raise UsageError(f"{path} is not a PyTorch checkpoint, or it is damaged{reason}") from None


def unwrap(checkpoint: Any) -> dict[str, Tensor]:
    """The state dict inside what training scripts store, without the prefixes of what wrapped the model."""
    inside = checkpoint
    while isinstance(inside, Mapping) and (inner := next((key for key in WRAPPERS if _holds(inside, key)), None)):
        inside = inside[inner]
    if not isinstance(inside, Mapping):
        raise UsageError(f"the checkpoint holds a {type(inside).__name__}, not tensors by name")
    tensors = {str(name): value for name, value in inside.items() if isinstance(value, Tensor)}
    if not tensors:
        raise UsageError(f"the checkpoint holds no tensors by name, only {_few(map(str, inside))}")
    for prefix in ("module.", "_orig_mod.", "module."):
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name[len(prefix) :]: tensor for name, tensor in tensors.items()}
    return tensors


def _holds(wrapper: Mapping[Any, Any], key: str) -> bool:
    """An empty wrapper is passed over: scripts write `state_dict_ema` even where they kept no moving average."""
    return isinstance(wrapper.get(key), Mapping) and bool(wrapper[key])
