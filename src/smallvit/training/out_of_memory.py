"""Memory that runs out, in words: which batch, or what else, to try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smallvit.errors import OutOfMemory, ran_out, what_ran_out
from smallvit.recipe import Recipe, resolved
from smallvit.training.step import pieces_of


@contextmanager
def memory_in_words(recipe: Recipe, go_on: str = "", least: bool = False) -> Iterator[None]:
    """`go_on`: the command that goes on where there is more memory, once a run is written. `least`: a model and a step of two
    images are all that there is, so no other batch would help."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise OutOfMemory(in_words(error, recipe, go_on, least)) from error


def in_words(error: BaseException, recipe: Recipe, go_on: str = "", least: bool = False) -> str:
    said, name, size = what_ran_out(error), recipe.model.name, recipe.data.img_size
    on = f"; or, where there is more memory, `{go_on}`" if go_on else ""
    if least:
        return (
            f"out of memory on {recipe.device} before the first step: {name} with gradients, optimizer and two images of {size} px "
            f"does not fit: try a new run with a smaller model, or a smaller --img-size{on} ({said})"
        )
    batch, pieces = resolved(recipe.batch_size), pieces_of(recipe)
    tries = []
    if 4 * pieces <= batch:
        tries.append(f"--grad-accum {2 * pieces} (the same batch in {2 * pieces} pieces)")
    if batch >= 4:
        tries.append(f"--batch-size {batch // 2}")
    if not recipe.grad_checkpointing:
        tries.append("--grad-checkpointing")
    tries.append(f"a smaller --img-size than {size} or a smaller model")
    return (
        f"out of memory on {recipe.device} with {name} and batches of {batch} images of {size} px"
        f"{f' in {pieces} pieces' if pieces > 1 else ''}: try a new run with {', '.join(tries)}{on} ({said})"
    )
