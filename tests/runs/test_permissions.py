"""Files that others may read where the user's other files may be read: the umask decides, as everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from helpers import make_folder
from smallvit.data.sources import open_source
from smallvit.evaluation.model_file import write_tensors
from smallvit.runs.atomic import replacing, write_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of this kind are those of Unix")


@pytest.fixture(params=[0o022, 0o002, 0o077], ids=oct)
def usual(request: pytest.FixtureRequest) -> Iterator[int]:
    """The mode of a new file under some umask."""
    before = os.umask(request.param)
    yield 0o666 & ~request.param
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_a_run_writes(usual: int, tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", {"w": torch.ones(2)}, {})
    write_text(tmp_path / "results.json", "{}")
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {"model.safetensors": usual, "results.json": usual}


def test_a_writer_that_keeps_its_file_to_itself(usual: int, tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as part:
        part.unlink()
        os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))
    assert mode(tmp_path / "a") == usual


def test_what_is_decoded(usual: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))
    open_source(str(make_folder(tmp_path / "photos", {"cat": 2, "dog": 2}))).load(8, "crop", 3)
    written = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert {path.name.partition("-")[0] for path in written} == {"images.npy", "meta.json", "facts"}
    assert {mode(path) for path in written} == {usual}
    folders = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert [mode(folder) for folder in folders] == [mode(tmp_path / "cache")]
