"""`predict` as it is typed: files of every kind, and the table of answers."""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path

import pytest

from helpers import ends_well, fails, make_folder, noise_image, run_here, truncate


def test_predict_with_good_missing_and_broken_files_and_a_folder(place: Path, tmp_path: Path) -> None:
    make_folder(tmp_path, {"new/a": 2, "new/b": 1, "new/.hidden": 1})
    (tmp_path / "new" / "notes.txt").write_text("no image")
    noise_image("x").save(tmp_path / "one.jpg")
    noise_image("y", (64, 64)).save(tmp_path / "broken.png")
    truncate(tmp_path / "broken.png")
    table = tmp_path / "out.csv"
    words = ["one.jpg", "missing.png", "broken.png", "new"]
    outcome = run_here("predict", place / "runs" / "a", *(tmp_path / word for word in words), "--csv", table)
    assert outcome.status == 1
    assert outcome.out == ""
    said = outcome.err.splitlines()
    assert said[0] == f"4 predictions in {table}"
    assert said[1] == "2 files could not be read:"
    assert said[2] == f"  {tmp_path / 'missing.png'}: No such file or directory"
    assert said[3].startswith(f"  {tmp_path / 'broken.png'}: damaged: ")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [
        str(tmp_path / name) for name in ("one.jpg", "new/a/000.png", "new/a/001.png", "new/b/000.png")
    ]
    assert {row["label"] for row in rows} <= {"cat", "dog", "owl [x]"}
    assert all(1 / 3 <= float(row["probability"]) <= 1 for row in rows)


def test_predict_prints_csv_where_no_file_is_named(place: Path) -> None:
    image = place / "photos" / "cat" / "000.png"
    outcome = ends_well(run_here("predict", place / "runs" / "a", image))
    assert outcome.err == ""
    assert "\r" not in outcome.out
    (row,) = csv.DictReader(io.StringIO(outcome.out))
    assert list(row) == ["label", "probability", "file"]
    assert row["file"] == str(image)
    from_file = ends_well(run_here("predict", place / "runs" / "a" / "model.safetensors", image))
    assert from_file.out == outcome.out


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes any bytes as a file name")
def test_predict_file_names_of_any_bytes(place: Path, tmp_path: Path) -> None:
    name = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9, new.png"))
    noise_image("x").save(tmp_path / "plain.png")
    (tmp_path / "plain.png").rename(name)
    assert "caf\\xe9, new.png" in ends_well(run_here("predict", place / "runs" / "a", name)).out
    table = tmp_path / "out.csv"
    ends_well(run_here("predict", place / "runs" / "a", name, "--csv", table))
    with table.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        (row,) = csv.DictReader(file)
    assert Path(row["file"]).is_file()


def test_predict_cannot_write_its_table(place: Path, tmp_path: Path) -> None:
    image = place / "photos" / "cat" / "000.png"
    (tmp_path / "file").touch()
    for table in (tmp_path / "no" / "folder.csv", tmp_path / "file" / "below.csv", tmp_path):
        fails(run_here("predict", place / "runs" / "a", image, "--csv", table), 1, f"cannot write {table}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_predict_on_a_folder_without_images(place: Path, tmp_path: Path) -> None:
    fails(run_here("predict", place / "runs" / "a", tmp_path), 1, f"no images below {tmp_path}")


def test_weights_of_something_else(run_copy: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, run_copy / "model.safetensors")
    image = tmp_path / "x.png"
    noise_image("x").save(image)
    fails(run_here("predict", run_copy, image), 1, "does not hold a smallvit model")
    fails(run_here("predict", tmp_path / "none.safetensors", image), 1, "no such file: ")
