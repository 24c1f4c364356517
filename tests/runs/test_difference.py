"""What made the difference, in one sentence that is true whatever was measured."""

from __future__ import annotations

import pytest

from smallvit.runs.comparison import Comparison, Differing
from smallvit.runs.difference import Learned, in_words

MODEL = Differing("model.name", "conv_nano", "vit_nano")


def compared(difference: float, p: float = 0.001) -> Comparison:
    interval = (difference - 0.01, difference + 0.01)
    return Comparison(
        "conv_nano", "vit_nano", "images", 1000, (0.98, 0.98 - difference), difference, interval, p, "", {}
    )


@pytest.mark.parametrize(
    ("learned", "said"),
    [
        (Learned(1.0, 1.0), "all of it is how well that holds for new images"),
        (Learned(0.99, 1.0), "all of it is how well that holds for new images"),
        (Learned(1.0, 0.998), "nearly all of it is how well that holds for new images"),
        (Learned(1.0, 0.99), "most of it is how well that holds for new images"),
        (Learned(1.0, 0.97), "most of it is how well each has learned its own images"),
        (Learned(0.99, 0.95), "all of it is how well each has learned its own images"),
    ],
)
def test_how_much_of_it_is_there_on_the_training_images(learned: Learned, said: str) -> None:
    sentence = in_words(compared(0.04), learned, [MODEL])
    assert sentence.startswith(
        "conv_nano is 4.0 points better than vit_nano on the same 1,000 images (95% interval 3.0 to 5.0); "
    )
    assert f"so {said}, and the two differ in model.name (conv_nano, not vit_nano) alone." in sentence
    assert f"{100 * learned.best:.1f}% and {100 * learned.worst:.1f}% of the images they were trained on" in sentence


def test_what_may_be_chance_is_not_explained() -> None:
    sentence = in_words(compared(0.004, p=0.4), Learned(1.0, 0.9), [MODEL])
    assert sentence == (
        "None is certain: conv_nano is 0.4 points better than vit_nano on the same 1,000 images "
        "(95% interval -0.6 to 1.4), which may be chance."
    )


def test_settings_that_differ_are_named_as_far_as_there_is_room() -> None:
    settings = [Differing(f"key{number}", "1", "2") for number in range(6)]
    sentence = in_words(compared(0.04), Learned(1.0, 1.0), settings)
    assert sentence.endswith(
        ", and the two differ in key0 (1, not 2), key1 (1, not 2), key2 (1, not 2), key3 (1, not 2) and 2 more."
    )
    assert in_words(compared(0.04), Learned(1.0, 1.0), []).endswith("for new images.")
