"""The picture of the contest: whatever rows the store has, as a file that stands alone in light and dark."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any
from xml.etree import ElementTree

import pytest

from helpers import PROJECT
from smallvit.drawing.figures import Bar, accuracy_chart
from smallvit.drawing.svg import stand_alone


@pytest.fixture(scope="module")
def chart() -> Any:
    return runpy.run_path(str(PROJECT / "benchmarks" / "contest_chart.py"))["chart"]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_drawing_becomes_a_file_with_colours_of_its_own() -> None:
    svg = stand_alone(accuracy_chart([Bar("a", 0.9, 0.8, 0.95, 1), Bar("floor", 0.5, 0.4, 0.6, 0)]), 400, 126)
    root = ElementTree.fromstring(svg)
    assert (root.get("width"), root.get("height")) == ("400", "126") and "a" in texts(svg)
    light, dark = svg.split("@media(prefers-color-scheme:dark)")
    for variable in set(re.findall(r"var\((--[\w-]+)\)", svg)):
        assert f"{variable}:#" in light and f"{variable}:#" in dark, variable


def test_the_stored_contest_is_drawn(chart: Any) -> None:
    record = json.loads((PROJECT / "docs" / "results" / "contest.json").read_text())
    written = texts(chart(record))
    assert "smallvit train" in written and "Flowers-102" in written


def test_means_single_seeds_floors_and_strangers(chart: Any) -> None:
    facts = {"train": 500, "test": 100, "classes": 10}
    runs = {f"default/svhn/{seed}": {"accuracy": 0.8 + seed / 100} for seed in range(3)}
    runs |= {"cnn/svhn/0": {"accuracy": 0.6}, "stranger/first50/0": {"accuracy": 0.5}}
    sets = {"svhn": facts | {"floors": {"k-NN on pixels": 0.25}}, "first50": facts, "clothing": facts}
    written = texts(chart({"seconds": 900, "sets": sets, "runs": runs}))
    assert {"81.0", "60.0", "50.0", "25.0", "k-NN on pixels", "stranger", "SVHN"} <= set(written)
    assert "Clothing" not in written, "a set without runs has no column"
    assert "Test accuracy after 900 s of one CPU thread, start and report included" in written


def test_an_empty_store_is_told(chart: Any) -> None:
    with pytest.raises(SystemExit, match="no runs"):
        chart({"seconds": 240, "sets": {}, "runs": {}})
