"""A run that is trained longer, as a new run: what it takes over from the finished one, and how it draws.

It begins where the training of that run stood: weights, objective, moving average and the optimizer's momentum, of its last step.
Where that state is gone, with the weights of its model. The learning rate runs its course once more over the new length.
"""

from __future__ import annotations

from pathlib import Path

from smallvit.errors import RunError
from smallvit.evaluation.model_file import digest
from smallvit.randomness import key_of
from smallvit.recipe import ContinueSpec, OptimizerSpec, Recipe, resolved
from smallvit.runs.folder import RunFolder

FLAG = "--continue"


def seed_of_draws(recipe: Recipe) -> int:
    """What comes later does not draw once more what was drawn before: other orders, other augmentation."""
    before = recipe.continued.steps
    return key_of(recipe.seed, "continued", before) if before else recipe.seed


def where_it_stood(run: RunFolder) -> ContinueSpec:
    """The file of a finished run that a longer one begins with."""
    state, model = (run.path.resolve() / name for name in ("state/latest.safetensors", "model.safetensors"))
    file = state if state.is_file() else model
    steps = max((int(record["step"]) for record in run.metrics), default=0)
    return ContinueSpec(file=str(file), digest=digest(file, FLAG), steps=run.recipe.continued.steps + steps)


def matrix_rate(before: OptimizerSpec, now: OptimizerSpec) -> float:
    """Muon's rate of the filters, where another learning rate is given: it changes by as much."""
    own = resolved(before.matrix_lr)
    return own if now.lr == "auto" else own * now.lr / resolved(before.lr)


def check_origin(spec: ContinueSpec) -> Path:
    path = Path(spec.file)
    if digest(path, FLAG) != spec.digest:
        raise RunError(f"{path} is not the file that the run was planned with: put it back, or start a new run")
    return path
