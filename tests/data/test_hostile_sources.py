"""Files and folders that are made to break a reader: each is used, or told with its reason."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from helpers import fails, make_folder, run_here, write_npz
from smallvit.data.arrays import npz_source
from smallvit.data.folders import image_files, list_folder
from smallvit.data.images import Unreadable, read_header
from smallvit.errors import DataError, UsageError
from smallvit.recipe import build_recipe, parse_assignment


def npy(header: bytes, content: bytes = b"") -> bytes:
    """A .npy file with any bytes as its header."""
    padded = header + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + content


def claims(shape: str, dtype: str = "|u1") -> bytes:
    return npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode(), b"few")


HEADERS = [b"[" * 9000, b"(" * 9000, b"-" * 9000, b"{" * 50 + b"1" * 5000, b"\xff" * 40, b""]


@pytest.mark.parametrize("header", HEADERS)
def test_an_npy_header_of_anything_is_a_reason(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(npy(header))
    with pytest.raises(Unreadable, match="not a readable"):
        read_header(tmp_path / "a.npy")


@pytest.mark.parametrize("shape", ["(-1, 8)", "(8, -8, 3)", "(0, 4)"])
def test_an_npy_of_no_size_is_a_reason(tmp_path: Path, shape: str) -> None:
    (tmp_path / "a.npy").write_bytes(claims(shape))
    with pytest.raises(Unreadable, match="empty"):
        read_header(tmp_path / "a.npy")


def test_check_lists_an_npy_of_brackets(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(30):
            np.save(tmp_path / name / f"{number}.npy", np.full((8, 8), number, np.uint8))
    (tmp_path / "a" / "bad.npy").write_bytes(npy(b"[" * 9000))
    done = run_here("check", tmp_path, "--fast")
    assert "bad.npy" in done.out and "Traceback" not in done.out + done.err


def add_member(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, content)
    return path


def test_an_npz_header_that_claims_100_gb(tmp_path: Path) -> None:
    path = add_member(write_npz(tmp_path / "a.npz", x_train=None), "x_train.npy", claims("(100000000, 32, 32)"))
    with pytest.raises(DataError, match="x_train claims 102,400,000,000 bytes"):
        npz_source(path)


@pytest.mark.parametrize("header", HEADERS)
def test_an_npz_with_a_header_of_anything(tmp_path: Path, header: bytes) -> None:
    path = add_member(write_npz(tmp_path / "a.npz", x_train=None), "x_train.npy", npy(header))
    with pytest.raises(DataError, match=r"a\.npz"):
        npz_source(path)


@pytest.mark.parametrize("name", ["x_train", "x_train.npy"])
def test_an_npz_member_that_is_no_array(tmp_path: Path, name: str) -> None:
    path = add_member(write_npz(tmp_path / "a.npz", x_train=None), name, b"no array at all")
    with pytest.raises(DataError, match=r"a\.npz"):
        npz_source(path)


def test_a_class_folder_that_links_to_its_own_root_is_left_out(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos", {"cat": 3, "dog": 3})
    (root / "all").symlink_to(root)
    (root / "above").symlink_to(tmp_path)
    (root / "elsewhere").symlink_to(make_folder(tmp_path / "other", {"owl": 2}) / "owl")  # a set may be made of links
    assert {item.class_name for item in list_folder(root)} == {"cat", "dog", "elsewhere"}


def test_a_link_in_a_circle_is_one_unreadable_file(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 2})
    (tmp_path / "cat" / "circle.png").symlink_to("circle.png")
    assert [path.name for path in image_files(tmp_path / "cat")] == ["000.png", "001.png", "circle.png"]
    with pytest.raises(Unreadable):
        read_header(tmp_path / "cat" / "circle.png")


def test_folders_in_folders_in_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_folder(tmp_path, {"cat": 2}) / "cat")
    for _ in range(1500):
        Path("d").mkdir()
        os.chdir("d")
    try:
        assert len(image_files(tmp_path / "cat")) == 2
        assert "Traceback" not in run_here("check", tmp_path, "--fast").err
    finally:
        for _ in range(1500):  # what removes the test's folder calls itself, too
            os.chdir("..")
            Path("d").rmdir()


@pytest.mark.parametrize(
    "text",
    [
        "seed = " + "9" * 5000,
        "seed = " + "[" * 3000,
        "epochs = 1" + "0" * 4000,
        "[augment]\nrepeats = 1000000000000000000",
    ],
)
def test_a_recipe_of_large_numbers_or_many_brackets(tmp_path: Path, text: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"r\.toml"):
        build_recipe(file)
    key, _, value = text.removeprefix("[augment]\n").partition(" = ")
    key = f"augment.{key}" if "augment" in text else key
    fails(run_here("train", "digits", "--set", f"{key}={value}"), 2, key)


def test_a_setting_of_many_brackets() -> None:
    with pytest.raises(UsageError, match=r"a\.b"):
        parse_assignment("a.b=" + "[" * 3000)
