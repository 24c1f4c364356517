from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from smallvit.data.sources import open_source
from smallvit.data.split import make_split
from smallvit.evaluation.floors import MOST_TRAINING, MOST_VALUES, beside, pixel_floors, pixel_side, rounds_for
from smallvit.evaluation.statistics import wilson
from smallvit.recipe import DataSpec


def test_floors_of_the_digits_are_those_of_scikit_learn() -> None:
    images = open_source("digits").load(8, "crop", 1)
    split = make_split(images, DataSpec(source="digits", per_class=30))
    floors = pixel_floors(images.images_NCSS, images.labels_N, split.train, split.test)
    x, y = images.images_NCSS.flatten(1).numpy().astype(np.float32) / 127.5 - 1, images.labels_N.numpy()
    train, test = split.train.numpy(), split.test.numpy()
    for name, model, within in [
        ("knn", KNeighborsClassifier(5, weights="distance"), 1e-9),
        ("logistic", LogisticRegression(C=0.1, max_iter=100), 2.5 / len(test)),  # both stop a little before the minimum
    ]:
        hits = model.fit(x[train], y[train]).predict(x[test]) == y[test]
        assert floors[name]["accuracy"] == pytest.approx(hits.mean(), abs=within)
        assert floors[name]["interval"] == wilson(round(floors[name]["accuracy"] * len(test)), len(test))
        assert floors[name]["accuracy"] > 0.8 > floors["majority"]["accuracy"]
    assert all(floor["label"] and floor["why"] for floor in floors.values())


def test_majority_is_that_of_the_training_part() -> None:
    images = torch.randint(0, 256, (40, 1, 4, 4), generator=torch.Generator().manual_seed(0)).byte()
    labels = torch.tensor([0] * 15 + [1] * 5 + [1] * 16 + [0] * 4)
    floors = pixel_floors(images, labels, torch.arange(20), torch.arange(20, 40))
    assert floors["majority"]["accuracy"] == 4 / 20  # class 0, though the test part has more of class 1
    assert floors["majority"]["balanced_accuracy"] == 0.5  # all of one class, none of the other


def test_tiny_training_parts() -> None:
    images = torch.stack([torch.full((1, 4, 4), 200 * (row % 2), dtype=torch.uint8) for row in range(8)])
    floors = pixel_floors(images, torch.arange(8) % 2, torch.arange(2), torch.arange(2, 8))
    assert floors["knn"]["why"].startswith("k = 2")
    assert floors["logistic"]["accuracy"] == 1.0


def test_large_sets_are_thinned_without_losing_classes_that_take_turns() -> None:
    n = 2 * MOST_TRAINING
    labels = torch.arange(n) % 2
    images = (labels * 200).byte()[:, None, None, None].expand(n, 1, 2, 2).contiguous()
    floors = pixel_floors(images, labels, torch.arange(n), torch.arange(100))
    assert f"{MOST_TRAINING:,} of {n:,} images" in floors["knn"]["why"]
    assert floors["knn"]["accuracy"] == floors["logistic"]["accuracy"] == 1.0


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 28, 64, 224])
def test_pixels_are_few(channels: int, side: int) -> None:
    small = pixel_side(channels, side)
    assert small <= side and channels * small**2 <= MOST_VALUES
    assert small == side or channels * (small + 1) ** 2 > MOST_VALUES


def test_large_images_are_made_small_first() -> None:
    """A bright half stays a bright half at a fraction of the pixels."""
    draw = np.random.default_rng(0)
    images = torch.from_numpy(draw.integers(0, 60, (60, 3, 64, 64), dtype=np.uint8))
    labels = torch.arange(60) % 2
    images[labels == 1, :, :32] += 60
    floors = pixel_floors(images, labels, torch.arange(40), torch.arange(40, 60))
    assert "16 x 16 pixels" in floors["knn"]["why"]
    assert floors["knn"]["accuracy"] == floors["logistic"]["accuracy"] == 1.0


def test_of_equally_frequent_classes_the_best_counts() -> None:
    """As after --per-class: the first of them by name may be the rarest of the test part."""
    labels = torch.tensor([0] * 10 + [1] * 10 + [0] * 2 + [1] * 8)
    images = torch.randint(0, 255, (30, 1, 8, 8), dtype=torch.uint8)
    floors = pixel_floors(images, labels, torch.arange(20), torch.arange(20, 30))
    assert floors["majority"]["accuracy"] == 0.8


def test_floors_are_paired_with_a_model_image_by_image() -> None:
    hits, right = np.array([1, 1, 0, 0, 1], dtype=bool), np.array([1, 0, 1, 1, 1], dtype=bool)
    entry = {"label": "k-NN on pixels", "accuracy": 0.6, "interval": (0.2, 0.9), "why": "", "n": 5}
    floors = {"knn": entry | {"right": np.packbits(hits).tobytes().hex()}}
    assert beside(floors, right)["knn"] == entry | {"only_model": 2, "only_floor": 1}
    assert "only_model" not in beside({"knn": entry}, np.zeros(3, dtype=bool))["knn"]  # judged on others


@pytest.mark.filterwarnings("error")
def test_thousands_of_classes_get_fewer_rounds() -> None:
    assert [rounds_for(classes) for classes in (2, 200, 400, 1000, 10**6)] == [100, 100, 50, 20, 10]
    classes, draw = 1500, torch.Generator().manual_seed(0)
    labels = torch.arange(2 * classes) % classes
    images = torch.randint(0, 256, (2 * classes, 1, 2, 2), generator=draw).byte()
    floors = pixel_floors(images, labels, torch.arange(classes), torch.arange(classes, classes + 20))
    assert floors["logistic"]["why"].endswith(", 13 rounds") and "rounds" not in floors["knn"]["why"]
