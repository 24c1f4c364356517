"""Whether a run fits into the memory that there is, before its first whole step: a batch is taken in pieces where it does not.

Pieces change nothing but the statistics of BatchNorm and the time (training/step.py), so they are chosen before anything is
refused.
"""

from __future__ import annotations

from smallvit.errors import UsageError
from smallvit.planning.choices import Choices
from smallvit.recipe import resolved
from smallvit.training.loop import Training
from smallvit.training.machine_memory import free_bytes, held_by_children
from smallvit.training.memory import Need, measure_need
from smallvit.training.out_of_memory import memory_in_words
from smallvit.training.session import computing
from smallvit.training.step import wrap

COMFORT = 0.9  # of what is free: a need that is known to a quarter should leave some


def resolve_room(choices: Choices, training: Training) -> int:
    """`grad_accum`, and the bytes that the run will have at most. What cannot fit is refused."""
    batch = resolved(training.recipe.batch_size)
    check_pieces(choices["grad_accum"], batch)
    recipe = training.recipe
    plain = {"compile": False, "precision": "fp32" if recipe.precision == "auto" else recipe.precision}
    training.recipe = recipe.model_copy(update=plain)
    with computing(choices["threads"]), memory_in_words(recipe, least=True):
        need = measure_need(training, training.step.objective.views)
    free = free_bytes(training.device)
    if training.device.type == "cpu":  # a run is planned as if alone: beside others it waits (runs/beside.py)
        free += held_by_children()
    given = choices["grad_accum"]
    pieces = fitting_pieces(need, batch, COMFORT * free) if given == "auto" else given
    if need.more(batch, pieces) > free:
        raise UsageError(cannot_fit(need, batch, pieces, free, choices))
    if pieces == 1:
        choices.put("grad_accum", 1)
    else:
        why = f"a whole batch needs {gb(need.more(batch))} more, and {gb(free)} are free; the step is that of the whole batch"
        choices.choose("grad_accum", pieces, why)
    training.recipe = recipe.model_copy(update={"grad_accum": pieces})
    training.wrapped = wrap(training.step, training.recipe)
    return need.peak(batch, pieces)


def check_pieces(pieces: int | str, batch: int) -> None:
    if pieces != "auto" and int(pieces) > max(1, batch // 2):
        raise UsageError(
            f"--grad-accum {pieces}: a batch of {batch} images has at most {max(1, batch // 2)} pieces, of two images each; "
            "give fewer pieces, or a larger --batch-size"
        )


def fitting_pieces(need: Need, batch: int, free: float) -> int:
    """The fewest, by doubling, that fit; the most that there can be where none do."""
    pieces = 1
    while need.more(batch, pieces) > free and 4 * pieces <= batch:
        pieces *= 2
    return pieces


def cannot_fit(need: Need, batch: int, pieces: int, free: float, choices: Choices) -> str:
    parts = (
        f"{gb(need.weights + need.state)} for weights and optimizer, {gb(need.step(batch, pieces) - need.weights - need.state)} "
        f"for a step with {batch} images{f' in {pieces} pieces' if pieces > 1 else ''}"
    )
    tries = []
    most = largest_batch(need, COMFORT * free)
    if most >= 2:
        tries.append(f"--batch-size {most}")
        if (enough := fitting_pieces(need, batch, COMFORT * free)) > pieces and need.more(batch, enough) <= free:
            tries.append(f"--grad-accum {enough}")
    if not choices["grad_checkpointing"]:
        tries.append("--grad-checkpointing")
    tries.append(f"a smaller --img-size than {choices['data.img_size']}, or a smaller model")
    return (
        f"{choices['model.name']} needs about {gb(need.more(batch, pieces))} more memory ({parts}), and {gb(free)} are free: "
        f"try {', '.join(tries)}"
    )


def largest_batch(need: Need, free: float) -> int:
    """As a power of two; 0 where not even two images fit."""
    batch = 0
    while need.more(max(2, 2 * batch)) <= free and batch < 1 << 20:
        batch = max(2, 2 * batch)
    return batch


def gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
