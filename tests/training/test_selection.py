"""`select = best`: which look at the validation part is kept, and what is said where it is too small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tiny_runs import plan

from smallvit.evaluation.metrics import Score
from smallvit.planning.cautions import cautions
from smallvit.training.selection import Best, standard_error


def kept(accuracies: Sequence[float | None], images: int, loss: float = 1.0) -> int:
    best = Best()
    for epoch, accuracy in enumerate(accuracies):
        best = best.after(Score(accuracy, loss), epoch, images)
    return best.epoch


def test_a_lucky_first_look_at_few_images_does_not_win() -> None:
    """35 images, as it was seen: the first look is the highest, and the model has hardly learned."""
    looks = [0.34, 0.17, 0.23, 0.26, 0.20, 0.29, 0.31, 0.26, 0.29, 0.31, 0.29, 0.31, 0.31]
    assert kept(looks, 35) == 12


def test_among_equals_the_latest_is_kept() -> None:
    assert kept([0.5] * 5, 1000) == 4
    assert kept([0.5, 0.5, 0.51, 0.5, 0.5], 1000) == 4, "within chance is equal"


def test_a_fall_that_is_no_chance_keeps_what_was_before() -> None:
    looks = [0.3, 0.5, 0.6, 0.7, 0.7, 0.7, 0.5, 0.4, 0.4]
    assert kept(looks, 1000) == 5
    assert kept(looks[:8], 4) == 7, "of four images not even that can be told"


def test_a_slow_fall_is_compared_with_the_highest_not_with_the_last_kept() -> None:
    looks = [0.8 - 0.005 * place for place in range(40)]
    last = kept(looks, 1000)
    assert 0 < last < 10 and looks[last] > 0.8 - 2 * standard_error(0.8, 1000)


def test_what_has_no_accuracy_changes_nothing() -> None:
    best = Best().after(Score(0.5, 1.0), 0, 10)
    assert best.after(Score(None, None), 1, 10) == best.after(None, 1, 10) == best
    assert best.after(Score(0.9, float("nan")), 1, 10) == best


def test_it_goes_on_from_what_is_stored() -> None:
    best = Best()
    for epoch, accuracy in enumerate((0.2, 0.4, 0.6, 0.5)):
        best = best.after(Score(accuracy, 1.0), epoch, 30)
        assert Best.stored({**best._asdict(), "recent": list(best.recent)}) == best
    assert best.recent == (0.4, 0.6, 0.5) and best.accuracy == pytest.approx(0.5)
    assert Best.stored([0.25, -1.5, 3]) == Best(3, 0.25, 0.25, (0.25,)), "as version 0.1 stored it"
    assert Best.stored([-1.0, float("-inf"), -1]) == Best()


@pytest.mark.parametrize(
    ("changes", "told"), [({"val": 0.05}, True), ({"val": 0.05, "select": "last"}, False), ({}, False)]
)
def test_too_few_to_choose_by_is_said_before_the_start(changes: dict[str, Any], told: bool) -> None:
    made = plan(**changes)
    words = [caution for caution in cautions(made.recipe, made.images, made.split) if "select = best" in caution]
    assert bool(words) == told
    if told:
        assert f"looks at {len(made.split.val)} validation images, and under 200 is too few" in words[0]
        assert "the latest are kept; hold out more (--val 0.3), or --set select=last" in words[0]
