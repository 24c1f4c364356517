"""What was chosen for a run, and why: the one place where a recipe under way is written.

Planning, objectives and auxiliary losses all write through `Choices`, so that what is printed and stored is what the
recipe holds.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from smallvit.recipe import Recipe


class Choice(NamedTuple):
    key: str
    value: Any
    why: str


class Choices:
    """A recipe on its way from asked to resolved, with every choice that was made on the way. Keys are dotted.

    `turns`: so many runs follow one another in the budget.
    """

    def __init__(self, asked: Recipe, turns: int = 1) -> None:
        self.turns = max(1, turns)
        self._tree = asked.model_dump()
        self._section = ""
        self.made: list[Choice] = []

    @property
    def recipe(self) -> Recipe:
        """The whole recipe as far as it is."""
        return Recipe.model_validate(self._tree)

    @property
    def seconds(self) -> float | None:
        """Of the budget, for one run."""
        budget: float | None = self._tree["budget"]
        return None if budget is None else budget / self.turns

    def within(self, section: str) -> Choices:
        """The same recipe and the same list, by keys of one section: an objective names its own options."""
        inner = copy.copy(self)
        inner._section = f"{self._section}{section}."
        return inner

    def __getitem__(self, key: str) -> Any:
        section, name = self._place(key)
        return section[name]

    def choose(self, key: str, value: Any, why: str) -> None:
        """The value where none was given: for an `auto`, or a keyword of the model that is not there. Else nothing."""
        section, name = self._place(key)
        if section.get(name, "auto") == "auto":
            self.record(key, value, why)

    def record(self, key: str, value: Any, why: str) -> None:
        """The value that follows from what was given, or that was given and has something to be said about it.

        Of two choices of one key the later is told.
        """
        self.put(key, value)
        choice = Choice(self._section + key, value, why)
        self.made[:] = [*(earlier for earlier in self.made if earlier.key != choice.key), choice]

    def put(self, key: str, value: Any) -> None:
        """A value that is measured or spelled out: there was nothing to choose, so nothing is told."""
        section, name = self._place(key)
        section[name] = value

    def _place(self, key: str) -> tuple[dict[str, Any], str]:
        *path, name = (self._section + key).split(".")
        section = self._tree
        for outer in path:
            section = section[outer]
        return section, name
