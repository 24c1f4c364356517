"""What is read from the files of the losses is what importing them finds."""

from __future__ import annotations

import pytest

from smallvit.listing.losses import auxiliary_names, declared_losses, in_words, pretraining_names
from smallvit.objectives import auxiliaries, objectives


def test_the_names_are_those_of_the_classes() -> None:
    assert pretraining_names() == [name for name, kind in objectives().items() if not kind.classifies]
    assert auxiliary_names() == list(auxiliaries())
    assert {loss.name for loss in declared_losses()} == objectives().keys() | auxiliaries().keys()


@pytest.mark.parametrize("loss", declared_losses(), ids=lambda loss: loss.name)
def test_every_loss_has_a_line_of_help(loss) -> None:  # type: ignore[no-untyped-def]
    assert loss.line.endswith(".") and 20 < len(loss.line) < 125


def test_in_words() -> None:
    assert [in_words(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]
