"""Class weights: counted, or read from a file that must be right; and epochs that draw every class equally often."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from smallvit.data.loader import Loader, balanced_order
from smallvit.errors import UsageError
from smallvit.objectives.class_weights import inverse_frequency, read_weights
from smallvit.randomness import generator

NAMES = ("cat", "dog", "7")


def test_inverse_frequency_weighs_classes_alike_and_images_by_one() -> None:
    counts = [90, 9, 4]
    weights = inverse_frequency(counts)
    totals = [weight * count for weight, count in zip(weights, counts, strict=True)]
    assert totals == pytest.approx([103 / 3] * 3, rel=1e-5)
    assert sum(totals) / sum(counts) == pytest.approx(1, rel=1e-5)
    assert inverse_frequency([5, 0, 5]) == [1.0, 1.0, 1.0]
    assert inverse_frequency([0, 0]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("counts", "bounded"),
    [
        ([149, 1], [1]),  # 75 by frequency alone
        (
            [900, 60, 11, 1],
            [2, 3],
        ),  # the third is below the bound until the fourth is bounded, and they share what is left
        ([300, 0, 1, 2], [2, 3]),
    ],
)
def test_no_automatic_weight_is_above_ten_and_the_mean_stays_one(counts: list[int], bounded: list[int]) -> None:
    weights = inverse_frequency(counts)
    assert [klass for klass, weight in enumerate(weights) if weight == 10.0] == bounded and max(weights) == 10.0
    totals = [weight * count for weight, count in zip(weights, counts, strict=True)]
    assert sum(totals) / sum(counts) == pytest.approx(1, rel=1e-4)
    others = [total for klass, total in enumerate(totals) if counts[klass] and klass not in bounded]
    assert others == pytest.approx([others[0]] * len(others), rel=1e-4), "the others still weigh the same in total"


def test_both_kinds_of_file(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("\ufeffClass,Weight\ndog,2\n7,0.5\n\ncat,1e0\n", encoding="utf-8")
    (tmp_path / "w.json").write_text(json.dumps({"dog": 2, "7": 0.5, "cat": 1}))
    assert read_weights(tmp_path / "w.csv", NAMES) == read_weights(tmp_path / "w.json", NAMES) == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.csv", "class,weight\ncat,1\ndgo,1\n7,1", r"unknown class 'dgo': did you mean dog\?"),
        ("w.csv", "class,weight\ncat,1\n", "no weight for dog, 7: every class needs one"),
        ("w.csv", "class,weight\ncat,1\ncat,2\n", "'cat' is there twice"),
        ("w.csv", "class,weight\ncat,0\n", "'cat' is '0': should be a positive number"),
        ("w.csv", "class,weight\ncat,much\n", "should be a positive number"),
        ("w.csv", "class,weight\ncat\n", "line 2: should hold a class and its weight"),
        ("w.csv", "cat,1\ndog,1\n", "first line should be class,weight"),
        ("w.csv", "", "first line should be class,weight"),
        ("w.csv", "class,weight\ncat," + "1" * 140_000, "is not a CSV file of class,weight"),
        ("w.json", '{"cat": 1, "cat": 2}', "'cat' is there twice"),
        ("w.json", '{"cat": NaN}', "should be a positive number"),
        ("w.json", '{"cat": true}', "should be a positive number"),
        ("w.json", '{"cat": {"dog": 1}}', "should be a positive number"),
        ("w.json", "[1, 2, 3]", "should hold one object"),
        ("w.json", "{", "not valid JSON"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        read_weights(tmp_path / name, NAMES)


def test_a_file_that_cannot_be_read_names_the_choices(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file.*choices: none, auto"):
        read_weights(tmp_path / "atuo", NAMES)
    (tmp_path / "w.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_weights(tmp_path / "w.csv", NAMES)


def test_a_balanced_order_draws_classes_evenly_and_images_of_a_class_in_turn() -> None:
    labels = torch.tensor([0] * 70 + [1] * 27 + [3] * 3)[torch.randperm(100, generator=generator(0, "test"))]
    order = balanced_order(labels, generator(0, "order", 5))
    assert len(order) == 100
    assert sorted(torch.bincount(labels[order]).tolist()) == [0, 33, 33, 34]
    times = torch.bincount(order, minlength=100)
    assert set(times[labels == 3].tolist()) <= {11, 12}
    assert set(times[labels == 1].tolist()) == {1, 2}
    assert times[labels == 0].max() == 1
    assert torch.equal(order, balanced_order(labels, generator(0, "order", 5)))
    assert not torch.equal(order, balanced_order(labels, generator(0, "order", 6)))
    assert labels[order][:20].unique().numel() == 3  # shuffled, not class after class


def test_more_classes_than_an_epoch_has_images_of_each() -> None:
    labels = torch.arange(7)
    assert sorted(balanced_order(labels, generator(0, "order", 0)).tolist()) == list(range(7))


def test_the_order_of_an_epoch_does_not_depend_on_those_before_it() -> None:
    images = SimpleNamespace(labels_N=torch.tensor([0] * 30 + [1] * 10), device=torch.device("cpu"))
    rows = torch.arange(5, 40)

    def loader() -> Loader:
        return Loader(images, rows, lambda epoch: (), 4, 0, balanced=True)  # type: ignore[arg-type]

    gone_through, resumed = loader(), loader()
    orders = [gone_through.order(epoch) for epoch in range(4)]
    assert torch.equal(resumed.order(3), orders[3])
    assert not torch.equal(orders[0], orders[1])
    assert len(gone_through) == len(Loader(images, rows, lambda epoch: (), 4, 0))  # type: ignore[arg-type]
    assert all(set(order.tolist()) <= set(rows.tolist()) for order in orders)
