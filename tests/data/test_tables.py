"""A CSV of path,label[,split] becomes an ImageSet, or an error that names the line and the choices."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import make_folder, noise_image, run_here, truncate
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.errors import DataError


def load(path: Path, size: int = 12) -> ImageSet:
    return open_source(str(path)).load(size, "crop", 3)


def counts(images: ImageSet) -> dict[str, int]:
    found = torch.bincount(images.labels_N, minlength=len(images.class_names))
    return dict(zip(images.class_names, found.tolist(), strict=True))


def table(tmp_path: Path, text: str, name: str = "labels.csv", encoding: str = "utf-8") -> Path:
    """The text, beside images/000.png to 005.png."""
    make_folder(tmp_path, {"images": 6})
    (tmp_path / name).write_bytes(text.encode(encoding))
    return tmp_path / name


ROWS = "".join(f"images/{number:03d}.png,{'cat' if number < 2 else 'dog'}\n" for number in range(6))


def test_path_and_label(tmp_path: Path) -> None:
    images = load(table(tmp_path, "path,label\n" + ROWS))
    assert counts(images) == {"cat": 2, "dog": 4}
    assert images.parts == {}
    assert images.files == tuple(f"images{os.sep}{number:03d}.png" for number in range(6))
    for row in range(6):
        expected = np.asarray(noise_image(f"images/{row}"))
        assert np.array_equal(images.images_NCSS[row].permute(1, 2, 0).numpy(), expected)  # type: ignore[index]


def test_paths_are_relative_to_the_table_not_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "a" / "b", "path,label\n" + ROWS)
    monkeypatch.chdir(tmp_path)
    assert len(load(path.relative_to(tmp_path))) == 6
    assert load(path).fingerprint == load(path.relative_to(tmp_path)).fingerprint


def test_absolute_paths_and_paths_upwards(tmp_path: Path) -> None:
    make_folder(tmp_path / "elsewhere", {"x": 2})
    rows = f"{tmp_path / 'elsewhere' / 'x' / '000.png'},owl\n../elsewhere/x/001.png,owl\n"
    images = load(table(tmp_path / "set", "path,label\n" + ROWS + rows))
    assert counts(images) == {"cat": 2, "dog": 4, "owl": 2}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_dialects(tmp_path: Path, delimiter: str, ending: str, encoding: str) -> None:
    lines = ["path,label", *ROWS.splitlines(), ""]
    text = ending.join(line.replace(",", delimiter) for line in lines)
    assert counts(load(table(tmp_path, text, encoding=encoding))) == {"cat": 2, "dog": 4}


def test_quoted_fields_other_order_spaces_and_capitals(tmp_path: Path) -> None:
    make_folder(tmp_path, {"images": 1})
    noise_image("x").save(tmp_path / "images" / 'a, "b".png')
    with (tmp_path / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [["Label ", " PATH"], [' salt, pepper"s ', 'images/a, "b".png'], ["dog", " images/000.png "], []]
        )
    images = load(tmp_path / "labels.csv")
    assert images.class_names == ("dog", 'salt, pepper"s')
    assert counts(images) == {"dog": 1, 'salt, pepper"s': 1}


@pytest.mark.parametrize(
    ("header", "fields"),
    [("path", "{0}"), ("path,note", "{0},x"), ("path;split", "{0};train"), ("Path\tnote", "{0}\ta")],
)
def test_paths_alone_where_no_labels_are_needed(tmp_path: Path, header: str, fields: str) -> None:
    rows = "".join(fields.format(row.split(",")[0]) + "\n" for row in ROWS.splitlines())
    path = table(tmp_path, f"{header}\n{rows}")
    images = open_source(str(path), labelled=False).load(12, "crop", 3)
    assert images.class_names == ("unlabelled",) and images.labels_N.tolist() == [0] * 6 and images.parts == {}
    with pytest.raises(
        DataError, match=r"labels\.csv names images but no labels .* only `smallvit pretrain` does with"
    ):
        open_source(str(path))


def test_labels_are_words_even_when_they_look_like_numbers(tmp_path: Path) -> None:
    text = "path,label\nimages/000.png,01\nimages/001.png,1\nimages/002.png,1.0\nimages/003.png,nan\n"
    assert load(table(tmp_path, text)).class_names == ("01", "1", "1.0", "nan")


def test_tsv_by_its_name(tmp_path: Path) -> None:
    assert len(load(table(tmp_path, "path\tlabel\n" + ROWS.replace(",", "\t"), name="labels.tsv"))) == 6


@pytest.mark.skipif(os.sep == "\\", reason="there it is the separator")
def test_paths_written_on_windows(tmp_path: Path) -> None:
    assert len(load(table(tmp_path, "path,label\n" + ROWS.replace("/", "\\")))) == 6


# ---- splits ------------------------------------------------------------------------------------------


def test_split_column(tmp_path: Path) -> None:
    parts = ["train", "Training", "valid", "train", "TEST", "testing"]
    rows = "".join(f"{line},{part}\n" for line, part in zip(ROWS.splitlines(), parts, strict=True))
    images = load(table(tmp_path, "path,label,split\n" + rows))
    assert {part: rows.tolist() for part, rows in images.parts.items()} == {"train": [0, 1, 3], "val": [2], "test": [4, 5]}  # fmt: skip


def test_train_alone_is_no_split(tmp_path: Path) -> None:
    rows = "".join(f"{line},train\n" for line in ROWS.splitlines())
    assert load(table(tmp_path, "path,label,split\n" + rows)).parts == {}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("images/000.png,cat,trian\n", r"line 2: unknown split 'trian': did you mean train"),
        ("images/000.png,cat,fold1\n", r"unknown split 'fold1': choices: test, testing, train, training, val, valid"),
        ("images/000.png,cat,\n", r"line 2: unknown split ''"),
        ("images/000.png,cat,test\nimages/001.png,cat,val\n", "holds test, val but no train"),
    ],
)
def test_splits_that_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(table(tmp_path, "path,label,split\n" + rows))


# ---- rows that repeat --------------------------------------------------------------------------------


def test_rows_that_say_the_same_again_count_once_and_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path, "path,label\n" + ROWS + "images/000.png,cat\nimages/../images/001.png,cat\n")
    assert len(load(path)) == 6
    assert (
        "2 rows are left out for a file that an earlier row names, the first: line 8 (000.png)"
        in capsys.readouterr().err
    )


def test_one_file_with_two_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"000\.png has the label 'cat' in line 2 and 'dog' in line 8"):
        load(table(tmp_path, "path,label\n" + ROWS + "images/000.png,dog\n"))


def test_one_file_in_two_parts_is_leakage(tmp_path: Path) -> None:
    rows = "images/000.png,cat,train\nimages/000.png,cat,test\n"
    with pytest.raises(DataError, match=r"has the split 'train' in line 2 and 'test' in line 3"):
        load(table(tmp_path, "path,label,split\n" + rows))


# ---- what cannot be read -----------------------------------------------------------------------------


def test_missing_files_are_named_counted_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path, {"images": 40})
    rows = "".join(f"images/{number:03d}.png,{'ab'[number % 2]}\n" for number in range(40))
    (tmp_path / "labels.csv").write_text("path,label\n" + rows + "images/gone.png,a\nimages,b\n")
    images = load(tmp_path / "labels.csv")
    assert len(images) == 40
    assert [item.file for item in images.skipped] == [str(Path("images", "gone.png")), "images"]
    assert images.skipped[0].why == "No such file or directory"
    assert "skipped 2 of 42 files" in capsys.readouterr().err


def test_many_missing_files_stop_with_the_list(tmp_path: Path) -> None:
    path = table(tmp_path, "path,label\n" + ROWS + "images/gone.png,cat\n")
    with pytest.raises(DataError, match=r"1 of 7 images of .*labels\.csv cannot be read:\n.*gone\.png: No such file"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: the first line must name the columns path and label"),
        ("\n\n", "is empty"),
        ("x" * 140_000, "must name the columns path and label"),
        ("path,label\n", "names no images"),
        (ROWS, r"must name the columns path and label.*; it reads 'images/000\.png,cat'"),
        ("path|label\n" + ROWS, "divided by commas; it reads 'path.label'"),
        ("path,label,path\n", "the column 'path' is there twice"),
        ("path,label\nimages/000.png\n", "line 2: 1 fields instead of 2"),
        ("path,label\n" + ROWS + "a,b.png,cat\n", r"line 8: 3 fields instead of 2 \(divided by comma\); put quotes"),
        ("path,label\nimages/000.png,\n", "line 2: the label is empty"),
        ("path,label\n ,cat\n", "line 2: the path is empty"),
        ('path,label\n"images/000.png,cat\n', "line 2: unexpected end of data"),
        ("path,label\nimages/\x0000.png,cat\n", "line 2"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(table(tmp_path, text))


def test_other_encodings_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not UTF-8 text"):
        load(table(tmp_path, "path,label\nimages/000.png,caf\u00e9\n", encoding="latin-1"))
    with pytest.raises(DataError, match="is not UTF-8 text"):
        load(table(tmp_path, "path,label\n", encoding="utf-16"))


def test_further_columns_are_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(load(table(tmp_path, "path,age,label\nimages/000.png,7,cat\nimages/001.png,8,dog\n"))) == 2
    assert "left out: age" in capsys.readouterr().err


def test_label_changes_are_seen_though_the_pixels_are_cached(tmp_path: Path) -> None:
    path = table(tmp_path, "path,label\n" + ROWS)
    before = load(path)
    path.write_text("path,label\n" + ROWS.replace("000.png,cat", "000.png,dog"))
    after = load(path)
    assert counts(after) == {"cat": 1, "dog": 5}
    assert after.fingerprint != before.fingerprint


def test_class_lost_to_a_damaged_file_is_noticed_after_the_labels_changed(tmp_path: Path) -> None:
    """The file is found damaged while it is decoded, and that is remembered; what it means depends on the labels."""
    make_folder(tmp_path, {"images": 40}, size=(64, 64))
    truncate(tmp_path / "images" / "000.png")
    rows = [f"images/{number:03d}.png,{'cat' if number < 2 else 'dog'}\n" for number in range(40)]
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(rows))
    assert len(load(tmp_path / "labels.csv").skipped) == 1
    rows[1] = rows[1].replace("cat", "dog")
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(rows))
    with pytest.raises(DataError, match=r"no image of class 'cat' of .* can be read"):
        load(tmp_path / "labels.csv")


def test_train_on_a_table(tmp_path: Path) -> None:
    make_folder(tmp_path, {"x": 12, "y": 12})
    rows = [f"{k}/{n:03d}.png,{k},{'train' if n < 8 else 'test'}" for k in "xy" for n in range(12)]
    (tmp_path / "labels.csv").write_text("path,label,split\n" + "\n".join(rows))
    words = ["train", tmp_path / "labels.csv", "--epochs", "1", "--threads", "1", "--model", "vit_pico", "--out", tmp_path / "run"]  # fmt: skip
    outcome = run_here(*words)
    assert outcome.status == 0, outcome.err
    assert "2 classes, " in outcome.err
    assert "8 test" in outcome.err
    assert (tmp_path / "run" / "report.html").is_file()
