"""Memory that runs out, in words: which batch, or what else, to try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from smallvit.errors import OutOfMemory
from smallvit.recipe import Recipe, resolved
from smallvit.training.step import pieces_of

# What torch's allocators say on CPUs (Linux, Windows), and older ones on GPUs.
SAID = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def memory_in_words(recipe: Recipe, go_on: str = "") -> Iterator[None]:
    """`go_on`: the command that goes on where there is more memory, once a run is written."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise OutOfMemory(in_words(error, recipe, go_on)) from error


def ran_out(error: BaseException) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(said in str(error) for said in SAID)


def in_words(error: BaseException, recipe: Recipe, go_on: str = "") -> str:
    batch, pieces = resolved(recipe.batch_size), pieces_of(recipe)
    tries = []
    if 4 * pieces <= batch:
        tries.append(f"--grad-accum {2 * pieces} (the same batch in {2 * pieces} pieces)")
    if batch >= 4:
        tries.append(f"--batch-size {batch // 2}")
    if not recipe.grad_checkpointing:
        tries.append("--grad-checkpointing")
    tries.append(f"a smaller --img-size than {recipe.data.img_size} or a smaller model")
    on = f"; or, where there is more memory, `{go_on}`" if go_on else ""
    said = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return (
        f"out of memory on {recipe.device} with {recipe.model.name} and batches of {batch} images of {recipe.data.img_size} px"
        f"{f' in {pieces} pieces' if pieces > 1 else ''}: try a new run with {', '.join(tries)}{on} ({said[:200]})"
    )
