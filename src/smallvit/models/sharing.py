"""One batch through a model in parts: shared out to several processes, taken piece by piece, or both.

All get the features of all images. So a loss sees the whole batch, and needs to know nothing of the parts: negatives,
mixing, queues and centres are those of the batch. What is small (heads, losses, augmentation) is computed of the whole;
what is large, the model, is divided.

Processes: the gradient of the gathered features goes back to the part that made them, times the number of processes, so
that the mean over processes of the gradients of all parameters is the gradient of the whole batch.

Pieces, one after the other: only the features of a piece are kept, and what its backward pass needs is computed again when
its gradient is there; so the memory of one piece is enough, for one more forward pass of all pieces but the last. BatchNorm
inside the model has the statistics of a piece, and moves its running ones once for each.

B images, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from smallvit.types import ALONE, Features, World

_WORLD: ContextVar[World] = ContextVar("world", default=ALONE)
_PIECES: ContextVar[int] = ContextVar("pieces", default=1)
_GRIDS: ContextVar[bool] = ContextVar("grids", default=True)
_NORMED: ContextVar[World | None] = ContextVar("normed", default=None)


@contextmanager
def sharing(world: World, grids: bool = True) -> Iterator[None]:
    """Inside, backbones share every batch with the other processes, which must all do the same.

    `grids`: those of the features are wanted, too; they are large.
    """
    if world.size == 1:
        yield
        return
    tokens = _WORLD.set(world), _GRIDS.set(grids)
    try:
        yield
    finally:
        _WORLD.reset(tokens[0])
        _GRIDS.reset(tokens[1])


@contextmanager
def in_pieces(count: int, grids: bool = True) -> Iterator[None]:
    """Inside, backbones take every batch in so many pieces, and keep what a backward pass needs of one of them."""
    tokens = _PIECES.set(count), _GRIDS.set(grids)
    try:
        yield
    finally:
        _PIECES.reset(tokens[0])
        _GRIDS.reset(tokens[1])


def shared(forward: Callable[[Tensor], Features], images_BCSS: Tensor) -> Features:
    """`forward` of the images, of which this process computes its part where a batch is shared."""
    with_grids = _GRIDS.get()  # now: what is computed again may be so in another thread

    def tensors(images_BCSS: Tensor) -> tuple[Tensor, ...]:
        features = forward(images_BCSS)
        return features.pooled_BD, *(features.grids if with_grids else ())

    pooled_BD, *grids = in_parts(tensors, images_BCSS)
    return Features(pooled_BD, tuple(grids))


def in_parts(forward: Callable[..., tuple[Tensor, ...]], *of_images: Tensor) -> tuple[Tensor, ...]:
    """What `forward` makes of tensors with a row for each image; it gets a part of the rows where a batch is divided."""
    world, pieces, images = _WORLD.get(), _PIECES.get(), len(of_images[0])
    if world.size == 1:
        return _one_by_one(forward, of_images, pieces)
    if images % world.size:
        raise ValueError(f"{images} images cannot be shared by {world.size} processes")

    def part(*of_images: Tensor) -> tuple[Tensor, ...]:
        # Heads work on the features of all images, outside: their statistics are whole already.
        with whole_norms(world):
            return forward(*of_images)

    own = tuple(rows.chunk(world.size)[world.rank] for rows in of_images)
    return tuple(map(gather, _one_by_one(part, own, pieces)))


def _one_by_one(
    forward: Callable[..., tuple[Tensor, ...]], of_images: tuple[Tensor, ...], pieces: int
) -> tuple[Tensor, ...]:
    """The backward pass begins with the last piece: that one is not computed again."""
    if pieces == 1:
        return forward(*of_images)
    *earlier, last = zip(*(rows.tensor_split(pieces) for rows in of_images), strict=True)
    if torch.is_grad_enabled():
        made = [checkpoint(forward, *piece, use_reentrant=False) for piece in earlier]
    else:
        made = [forward(*piece) for piece in earlier]
    return tuple(map(torch.cat, zip(*made, forward(*last), strict=True)))


def gather(own: Tensor) -> Tensor:
    """Rows of all processes, in their order, where a batch is shared."""
    world = _WORLD.get()
    return own if world.size == 1 else _Gather.apply(own, world)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World) -> Tensor:
        ctx.world, ctx.dtype = world, own.dtype
        # Gloo knows no bf16.
        parts = [
            torch.empty_like(own, dtype=torch.float32, memory_format=torch.contiguous_format) for _ in range(world.size)
        ]
        dist.all_gather(parts, own.detach().float().contiguous())
        return torch.cat(parts).to(own.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        world: World = ctx.world
        return gradients[0].chunk(world.size)[world.rank].to(ctx.dtype) * world.size, None


@contextmanager
def whole_norms(world: World) -> Iterator[None]:
    """Inside, every BatchNorm that trains uses the statistics of the whole batch."""
    token = _NORMED.set(world)
    try:
        with WholeBatchNorm(world):
            yield
    finally:
        _NORMED.reset(token)


def same_norms() -> AbstractContextManager[None]:
    """For what is computed again later, in the backward pass: BatchNorm as it works where this is asked."""
    world = _NORMED.get()
    return nullcontext() if world is None else whole_norms(world)


class WholeBatchNorm(TorchFunctionMode):
    """Every BatchNorm that trains uses the statistics of the whole batch, whatever its class.

    torch has SyncBatchNorm for GPUs only.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm and (args[5] if len(args) > 5 else kwargs.get("training", False)):
            return whole_batch_norm(self.world, *args, **kwargs)
        return func(*args, **kwargs)


def whole_batch_norm(
    world: World, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """F.batch_norm over the images of all processes, each with as many."""
    over = [axis for axis in range(input.ndim) if axis != 1]
    shape = [1, -1, *[1] * (input.ndim - 2)]
    x = input.float()
    count = world.size * x.numel() // x.shape[1]
    mean_C = _summed(x.sum(over)) / count
    centred = x - mean_C.view(shape)
    var_C = _summed(centred.square().sum(over)) / count
    with torch.no_grad():
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean_C.to(running_mean.dtype), momentum)
            running_var.lerp_((var_C * (count / max(count - 1, 1))).to(running_var.dtype), momentum)
    out = centred * (var_C + eps).rsqrt().view(shape)
    if weight is not None:
        out = out * weight.view(shape)
    if bias is not None:
        out = out + bias.view(shape)
    return out.to(input.dtype)


class _Sum(torch.autograd.Function):
    """The sum over all processes; each of them depends on it, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        total = own.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor]:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return (total,)


def _summed(own_C: Tensor) -> Tensor:
    return _Sum.apply(own_C)
