"""What to try next, and what to end: functions of the trials so far."""

from __future__ import annotations

import math

from smallvit.tuning.search import Trial, falls_behind, importances, propose
from smallvit.tuning.space import make_space

SPACE = make_space("mine", {
    "optimizer.rate_factor": {"low": 0.01, "high": 100.0, "log": True, "default": 1.0},
    "batch_size": {"choices": [16, 32, 64]},
})  # fmt: skip
BASIS = {"optimizer.rate_factor": 1.0, "batch_size": 64}


def searched(count: int, seed: int = 0) -> list[Trial]:
    """Trials of which the accuracy depends on the rate alone, best at 10."""
    trials = [Trial(0, {}, "done", accuracy_at(1.0))]
    while len(trials) < count:
        values = propose(SPACE, BASIS, trials, seed)
        trials.append(Trial(len(trials), values, "done", accuracy_at(values["optimizer.rate_factor"])))
    return trials


def accuracy_at(rate: float) -> float:
    return 0.9 - 0.2 * abs(math.log10(rate) - 1)


def test_the_search_goes_where_it_is_better() -> None:
    trials = searched(30)
    assert max(trial.accuracy or 0 for trial in trials) > 0.87
    late = [trial.accuracy or 0 for trial in trials[20:]]
    assert sum(late) / len(late) > 0.75  # of random trials it would be 0.6


def test_it_is_a_function_of_the_trials_and_the_seed() -> None:
    trials = searched(8)
    assert [trial.values for trial in searched(8)] == [trial.values for trial in trials]
    assert searched(8, seed=1)[1].values != trials[1].values
    assert propose(SPACE, BASIS, trials[:5], 0) == trials[5].values


def test_failures_and_trials_under_way_are_no_obstacle() -> None:
    trials = [*searched(7), Trial(7, {"optimizer.rate_factor": 99.0, "batch_size": 16}, "failed", problem="diverged")]
    trials.append(Trial(8, {"optimizer.rate_factor": 2.0, "batch_size": 32}))
    trials.append(Trial(9, {"optimizer.rate_factor": 0.02, "batch_size": 32}, "ended early", course=((0.3, 0.2),)))
    values = propose(SPACE, BASIS, trials, 0)
    assert values.keys() == SPACE.parameters.keys()


def test_what_matters() -> None:
    found = importances(SPACE, BASIS, searched(30))
    assert found["optimizer.rate_factor"] > 0.7
    assert importances(SPACE, BASIS, searched(3)) == {}


def at_rungs(number: int, quarter: float, half: float | None = None) -> Trial:
    course = ((0.1, 0.0), (0.26, quarter)) + (((0.51, half),) if half is not None else ())
    return Trial(number, {}, course=course)


def test_the_worse_half_ends() -> None:
    others = [at_rungs(number, 0.4 + number / 100, 0.5 + number / 100) for number in range(4)]
    assert falls_behind(at_rungs(9, 0.3), others) == 0.25
    assert falls_behind(at_rungs(9, 0.5), others) is None
    assert falls_behind(at_rungs(9, 0.5, 0.4), others) == 0.5
    assert falls_behind(at_rungs(9, 0.3), others[:2]) is None  # too few to tell
    assert falls_behind(Trial(9, {}, course=((0.2, 0.0),)), others) is None  # not there yet
