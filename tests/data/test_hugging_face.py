"""Data sets of Hugging Face: folders that `save_to_disk` wrote, and `hf:NAME` from files of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import QUICK, ends_well, fails, noise_image, run_here
from smallvit import Run
from smallvit.data.sources import open_source
from smallvit.errors import DataError, UsageError

datasets = pytest.importorskip("datasets")
CLASSES = ["cat", "dog", "bird"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


def rows(count: int, seed: str) -> dict[str, list[object]]:
    return {
        "image": [noise_image(f"{seed}{row}", (12 + row % 2, 12)) for row in range(count)],
        "label": [row % 3 for row in range(count)],
        "note": [{"any": "thing"}] * count,
    }


def part(count: int, seed: str, names: list[str] = CLASSES) -> object:
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=names), note={"any": datasets.Value("string")}
    )
    return datasets.Dataset.from_dict(rows(count, seed), features=features)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    both = datasets.DatasetDict(
        {"train": part(9, "a"), "validation": part(3, "b"), "test": part(6, "c"), "extra": part(3, "d")}
    )
    both.save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_saved_folder(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = open_source(str(saved)).load(12, "crop", 3)
    assert {name: len(held) for name, held in images.parts.items()} == {"train": 9, "val": 3, "test": 6}
    assert images.class_names == ("cat", "dog", "bird"), "in the order of the numbers"
    assert images.labels_N[images.parts["train"]].tolist() == [0, 1, 2] * 3
    import torch
    from torchvision.transforms.functional import pil_to_tensor

    assert torch.equal(images.images_NCSS[images.parts["test"][:1]][0], pil_to_tensor(noise_image("c0", (12, 12))))
    assert "the parts extra are left out" in capsys.readouterr().err


def test_one_part_alone_has_no_parts(tmp_path: Path) -> None:
    part(9, "a").save_to_disk(tmp_path / "one")
    images = open_source(str(tmp_path / "one")).load(12, "crop", 3)
    assert (len(images), images.parts) == (9, {})


def test_trained_from_a_saved_folder_and_evaluated_without_the_copy(saved: Path, tmp_path: Path) -> None:
    ends_well(run_here("train", saved, *QUICK, "--img-size", "12", "--out", tmp_path / "run"))
    assert Run(tmp_path / "run").recipe.data.source == str(saved)
    assert "stale" not in ends_well(run_here("cache", "list")).out
    ends_well(run_here("cache", "clear"))
    assert not list((tmp_path / "cache").glob("hf-*"))
    ends_well(run_here("evaluate", tmp_path / "run"))


def test_a_set_by_name_is_fetched_only_when_asked(saved: Path, tmp_path: Path) -> None:
    """A folder of parquet files stands for what the hub would send."""
    hub = tmp_path / "hub"
    hub.mkdir()
    part(9, "a").to_parquet(hub / "train-0.parquet")
    part(6, "c").to_parquet(hub / "test-0.parquet")
    images = open_source(f"hf:{hub}").load(12, "crop", 3)
    assert {name: len(held) for name, held in images.parts.items()} == {"train": 9, "test": 6}
    fails(run_here("train", "hf:nobody/nothing-of-this-name"), 1, "cannot be loaded", "--download fetches it")
    fails(run_here("train", "hf:"), 2, "a name is missing")


def test_code_beside_a_set_is_not_run(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / "hub.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(DataError, match="cannot be loaded"):
        open_source(f"hf:{hub}")
    assert not (tmp_path / "ran").exists()


def test_the_column_of_the_label_can_be_said(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    both = part(6, "a").rename_column("label", "fine").add_column("coarse", [0, 1] * 3)
    both.cast_column("coarse", datasets.ClassLabel(names=["pet", "wild"])).to_parquet(hub / "train-0.parquet")
    with pytest.raises(UsageError, match="has the columns image, fine, note, coarse: which of them is the label"):
        open_source(f"hf:{hub}")
    assert open_source(f"hf:{hub}#coarse").load(8, "crop", 3).class_names == ("pet", "wild")
    with pytest.raises(UsageError, match="has no column 'other': it has image"):
        open_source(f"hf:{hub}#other")


def test_ten_numbers_are_digits_only_where_they_are_called_so(tmp_path: Path) -> None:
    pictures = [noise_image(str(row), (12, 12)) for row in range(10)]
    features = datasets.Features(image=datasets.Image(), label=datasets.Value("int64"))
    bare = datasets.Dataset.from_dict({"image": pictures, "label": list(range(10))}, features=features)
    bare.save_to_disk(tmp_path / "numbers")
    named = bare.cast_column("label", datasets.ClassLabel(names=list("0123456789")))
    named.save_to_disk(tmp_path / "digits")
    assert open_source(str(tmp_path / "numbers")).mirrors and not open_source(str(tmp_path / "digits")).mirrors


def test_images_without_labels_are_for_pretraining(tmp_path: Path) -> None:
    part(4, "a").remove_columns("label").save_to_disk(tmp_path / "bare")
    assert len(open_source(str(tmp_path / "bare"), labelled=False).load(8, "crop", 3)) == 4
    with pytest.raises((DataError, UsageError), match=r"which of them is the label|no column with labels"):
        open_source(str(tmp_path / "bare"))


def test_a_damaged_folder_is_told(saved: Path) -> None:
    for file in (saved / "train").glob("*.arrow"):
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read"):
        open_source(str(saved))


def test_the_package_is_named_where_it_is_missing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'smallvit\[hf\]'"):
        open_source(str(saved))
    with pytest.raises(UsageError, match=r"pip install 'smallvit\[hf\]'"):
        open_source("hf:uoft-cs/cifar10")
