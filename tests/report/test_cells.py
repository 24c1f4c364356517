"""CSV files of hostile names: every reader sees the same rows, and no cell is a formula; a terminal obeys no name."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from PIL import Image

from helpers import PROJECT, run_here
from smallvit.report.answers import write_predictions
from smallvit.report.cells import file_cell, name_cell
from smallvit.report.tables import probe_table
from smallvit.types import Prediction

NAMES = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "-5",
    "+3.5e2",
    "plain",
    "a,b",
    'q"q',
    "line\rbreak",
    "li\nne",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_a_formula(name: str) -> None:
    for cell in (name_cell(name), file_cell(name)):
        assert not cell.startswith(("=", "@", "\t", "\r"))
        assert not cell.startswith(("+", "-")) or cell in ("-5", "+3.5e2")
    assert name_cell("-5") == "-5"  # a number stays one
    assert os.path.normpath(file_cell(name)) == os.path.normpath(name)


def test_every_answer_is_one_row(tmp_path: Path) -> None:
    answers = [Prediction(f"{name}.png", name, 0.5, "", {one: 1 / len(NAMES) for one in NAMES}) for name in NAMES]
    write_predictions(answers, tmp_path / "out.csv", 2, True)
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert len(rows) == len(NAMES) and {len(row) for row in rows} == {len(header)}
    assert [row[2].removeprefix("./") for row in rows] == [f"{name}.png" for name in NAMES]
    # What takes a carriage return outside of quotes for the end of a line, as spreadsheets do.
    text = (tmp_path / "out.csv").read_text(encoding="utf-8")
    outside = "".join(piece for place, piece in enumerate(text.split('"')) if place % 2 == 0)
    assert "\r" not in outside


def test_a_terminal_obeys_no_name(tmp_path: Path) -> None:
    bad = tmp_path / "\x1b[2Jx.png"
    Image.new("L", (8, 8)).save(bad)
    (tmp_path / "\x1b]0;title\x07broken.png").write_bytes(b"no image")
    done = run_here("predict", PROJECT / "tests" / "runs_0_1" / "finished", tmp_path)
    assert done.status == 1
    assert not {"\x1b", "\x07"} & {*done.out, *done.err}
    assert "\\x1b[2Jx.png" in done.out and "\\x1b]0;title\\x07broken.png" in done.err


def test_a_table_obeys_no_title(capsys: pytest.CaptureFixture[str]) -> None:
    """The title of a table has the path that was given, or the part that a stranger's file names."""
    judged = {"label": "k-NN", "n": 4, "accuracy": 0.5, "interval": [0.1, 0.9], "why": "so"}
    probe_table({"part": "[red]test\x1b[2J", "knn": judged, "floors": {}})
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "[red]test\\x1b[2J" in shown


def test_an_error_with_a_name_of_control_characters(tmp_path: Path) -> None:
    done = run_here("train", tmp_path / "no\x1b[31msuch")
    assert done.status == 1 and "\x1b" not in done.err
