"""Several processes that train one model: how they find each other, and what they must agree on.

`torchrun --nproc-per-node 2 -m smallvit train ...` starts them. Each makes the same batches, computes its part of the
model's work (models/sharing.py) and takes the same step, so all hold the same weights; one of them plans and writes.
"""

from __future__ import annotations

import itertools
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from smallvit.errors import SmallvitError, UsageError
from smallvit.types import ALONE, World

PATIENCE = timedelta(seconds=50)  # for the others in a step: one that was killed ends the run
PLANNING = timedelta(hours=6)  # of the first process, which the others wait for
_planned = itertools.count()  # runs of this process; the others count the same


def join() -> World:
    """The processes that torchrun has started with this one; alone where it has not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)
    return World(dist.get_rank(), dist.get_world_size())


def leave() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def tell_folder(folder: Path, world: World) -> None:
    """The run is planned, and this is its folder."""
    if world.size == 1:
        return
    _store().set(_next_key(), str(folder.resolve()))


def wait_for_folder() -> Path:
    key = _next_key()
    _store().wait([key], PLANNING)
    folder = Path(_store().get(key).decode())
    if not (folder / "recipe.json").is_file():
        raise UsageError(f"{folder} is not seen by process {dist.get_rank()}: give an --out that all machines share")
    return folder


def mean_gradients(module: nn.Module, world: World) -> None:
    """Of all processes, in one go. A parameter that was not used has a gradient in none of them."""
    if world.size == 1:
        return
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= world.size
    for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def any_of(flag: bool, world: World) -> bool:
    """Whether one of the processes says so: they stop together."""
    if world.size == 1:
        return flag
    said = torch.tensor(int(flag), device=_device())
    dist.all_reduce(said, dist.ReduceOp.MAX)
    return bool(said)


def as_first(numbers: tuple[float, ...], world: World) -> tuple[float, ...]:
    """What the first process has: clocks differ."""
    if world.size == 1:
        return numbers
    said = torch.tensor(numbers, dtype=torch.float64, device=_device())
    dist.broadcast(said, 0)
    return tuple(said.tolist())


def lost(error: BaseException) -> SmallvitError:
    return SmallvitError(
        f"another process of this training is gone or hangs ({str(error).splitlines()[0][:200]}): all have stopped; go on with "
        "the same torchrun and `-m smallvit resume FOLDER`"
    )


def _store() -> Any:
    """Where the processes have met."""
    return dist.distributed_c10d._get_default_store()


def _next_key() -> str:
    return f"smallvit/planned/{next(_planned)}"


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
