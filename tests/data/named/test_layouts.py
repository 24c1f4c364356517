"""Every named set in miniature, as it is published; counts that are wrong, files that are damaged, sets that are not there."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from miniatures import BUILDERS, as_large_as, cifar_batches, pickled, python_2_pickle

from helpers import PROJECT, QUICK, ends_well, fails, run_here, truncate
from smallvit import Run
from smallvit.data.imageset import ImageSet
from smallvit.data.named.declared import named_sets
from smallvit.data.sources import Where, open_source
from smallvit.errors import DataError

Small = Callable[[str], Path]


def load(name: str, folder: Path, size: int = 8) -> ImageSet:
    return open_source(Where(name, str(folder))).load(size, "crop", 3)


def test_every_set_with_files_has_a_miniature() -> None:
    assert {name for name, known in named_sets().items() if known.layouts} == {*BUILDERS}


def test_the_page_has_every_set_with_its_counts() -> None:
    page = (PROJECT / "docs" / "datasets.md").read_text(encoding="utf-8")
    for name, known in named_sets().items():
        row = next(line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1])
        for part, count in known.images.items():
            assert f"{count:,} {part}".rstrip() in row
        assert f"| {known.classes:,} |" in row and known.size in row
        assert all(remote.digest.partition(":")[0] in row for remote in known.remotes)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_layout(name: str, small: Small) -> None:
    images = load(name, small(name))
    counts, classes, _ = BUILDERS[name]
    assert {part: len(rows) for part, rows in images.parts.items()} == counts
    assert len(images.labels_N.unique()) == classes
    assert len(images) == sum(counts.values()) == len({*images.files})
    assert images.source == name
    for rows in images.parts.values():
        assert len(images.labels_N[rows].unique()) == classes, "the miniatures have every class in every part"


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("pets", ("Abyssinian", "basset hound")),
        ("cub200", ("001.Black_footed_Albatross", "002.Laysan_Albatross")),
        ("aircraft", ("707-320", "Challenger 600")),
        ("cars", ("AM General Hummer SUV 2000", "Acura RL Sedan 2012")),
        ("domainnet-real", ("airplane", "zebra")),
        ("imagenet100", ("n01558993", "n02869837")),
        ("flowers102", ("pink primrose", "hard-leaved pocket orchid")),
    ],
)
def test_classes_are_called_and_ordered_as_published(name: str, classes: tuple[str, ...], small: Small) -> None:
    assert load(name, small(name)).class_names == classes


def test_pixels_and_labels_of_cifar(small: Small, tmp_path: Path) -> None:
    """Both forms hold the same; red, green and blue lie one after the other."""
    images = load("cifar10", small("cifar10"), 32)
    expected = np.concatenate([pixels for pixels, _ in cifar_batches(3).values()]).reshape(-1, 3, 32, 32)
    assert torch.equal(images.images_NCSS[torch.arange(180)], torch.from_numpy(expected))
    assert images.class_names[:3] == ("airplane", "automobile", "bird")
    assert images.labels_N[:12].tolist() == [*range(10), 0, 1]
    assert images.files[149:151] == ("cifar10:train[149]", "cifar10:test[0]")
    pickled(tmp_path / "other" / "cifar-10-batches-py", 3)
    assert load("cifar10", tmp_path / "other", 32).fingerprint == images.fingerprint
    assert load("cifar10", tmp_path / "other" / "cifar-10-batches-py", 32).fingerprint == images.fingerprint


def test_pickles_of_python_3_hold_the_same(tmp_path: Path) -> None:
    import pickle

    from smallvit.data.named.plain_pickle import read_plain

    array = np.arange(24, dtype=np.uint8).reshape(2, 12)
    for protocol in (3, 4, 5):
        (tmp_path / "file").write_bytes(
            pickle.dumps({b"data": array.copy(), b"labels": [3, 300]}, protocol=min(protocol, 4))
        )
        found = read_plain(tmp_path / "file")
        assert np.array_equal(found["data"], array) and found["labels"] == [3, 300]


def test_gem_takes_the_first_images_of_each_class(small: Small) -> None:
    images = load("cifar10-gem", small("cifar10-gem"), 32)
    batches = [*cifar_batches(11).values()][:5]
    pixels, labels = (np.concatenate([batch[axis] for batch in batches]) for axis in (0, 1))
    for klass in range(10):
        own = pixels[labels == klass].reshape(-1, 3, 32, 32)
        for part, start, end in (("train", 0, 30), ("val", 30, 50)):
            rows = images.parts[part][images.labels_N[images.parts[part]] == klass]
            assert torch.equal(images.images_NCSS[rows], torch.from_numpy(own[start:end].copy()))


def test_sin_10k_is_the_stated_rule(small: Small) -> None:
    images = load("sin10k", small("sin10k"))
    drawn = {images.files[row] for row in images.parts["train"].tolist()}

    def digest(name: str) -> bytes:
        klass = name.partition("_")[0]
        return hashlib.blake2b(f"sin10k/0/{klass}/{name}".encode(), digest_size=8).digest()

    for klass in ("n01440764", "n01443537"):
        names = sorted((f"{klass}_{n}.JPEG" for n in range(14)), key=digest)[:10]
        assert {f"train/{klass}/{name}" for name in names} <= drawn


def test_digits_of_svhn_are_not_mirrored_and_ten_is_zero(small: Small) -> None:
    folder = small("svhn")
    source = open_source(Where("svhn", str(folder)))
    assert not source.mirrors
    assert source.load(32, "crop", 3).labels_N[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


# ---- what is wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_a_missing_set_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    outcome = fails(run_here("train", name, "--data-dir", tmp_path), 1, f"{name} is not in {tmp_path}")
    known = named_sets()[name]
    assert f"Put there ({known.size})" in outcome.err
    assert all(needed in outcome.err for needed in known.layouts[0].needs)
    assert ("--download fetches it" in outcome.err) == bool(known.remotes)
    assert bool(known.remotes) != bool(known.origin), "what cannot be downloaded can be had somewhere"


@pytest.mark.parametrize("name", ["cifar100", "cub200"])
def test_wrong_counts_say_what_was_expected_and_found(name: str, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small(name)
    whole = as_large_as(name)
    monkeypatch.setitem(named_sets(), name, type(whole)(**{**vars(whole), "images": {"train": 5000, "test": 7}}))
    found = ", ".join(f"{count:,} {part}" for part, count in BUILDERS[name][0].items())
    with pytest.raises(
        DataError, match=rf"should hold 5,000 train, 7 test, .* found were {found}, . classes.*data\.incomplete"
    ):
        load(name, folder)
    images = open_source(Where(name, str(folder), incomplete=True)).load(8, "crop", 3)
    assert len(images) == sum(BUILDERS[name][0].values())


def test_listed_files_that_are_missing(small: Small) -> None:
    folder = small("dtd")
    gone = folder / "dtd" / "dtd" / "images" / "banded" / "banded_val_1.jpg"
    gone.unlink()
    fails(run_here("check", "dtd", "--data-dir", folder), 1, "found were 4 train, 3 val, 4 test")
    outcome = fails(run_here("train", "dtd", "--data-dir", folder), 1, "found were 4 train, 3 val, 4 test")
    assert f"1 listed files are missing, the first: {gone}" in outcome.err


def test_an_image_that_is_listed_twice(small: Small) -> None:
    folder = small("dtd")
    lists = folder / "dtd" / "dtd" / "labels"
    (lists / "val1.txt").write_text((lists / "val1.txt").read_text() + "banded/banded_train_1.jpg\n")
    with pytest.raises(DataError, match=r"banded_train_1\.jpg is listed twice \(in train and in val\)"):
        load("dtd", folder)


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("cifar10", "cifar-10-batches-bin/data_batch_3.bin", "no whole number of images"),
        ("cifair10-gem", "ciFAIR-10/data_batch_1", "is damaged"),
        ("svhn", "svhn/test_32x32.mat", "cannot read|has no y"),
        ("flowers102", "flowers-102/setid.mat", "cannot read"),
        ("cub200", "CUB_200_2011/train_test_split.txt", "fields instead of 2|no class or no part"),
        ("aircraft", "fgvc-aircraft-2013b/data/variants.txt", "is not in variants.txt"),
        ("domainnet-sketch", "DomainNet/sketch_train.txt", "fields instead of 2|is no image of sketch|should hold"),
    ],
)
def test_damaged_files_are_told(name: str, file: str, message: str, small: Small) -> None:
    folder = small(name)
    truncate(folder / file, 0.63)
    with pytest.raises(DataError, match=message):
        load(name, folder)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"cos\nsystem\n(S'touch owned'\ntR.", "it names os.system"),
        (b"\x80\x02cbuiltins\neval\nU\x01aR.", "it names builtins.eval"),
        (b"\x80\x02}(U\x04datacnumpy\nndarray\nK\x00\x85Ru.", "it calls something"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "it names os.system"),
        (b"(i__main__\nEvil\n.", "the instruction INST"),
        (b"\x80\x02]q\x00.", "a list instead of a dictionary"),
        (b"\x80\x02}", "is damaged"),
    ],
)  # fmt: skip
def test_a_pickle_that_is_more_than_data_is_refused(program: bytes, message: str, small: Small, tmp_path: Path) -> None:
    folder = small("cifair10-gem")
    (folder / "ciFAIR-10" / "data_batch_2").write_bytes(program)
    with pytest.raises(DataError, match=message):
        load("cifair10-gem", folder)
    assert not (tmp_path / "owned").exists() and not Path("owned").exists()


def test_labels_that_do_not_fit(small: Small) -> None:
    folder = small("cifair10-gem")
    (folder / "ciFAIR-10" / "data_batch_2").write_bytes(python_2_pickle(labels=[1], data=np.zeros((2, 3072), np.uint8)))
    with pytest.raises(DataError, match="its data do not fit its labels"):
        load("cifair10-gem", folder)


# ---- in use ------------------------------------------------------------------------------------------


def test_trained_resumed_and_evaluated_from_elsewhere(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data folder is stored whole; $SMALLVIT_DATA is asked where no --data-dir is given."""
    folder = small("cub200")
    monkeypatch.setenv("SMALLVIT_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    ends_well(run_here("train", "cub200", *QUICK, "--out", "run", "--img-size", "16"))
    monkeypatch.delenv("SMALLVIT_DATA")
    run = Run(tmp_path / "run")
    assert (run.recipe.data.source, run.recipe.data.dir) == ("cub200", str(folder))
    assert Counter({part: held["n"] for part, held in run.read("split.json")["parts"].items()}) == {"train": 4, "val": 0, "test": 4}  # fmt: skip
    ends_well(run_here("evaluate", "run"))
    ends_well(run_here("evaluate", "run", "--data", "cub200"))
    ends_well(run_here("predict", "run", folder / "CUB_200_2011" / "images"))
    assert "stale" not in ends_well(run_here("cache", "list")).out.partition("CUB_200_2011")[0].rpartition("\n")[2]
    (folder / "CUB_200_2011" / "images.txt").unlink()
    fails(run_here("evaluate", "run"), 1, "images.txt is missing")


def test_too_large_a_set_is_streamed(small: Small, tmp_path: Path) -> None:
    folder = small("imagenet")
    words = ("--data-dir", folder, *QUICK, "--img-size", "16", "--set", "data.cache_limit_gb=0")
    ends_well(run_here("train", "imagenet", *words, "--out", tmp_path / "run"))
    assert Run(tmp_path / "run").finished


def test_a_folder_of_that_name_counts_where_the_set_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers import make_folder

    monkeypatch.chdir(tmp_path)
    make_folder(Path("cars"), {"a": 2, "b": 3})
    assert len(open_source("cars").load(8, "crop", 3)) == 5
    with pytest.raises(DataError, match="cars is not in"):
        open_source(Where("cars", "elsewhere"))


def test_check_looks_at_the_files(small: Small) -> None:
    outcome = run_here("check", "pets", "--data-dir", small("pets"), "--fast", "--json")
    assert '"count": 8' in outcome.out, outcome.err
