from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from smallvit.data.sources import open_source
from smallvit.data.split import make_split
from smallvit.evaluation.floors import pixel_floors
from smallvit.evaluation.metrics import predict_logits, summary, worst_mistakes
from smallvit.evaluation.statistics import mean_interval, wilson
from smallvit.models.features import create_backbone
from smallvit.recipe import DataSpec


@pytest.mark.parametrize(("correct", "n"), [(0, 10), (5, 10), (10, 10), (93, 100), (1, 3)])
def test_wilson_equals_scipy(correct: int, n: int) -> None:
    expected = stats.binomtest(correct, n).proportion_ci(method="wilson")
    assert wilson(correct, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_mean_interval_equals_scipy() -> None:
    values = [0.81, 0.84, 0.79, 0.86]
    low, high = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    assert mean_interval(values) == pytest.approx((sum(values) / 4, low, high))
    assert math.isnan(mean_interval([0.5])[1])


def test_summary_of_hand_made_answers() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    answers = torch.tensor([0, 0, 1, 1, 1, 0])
    logits = torch.nn.functional.one_hot(answers, 4).float() * 5
    found = summary(logits, labels, ("a", "b", "c", "never"))
    assert found["n"] == 6
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["confusion"] == [[2, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert found["balanced_accuracy"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert [row["accuracy"] for row in found["per_class"]] == [pytest.approx(2 / 3), 1.0, 0.0, None]


def test_worst_mistakes_come_first() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.0, 2.0], [5.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([0, 0, 1, 0])
    assert worst_mistakes(logits, labels, most=2).tolist() == [2, 1]
    assert worst_mistakes(logits, logits.argmax(1), most=2).tolist() == []


def test_prediction_leaves_the_models_mode() -> None:
    backbone = create_backbone("resnet_nano", {}, num_classes=3, in_chans=1, img_size=8)
    backbone.train()
    before = backbone.model.bn1.running_mean.clone()
    logits, labels = predict_logits(backbone, [(torch.randn(4, 1, 8, 8), torch.arange(4) % 3)] * 2)
    assert logits.shape == (8, 3)
    assert labels.tolist() == [0, 1, 2, 0] * 2
    assert backbone.training
    assert torch.equal(before, backbone.model.bn1.running_mean)


def test_floors_are_what_scikit_learn_gives() -> None:
    images = open_source("digits").load(8, "crop", 1)
    split = make_split(images, DataSpec(source="digits", per_class=20))
    floors = pixel_floors(images.images_NCSS, images.labels_N, split.train, split.test)
    x = (images.images_NCSS.float() / 127.5 - 1).flatten(1).numpy()
    y = images.labels_N.numpy()
    train, test = split.train.numpy(), split.test.numpy()
    knn = KNeighborsClassifier(5, weights="distance").fit(x[train], y[train]).score(x[test], y[test])
    logistic = LogisticRegression(C=0.1, max_iter=100).fit(x[train], y[train]).score(x[test], y[test])
    assert floors["knn"]["accuracy"] == pytest.approx(knn)
    assert floors["logistic"]["accuracy"] == pytest.approx(logistic)
    assert floors["majority"]["accuracy"] < 0.15 < floors["knn"]["accuracy"]
