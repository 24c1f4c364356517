"""What to try next, and which trial is not worth its time, from what the trials so far have found.

Nothing is remembered: the search is made of the trials anew each time, and its draws are seeded by the number of the
trial. So one that was killed goes on as if it had not been.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from smallvit.errors import UsageError
from smallvit.randomness import key_of
from smallvit.tuning.space import Parameter, Space

if TYPE_CHECKING:
    import optuna

RANDOM_TRIALS = 6  # before what they found says where to look; the default is one of them
RUNGS = (0.25, 0.5)  # shares of a trial at which the worse half of all trials ends
LEAST_AT_A_RUNG = 4  # trials, before any is ended there


class Trial(NamedTuple):
    """One way to train, and how it did on images that it was not trained on."""

    number: int
    values: dict[str, Any]
    state: Literal["running", "done", "ended early", "failed"] = "running"
    accuracy: float | None = None
    course: tuple[tuple[float, float], ...] = ()  # share of the training that was done, accuracy then
    seconds: float = 0.0
    problem: str = ""  # why it failed

    def at(self, rung: float) -> float | None:
        """Accuracy at the first look when this share was done."""
        return next((accuracy for share, accuracy in self.course if share >= rung), None)


def falls_behind(trial: Trial, others: Sequence[Trial]) -> float | None:
    """The rung at which it belongs to the worse half of all that came so far; None where it is worth going on."""
    for rung in RUNGS:
        own = trial.at(rung)
        there = [found for other in others if (found := other.at(rung)) is not None]
        if own is not None and len(there) + 1 >= LEAST_AT_A_RUNG and own < statistics.median([*there, own]):
            return rung
    return None


def propose(space: Space, basis: Mapping[str, Any], trials: Sequence[Trial], seed: int) -> dict[str, Any]:
    """Values for the next trial."""
    optuna = load_optuna()
    number = len(trials)
    sampler = optuna.samplers.TPESampler(
        seed=key_of(seed, "tune", number) % 2**32, n_startup_trials=RANDOM_TRIALS, multivariate=True, constant_liar=True
    )
    study = _study(space, basis, trials, sampler)
    return dict(study.ask(distributions(space, basis)).params)


def importances(space: Space, basis: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, float]:
    """Which parameters mattered, shares of 1; empty where too few trials came to their end to tell."""
    optuna = load_optuna()
    ended = [trial for trial in trials if trial.state == "done"]
    if len(ended) < LEAST_AT_A_RUNG:
        return {}
    study = _study(space, basis, ended, optuna.samplers.RandomSampler(seed=0))
    try:
        found: dict[str, float] = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError):  # all trials equally good
        return {}
    return found


def distributions(space: Space, basis: Mapping[str, Any]) -> dict[str, optuna.distributions.BaseDistribution]:
    """As Optuna has them. Where the default stands outside, the space is as much wider."""
    defaults = space.defaults(basis)
    return {
        name: _distribution(parameter, defaults[name], whole=isinstance(basis.get(name), int))
        for name, parameter in space.parameters.items()
    }


def _distribution(parameter: Parameter, default: Any, whole: bool) -> optuna.distributions.BaseDistribution:
    """`whole`: the recipe has a whole number there."""
    optuna = load_optuna()
    if choices := parameter.choices or parameter.times:
        return optuna.distributions.CategoricalDistribution(choices if default in choices else (*choices, default))
    assert parameter.low is not None and parameter.high is not None
    low, high = min(parameter.low, default), max(parameter.high, default)
    if whole:
        return optuna.distributions.IntDistribution(math.ceil(low), math.floor(high), log=parameter.log)
    return optuna.distributions.FloatDistribution(low, high, log=parameter.log)


def _study(
    space: Space, basis: Mapping[str, Any], trials: Sequence[Trial], sampler: optuna.samplers.BaseSampler
) -> optuna.Study:
    optuna = load_optuna()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    states = optuna.trial.TrialState
    known = {
        "running": states.RUNNING, "done": states.COMPLETE, "failed": states.COMPLETE, "ended early": states.PRUNED,
    }  # fmt: skip
    kinds, defaults = distributions(space, basis), space.defaults(basis)
    for trial in trials:
        # What failed has learned nothing: a search that is not told would go there again.
        value = 0.0 if trial.state == "failed" else trial.accuracy if trial.state == "done" else None
        study.add_trial(
            optuna.trial.create_trial(
                params={**defaults, **trial.values},
                distributions=kinds,
                state=known[trial.state],
                value=value,
                intermediate_values={round(100 * share): accuracy for share, accuracy in trial.course},
            )
        )
    return study


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError("tune needs the package optuna: pip install 'smallvit[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
