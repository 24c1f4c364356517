"""Folds leave out every image once; groups are never torn apart; without either, splits are as they were."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.model_selection import StratifiedGroupKFold

from helpers import make_folder
from smallvit.data import groups as groups_module
from smallvit.data.dealing import deal_groups, deal_images
from smallvit.data.groups import with_groups
from smallvit.data.imageset import ImageSet
from smallvit.data.sources import open_source
from smallvit.data.split import Split, make_split, possible_folds
from smallvit.errors import DataError, UsageError
from smallvit.planning.elsewhere import at_fold, at_share
from smallvit.planning.flags import make_recipe
from smallvit.planning.plan import make_plan
from smallvit.recipe import DataSpec, build_recipe


def image_set(labels: list[int], groups: list[str] | None = None, **parts: Any) -> ImageSet:
    return ImageSet(
        images_NCSS=torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8),
        labels_N=torch.tensor(labels),
        class_names=tuple("abcdefghij"[: max(labels) + 1]),
        parts={name: torch.tensor(rows) for name, rows in parts.items()},
        files=tuple(f"{number}.png" for number in range(len(labels))),
        source="photos",
        fingerprint="",
        groups=tuple(groups or ()),
    )


def folds_of(images: ImageSet, folds: int, **spec: Any) -> list[Split]:
    return [make_split(images, DataSpec(folds=folds, fold=fold, **spec)) for fold in range(folds)]


def patients(n: int = 300, classes: int = 3, seed: int = 0) -> ImageSet:
    """Groups of very different sizes, some of them with images of several classes."""
    draw = np.random.default_rng(seed)
    sizes = draw.geometric(0.15, n)
    group = np.repeat(np.arange(n), sizes)[:n]
    labels = (group + (draw.random(n) < 0.2)) % classes
    order = draw.permutation(n)
    return image_set(labels[order].tolist(), [f"p{number}" for number in group[order]])


# ---- folds -------------------------------------------------------------------------------------------


def test_every_image_is_left_out_once_and_classes_are_even() -> None:
    images = image_set([0] * 53 + [1] * 31 + [2] * 11)
    found = folds_of(images, 5)
    assert sorted(torch.cat([fold.left_out for fold in found]).tolist()) == list(range(95))
    for fold in found:
        assert sorted([*fold.left_out.tolist(), *fold.train.tolist()]) == list(range(95)) and not len(fold.test)
        assert len(fold.left_out) == 19
        counts = torch.bincount(images.labels_N[fold.left_out], minlength=3).tolist()
        assert counts[0] in (10, 11) and counts[1] in (6, 7) and counts[2] in (2, 3)
    assert list(found[0].judged) == ["left_out"] and found[0].how["left_out"] == "fold 0 of 5, stratified, seed 0"
    assert not torch.equal(found[0].left_out, folds_of(images, 5, split_seed=1)[0].left_out)


def test_a_test_part_stays_and_a_validation_part_is_cut_from_what_is_left() -> None:
    images = image_set([0, 1] * 60, train=list(range(100)), test=list(range(100, 120)))
    for fold in folds_of(images, 4, val=0.2, per_class=10):
        assert fold.test.tolist() == list(range(100, 120)) and len(fold.left_out) == 25
        held = [set(rows.tolist()) for rows in fold.parts.values()]
        assert not any(one & other for one in held for other in held if one is not other)
        assert len(fold.val) == 15 and len(fold.train) == 20 and list(fold.judged) == ["left_out", "test", "val"]
    assert len(make_split(image_set([0, 1] * 50), DataSpec(folds=5, fold=0, test=0.2)).test) == 20


@pytest.mark.parametrize(("images", "folds", "message"), [
    (image_set([0] * 9 + [1] * 3), 5, r"--folds 5: class 'b' of photos has 3 images, .*: give --folds 3, add images"),
    (image_set([0] * 9 + [1]), 2, "class 'b' of photos has 1 image, .*class: add images, or leave the class out"),
    (image_set([0, 1] * 6, ["x", "y", "z"] * 4), 4, "--folds 4: photos has 3 groups, .*: give --folds 3"),
])  # fmt: skip
def test_folds_that_cannot_be(images: ImageSet, folds: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_split(images, DataSpec(folds=folds, fold=0))


def test_folds_in_a_recipe() -> None:
    for settings, message in (
        ({"data.folds": 1}, "data.folds = 1: should be at least 2"),
        ({"data.folds": 3, "data.fold": 3}, "data.fold = 3: there are 3 folds"),
        ({"data.fold": 0}, "data.fold = 0: there are 0 folds"),
    ):
        with pytest.raises(UsageError, match=message):
            build_recipe(overrides=settings)


# ---- whole groups ------------------------------------------------------------------------------------


def torn(images: ImageSet, *parts: torch.Tensor) -> set[str]:
    held = [{images.groups[row] for row in rows.tolist()} for rows in parts]
    return {group for one in held for other in held if one is not other for group in one & other}


@pytest.mark.parametrize("seed", range(4))
def test_no_part_tears_a_group_apart(seed: int) -> None:
    images = patients(seed=seed)
    found = make_split(images, DataSpec(test=0.2, val=0.15))
    assert torn(images, found.train, found.val, found.test) == set()
    assert sorted(torch.cat(found[:3]).tolist()) == list(range(300))
    for part, share in ((found.test, 0.2), (found.val, 0.8 * 0.15)):
        counts = torch.bincount(images.labels_N[part], minlength=3) / torch.bincount(images.labels_N)
        assert counts.sub(share).abs().max() < 0.08
    for fold in folds_of(images, 5, val=0.2):
        assert torn(images, fold.train, fold.val, fold.left_out) == set()


def test_groups_are_dealt_as_evenly_as_scikit_learn_does() -> None:
    def unevenness(labels: np.ndarray, part_R: np.ndarray) -> float:
        shares = np.stack([np.bincount(labels[part_R == part], minlength=3) for part in range(5)]) / np.bincount(labels)
        return float(np.square(shares - 0.2).sum())

    ours, theirs = 0.0, 0.0
    for seed in range(6):
        images = patients(seed=seed)
        labels, names = images.labels_N.numpy(), np.array(images.groups)
        dealt = deal_groups(images.labels_N, images.groups, [0.2] * 5, seed, "fold").numpy()
        ours += unevenness(labels, dealt)
        reference = np.zeros(len(labels))
        split = StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(labels, labels, names)
        for fold, (_, rows) in enumerate(split):
            reference[rows] = fold
        theirs += unevenness(labels, reference)
    assert ours < theirs


def test_a_class_that_large_groups_would_keep_out_of_a_part_gets_its_smallest() -> None:
    images = image_set([0] * 20 + [1] * 12, [*map(str, range(20)), *["big"] * 6, *["medium"] * 5, "small"])
    found = make_split(images, DataSpec(test=0.1))
    assert {images.groups[row] for row in found.test.tolist() if images.labels_N[row] == 1} == {"small"}


def test_as_many_folds_as_groups() -> None:
    images = image_set([0, 0, 0, 0, 1, 1, 1, 1], ["a", "a", "b", "b", "c", "c", "d", "d"])
    assert [len(fold.left_out) for fold in folds_of(images, 4)] == [2, 2, 2, 2]


def test_a_class_in_one_group_cannot_be_divided() -> None:
    images = image_set([0, 0, 1, 1], ["x", "y", "z", "z"])
    for spec, fix in ((DataSpec(test=0.5), "give --test none"), (DataSpec(folds=2, fold=0), "leave the class out")):
        with pytest.raises(DataError, match=f"all images of class 'b' are in one group.*{fix}"):
            make_split(images, spec)


def test_without_groups_nothing_changes() -> None:
    images = image_set([0] * 40 + [1] * 25)
    alone = replace(images, groups=tuple(images.files))
    assert make_split(images, DataSpec(val=0.15)).how["test"] == "20 % of each class, seed 0"
    assert make_split(alone, DataSpec(val=0.15)).how["test"].startswith("13 of 65 groups")
    assert deal_images(images.labels_N, 5, 0, "fold").bincount().tolist() == [13] * 5


# ---- where groups come from --------------------------------------------------------------------------


def test_a_column_of_a_table(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 6})
    lines = [f"a/{n:03d}.png,{'xy'[n % 2]},{group}" for n, group in enumerate(["p1", "p1", "", "", "p2", "p2"])]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["path,label,group", *lines]))
    images = open_source(str(table)).load(12, "crop", 3)
    assert images.groups[:2] == ("p1", "p1") and images.groups[4:] == ("p2", "p2")
    choices = {
        one.key: one.why
        for one in make_plan(make_recipe(data=table, model="vit_pico", epochs=1), with_floors=False).choices
    }
    assert choices["data.test"] == "a share of the 4 groups, each of them whole"
    assert len(set(images.groups)) == 4  # an empty field: a group of its own
    with pytest.raises(UsageError, match="has a column group already"):
        with_groups(images, "a")
    table.write_text("\n".join(["path,label,group", *lines, "a/000.png,x,p9"]))
    with pytest.raises(DataError, match=r"000\.png has the group 'p1' in line 2 and 'p9' in line 8"):
        open_source(str(table))


def test_an_expression_over_paths() -> None:
    images = replace(image_set([0, 0, 1, 1]), files=("cat/p1_a.png", "cat/p1_b.png", "dog/p2_a.png", "dog/x.png"))
    message = (
        r"--groups p\(\\d\): 1 of 4 files without a match, as dog/x.png; .*: --groups '\.\*\?\(\?:p\(\\d\)\)\|\.\+'"
    )
    with pytest.raises(UsageError, match=message):
        with_groups(images, r"p(\d)")
    assert with_groups(images, r".*?(?:p(\d))|.+").groups == ("1", "1", "2", "dog/x.png")
    with pytest.raises(
        UsageError, match=r": --groups '\.\*\?\(p\\d\)\|\.\+'"
    ):  # its group is the match, not what is before it
        with_groups(images, r"p\d")
    assert with_groups(images, r".*?(p\d)|.+").groups == ("p1", "p1", "p2", "dog/x.png")
    with pytest.raises(UsageError, match=r": --groups '\(\?i\)\.\*\?\(\?:P\(\\d\)\)\|\.\+'"):  # a flag stays in front
        with_groups(images, r"(?i)P(\d)")
    assert with_groups(images, r"(?i).*?(?:P(\d))|.+").groups == ("1", "1", "2", "dog/x.png")
    assert with_groups(images, "^cat|^dog").groups == ("cat", "cat", "dog", "dog")  # no bracket: all that it finds
    assert with_groups(images, "") is images


def test_expressions_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for pattern, message in (("(", "is no regular expression"), ("(a)(b)", r"has 2 pairs of brackets.*\(\?:")):
        with pytest.raises(UsageError, match=f"data.groups = .*{message}"):
            build_recipe(overrides={"data.groups": pattern})
    monkeypatch.setattr(groups_module, "SECONDS", 0.5)
    images = replace(image_set([0, 1]), files=("a" * 60 + "b", "a"))
    started = time.monotonic()
    with pytest.raises(UsageError, match=r"\(a\+\)\+\$: still not done with 2 names"):
        with_groups(images, r"(a+)+$")
    assert time.monotonic() - started < 10


def test_how_many_folds_there_can_be() -> None:
    def possible(images: ImageSet) -> int:
        return possible_folds(images, make_split(images, DataSpec(val="none", test="none")))

    assert possible(image_set([0] * 50 + [1] * 50)) == 5
    assert possible(image_set([0] * 50 + [1] * 3)) == 3 and possible(image_set([0] * 50 + [1])) == 0
    groups = [f"p{number // 10}" for number in range(40)]
    assert possible(image_set([0] * 20 + [1] * 20, groups)) == 4, "each stays whole"
    assert possible(image_set([0] * 30 + [1] * 10, groups)) == 0, "a class of one group cannot be divided"


def test_many_classes_of_two_groups_are_dealt_at_once() -> None:
    labels, groups = [k // 4 for k in range(4 * 3000)], [f"{k // 2}" for k in range(4 * 3000)]
    part_R = deal_groups(torch.tensor(labels), groups, (0.2, 0.8), 0, "test")
    held = torch.tensor(labels)[part_R == 0].unique()
    assert len(held) == 3000 and len(torch.tensor(labels)[part_R == 1].unique()) == 3000


def test_a_fold_of_few_images_has_a_batch_that_fits(tmp_path: Path) -> None:
    groups = ["a"] * 10 + ["b"] * 9 + ["c"] * 9
    data = image_set([k % 2 for k in range(28)], groups)
    rows = [(f"{k}.png", "ab"[data.labels_N[k]], groups[k]) for k in range(28)]
    for path, *_ in rows:
        Image.new("RGB", (8, 8), (int(path.split(".")[0]) * 9, 0, 0)).save(tmp_path / path)
    table = tmp_path / "t.csv"
    table.write_text("path,label,group\n" + "".join(f"{','.join(row)}\n" for row in rows))
    asked = make_recipe(
        data=table, model="vit_pico", epochs=1, batch_size=16, threads=1, settings={"data.folds": 2, "data.fold": 0}
    )
    plan = make_plan(asked, with_floors=False)
    sizes = []
    for fold in range(2):
        own = at_fold(plan, fold) if fold else plan
        assert own.recipe.batch_size <= len(own.split.train)
        sizes.append(len(own.split.train))
    assert min(sizes) < 16, "the case that it is about"


def test_a_share_that_is_seen_often_is_changed_strongly(tmp_path: Path) -> None:
    """Ten times the epochs for a tenth of the images: what follows from their number follows anew."""
    folder = make_folder(tmp_path, {"a": 40, "b": 40})
    settings = {"data.test": "none", "data.val": "none"}
    asked = make_recipe(data=folder, model="conv_nano", epochs=30, batch_size=8, threads=1, settings=settings)
    plan = make_plan(asked, with_floors=False)
    share = at_share(plan, 0.1, 0)
    assert plan.recipe.augment.trivial is False and share.recipe.epochs > 100 and share.recipe.augment.trivial is True


def test_a_share_is_looked_at_as_often_as_all_images(tmp_path: Path) -> None:
    """A budget may have left time for one look alone: then no share of the images has forty."""
    asked = make_recipe(
        data=make_folder(tmp_path, {"a": 40, "b": 40}), model="conv_nano", epochs=30, batch_size=8, threads=1
    )
    plan = make_plan(asked, with_floors=False)
    spared = plan._replace(recipe=plan.recipe.model_copy(update={"eval_every": 30}))
    share = at_share(spared, 0.25, 0)
    assert share.recipe.epochs > 60 and share.recipe.eval_every == share.recipe.epochs
    given = spared._replace(asked=asked.model_copy(update={"eval_every": 30}))
    assert at_share(given, 0.25, 0).recipe.eval_every == 30
