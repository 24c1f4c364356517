"""The nearest training images of a prediction: the right ones, kept under their digests, from every kind of data."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import smallvit
from helpers import ends_well, fails, make_folder, noise_image, run_here, write_npz

QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "model": "vit_pico", "show_progress": False}
CLASSES = {"cat": 12, "dog": 12, "<b>owl": 12}
KEPT = "neighbours.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nearest")
    make_folder(root / "photos", CLASSES)
    smallvit.train(root / "photos", out=root / "run", **QUICK)
    return root


@pytest.fixture
def run(made: Path, tmp_path: Path) -> smallvit.Run:
    """As it was when it had been trained: nothing is kept yet."""
    return smallvit.Run(shutil.copytree(made / "run", tmp_path / "run"))


def new_images(count: int = 3) -> list[np.ndarray]:
    return [np.asarray(noise_image(f"new {number}")) for number in range(count)]


def test_they_are_those_of_the_largest_cosine(run: smallvit.Run, made: Path) -> None:
    rows = run.read("split.json")["parts"]["train"]["rows"]
    files = sorted(path.relative_to(made / "photos").as_posix() for path in (made / "photos").rglob("*.png"))
    known = F.normalize(torch.from_numpy(run.embed([made / "photos" / files[row] for row in rows])), dim=1)
    asked = F.normalize(torch.from_numpy(run.embed(new_images())), dim=1)
    cosine = (asked @ known.T).numpy()
    for near, expected in zip(run.nearest(new_images(), k=4), cosine, strict=True):
        order = np.argsort(-expected)[:4]
        assert [neighbour.row for neighbour in near] == [rows[place] for place in order]
        assert [neighbour.file for neighbour in near] == [files[rows[place]] for place in order]
        assert [neighbour.label for neighbour in near] == [files[rows[place]].split("/")[0] for place in order]
        np.testing.assert_allclose([neighbour.similarity for neighbour in near], expected[order], atol=2e-6)


def test_a_training_image_is_nearest_to_itself(run: smallvit.Run, made: Path) -> None:
    (first,), (second,) = run.nearest(made / "photos" / "cat", k=1)[:2]
    held_out = set(run.read("split.json")["parts"]["test"]["rows"])
    for name, near in (("cat/000.png", first), ("cat/001.png", second)):
        if near.row not in held_out and near.file == name:
            assert near.similarity == pytest.approx(1, abs=1e-5)
    found = [near[0] for near in run.nearest(made / "photos", k=1)]
    assert sum(near.similarity > 1 - 1e-5 for near in found) >= len(run.read("split.json")["parts"]["train"]["rows"])


def test_more_than_there_are(run: smallvit.Run) -> None:
    (near,) = run.nearest(new_images(1), k=1000)
    assert len(near) == len(run.read("split.json")["parts"]["train"]["rows"])
    assert [n.similarity for n in near] == sorted((n.similarity for n in near), reverse=True)
    with pytest.raises(smallvit.UsageError, match="0 nearest training images: at least 1"):
        run.nearest(new_images(1), k=0)


def as_table(root: Path) -> Path:
    make_folder(root / "files", {"a": 10, "b": 10})
    rows = [(path.relative_to(root).as_posix(), path.parent.name) for path in sorted((root / "files").rglob("*.png"))]
    with (root / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    return root / "list.csv"


def as_npz(root: Path) -> Path:
    return write_npz(root / "set.npz", n=24)


def in_memory(root: Path) -> Any:
    with np.load(write_npz(root / "made.npz", n=24)) as arrays:
        return arrays["x_train"], [f"class {label}" for label in arrays["y_train"]]


@pytest.mark.parametrize(("make", "called"), [(as_table, "files/"), (as_npz, "set.npz:train["), (in_memory, "images-")])
def test_every_kind_of_data(tmp_path: Path, make: Callable[[Path], Any], called: str) -> None:
    run = smallvit.train(make(tmp_path), out=tmp_path / "runs" / "a", **QUICK)
    (near,) = run.nearest(new_images(1), k=2)
    assert len(near) == 2 and all(n.file.startswith(called) and n.label in run.classes for n in near)
    assert [n.path for n in near] == ([str(tmp_path / n.file) for n in near] if make is as_table else [None, None])


def test_they_are_kept_and_need_the_data_once(run: smallvit.Run, made: Path, tmp_path: Path) -> None:
    with pytest.raises(
        smallvit.SmallvitError, match=r"no such folder or file: .*The nearest training images need them"
    ):
        moved = smallvit.Run(_with_source(run, tmp_path / "moved", tmp_path / "gone"))
        moved.nearest(new_images())
    before = run.nearest(new_images())
    found = smallvit.Run(shutil.copytree(moved.path, tmp_path / "found"))
    assert found.nearest(new_images(), data=made / "photos") == before
    shutil.copy(run.path / KEPT, moved.path)
    nowhere = [tuple(one._replace(path=None) for one in near) for near in before]
    assert moved.nearest(new_images()) == nowhere, "names and labels are kept, and no path that leads nowhere is told"


def test_what_is_kept_of_another_model_or_damaged_is_computed_anew(run: smallvit.Run) -> None:
    before = run.nearest(new_images())
    good = (run.path / KEPT).read_bytes()
    for bad in (b"", good[:100], good.replace(b'\\"model\\": \\"', b'\\"model\\": \\"0', 1)[: len(good)]):
        (run.path / KEPT).write_bytes(bad)
        assert run.nearest(new_images()) == before
        assert (run.path / KEPT).read_bytes() == good
    save_file({"features": torch.zeros(2, 3)}, run.path / KEPT)
    assert run.nearest(new_images()) == before


def test_no_run_has_two_kinds_of_features(run: smallvit.Run) -> None:
    with pytest.raises(smallvit.UsageError, match="is a model file, which knows no training images"):
        smallvit.nearest(run.path / "model.safetensors", new_images())


def test_a_folder_that_is_overwritten_takes_them_along(run: smallvit.Run, made: Path) -> None:
    run.nearest(new_images(1))
    again = smallvit.train(made / "photos", out=run.path, overwrite=True, **QUICK)
    assert not (again.path / KEPT).exists()


def test_predict_tells_them_as_columns(run: smallvit.Run, made: Path, tmp_path: Path) -> None:
    noise_image("x").save(tmp_path / "one.png")
    (tmp_path / "broken.png").write_text("no image")
    outcome = run_here(
        "predict", run.path, tmp_path / "one.png", tmp_path / "broken.png", "--nearest", "2", "--top", "2"
    )
    assert outcome.status == 1 and "broken.png: not a readable image" in outcome.err
    (row,) = csv.DictReader(io.StringIO(outcome.out))
    (expected,) = run.nearest(tmp_path / "one.png", k=2)
    for place, near in enumerate(expected, start=1):
        told = [row[f"{word}_{place}"] for word in ("nearest", "nearest_label", "similarity")]
        assert near.path and Path(near.path) == made / "photos" / near.file and Path(near.path).is_file()
        assert told[:2] == [near.path, near.label] and float(told[2]) == pytest.approx(near.similarity, abs=1e-5)
    plain = ends_well(run_here("predict", run.path, tmp_path / "one.png", "--top", "2"))
    assert list(csv.DictReader(io.StringIO(plain.out))) == [{key: row[key] for key in list(row)[:5]}]


def test_predict_on_a_model_file_has_none(run: smallvit.Run, tmp_path: Path) -> None:
    noise_image("x").save(tmp_path / "one.png")
    words = ("predict", run.path / "model.safetensors", tmp_path / "one.png", "--nearest", "2")
    fails(run_here(*words), 2, "is a model file, which knows no training images: give its run folder")


def _with_source(run: smallvit.Run, to: Path, source: Path) -> Path:
    """The same run, whose images have been moved away."""
    copy = shutil.copytree(run.path, to)
    recipe = run.read("recipe.json")
    recipe["resolved"]["data"]["source"] = str(source)
    smallvit.Run(copy).write("recipe.json", recipe)
    return copy
