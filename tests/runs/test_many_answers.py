"""Answers about more images and classes than fit into memory: one after the other, with the likeliest classes only."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
from PIL import Image

from helpers import PROJECT, run_here
from smallvit.report.answers import write_predictions
from smallvit.runs.prediction import _likeliest, predict, predictions
from smallvit.types import Prediction

RUN = PROJECT / "tests" / "runs_0_1" / "finished"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for number in range(70):
        Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8)).save(tmp_path / "pictures" / f"{number:02d}.png")
    return tmp_path / "pictures"


def test_the_likeliest_classes_are_those_of_all(pictures: Path, tmp_path: Path) -> None:
    whole, few = predict(RUN, pictures), list(predictions(RUN, pictures, most=2))
    assert [one.top(2) for one in few] == [one.top(2) for one in whole]
    assert [one[:3] for one in few] == [one[:3] for one in whole]
    assert all(len(one.probabilities or {}) == 10 for one in whole)
    assert run_here("predict", RUN, pictures, "--top", "2", "--csv", tmp_path / "out.csv").status == 0
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["label", "probability", "file", "label_2", "probability_2"] and len(rows) == 70
    assert [(row[0], float(row[1]), row[3], float(row[4])) for row in rows] == [
        (first[0], first[1], second[0], second[1]) for first, second in (one.top(2) for one in whole)
    ]


@pytest.mark.parametrize("most", [1, 2, 5, 40])
def test_classes_that_look_alike_when_rounded_come_along(most: int) -> None:
    draw = np.random.default_rng(1)
    chances_K = np.round(draw.dirichlet(np.ones(40)), 2).astype(np.float32) + draw.uniform(0, 3e-7, 40).astype(
        np.float32
    )
    names = [f"{place:02d}" for place in range(40)]

    def top(places: Iterator[int]) -> list[tuple[str, float]]:
        rounded = {names[place]: round(float(chances_K[place]), 6) for place in places}
        return Prediction("x", names[int(chances_K.argmax())], 0.0, "", rounded).top(most)

    assert top(iter(_likeliest(chances_K, most))) == top(iter(range(40)))


class Chances(dict[str, float]):
    """A dictionary that can be watched."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def test_a_table_is_written_without_holding_all_answers(tmp_path: Path) -> None:
    alive: WeakSet[Chances] = WeakSet()
    most = 0

    def answers() -> Iterator[Prediction]:
        nonlocal most
        for number in range(50):
            chances = Chances(a=0.75, b=0.25)
            alive.add(chances)
            most = max(most, len(alive))
            yield Prediction(f"{number}.png", "a", 0.75, "", chances)

    assert write_predictions(answers(), tmp_path / "out.csv", probabilities=True) == 0
    assert most <= 3 and len((tmp_path / "out.csv").read_text().splitlines()) == 51
