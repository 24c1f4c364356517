"""Whether a mirrored image keeps its class, by the names of the classes."""

from __future__ import annotations

import pytest

from smallvit.data.imageset import may_mirror

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.mark.parametrize(
    ("names", "mirrored"),
    [
        (list("0123456789"), False),
        ([f"{number:02d}" for number in range(10)], False),
        ([f"{number} - {word}" for number, word in enumerate(WORDS)], False),  # torchvision's MNIST
        (WORDS, False),
        (list("abc"), False),
        (list("01"), True),  # no and yes
        (WORDS[:5], True),
        (["cat", "dog"], True),
        (["cat - small", "cat - large"], True),
        (["turn_left", "turn_right"], False),
    ],
)
def test_signs_are_not_mirrored(names: list[str], mirrored: bool) -> None:
    assert may_mirror(names) is mirrored
