from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smallvit.evaluation.metrics import Score, predict_logits, score, summary, worst_mistakes
from smallvit.evaluation.statistics import wilson
from smallvit.models.features import create_backbone
from smallvit.training.loop import Best

NAMES = ("cat", "dog", "emu")
# Six images: answers cat cat dog dog dog dog, the last two more and less sure.
LOGITS = torch.tensor([[3.0, 0, 0], [2.0, 0, 1], [0, 1.0, 0], [0, 4.0, 0], [0, 2.0, 1.5], [0.0, 5.0, 0]])
LABELS = torch.tensor([0, 1, 1, 1, 0, 0])


def test_summary_of_known_answers() -> None:
    found = summary(LOGITS, LABELS, NAMES)
    assert found["n"] == 6
    assert found["accuracy"] == 3 / 6
    assert found["interval"] == wilson(3, 6)
    assert found["confusion"] == [[1, 2, 0], [1, 2, 0], [0, 0, 0]]  # rows are the true classes
    assert [(row["name"], row["n"], row["accuracy"]) for row in found["per_class"]] == [
        ("cat", 3, 1 / 3),
        ("dog", 3, 2 / 3),
        ("emu", 0, None),  # no image of it: no accuracy, and no claim
    ]
    assert [row["interval"] for row in found["per_class"]] == [wilson(1, 3), wilson(2, 3), (0.0, 1.0)]
    assert found["balanced_accuracy"] == pytest.approx(0.5)
    assert found["loss"] == pytest.approx(float(F.cross_entropy(LOGITS, LABELS)))


def test_balanced_accuracy_counts_classes_not_images() -> None:
    logits = F.one_hot(torch.zeros(10, dtype=torch.int64), 2).float()  # always the first class
    found = summary(logits, torch.tensor([0] * 9 + [1]), ("common", "rare"))
    assert found["accuracy"] == 0.9
    assert found["balanced_accuracy"] == 0.5


def test_worst_mistakes_are_the_surest_wrong_answers() -> None:
    assert worst_mistakes(LOGITS, LABELS, 10).tolist() == [5, 1, 4]
    assert worst_mistakes(LOGITS, LABELS, 2).tolist() == [5, 1]
    assert worst_mistakes(LOGITS, LOGITS.argmax(1), 5).tolist() == []


def test_predictions_in_order_without_gradients_and_the_mode_put_back() -> None:
    backbone = create_backbone("resnet_nano", {}, num_classes=3, in_chans=1, img_size=8)
    nn.init.normal_(backbone.model.fc.weight)
    images, labels = torch.randn(7, 1, 8, 8), torch.arange(7) % 3
    statistics = {name: buffer.clone() for name, buffer in backbone.named_buffers()}
    for training in (True, False):
        backbone.train(training)
        logits, found = predict_logits(backbone, zip(images.split(3), labels.split(3), strict=True))
        assert backbone.training is training and backbone.model.bn1.training is training
        assert not logits.requires_grad
        assert torch.equal(found, labels)
        torch.testing.assert_close(logits, backbone.eval().model(images), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(buffer, statistics[name]) for name, buffer in backbone.named_buffers())


def test_the_mode_is_put_back_after_an_error() -> None:
    backbone = create_backbone("resnet_nano", {}, num_classes=3, in_chans=1, img_size=8).train()
    with pytest.raises(RuntimeError):
        predict_logits(backbone, [(torch.zeros(1, 2, 8, 8), torch.zeros(1))])
    assert backbone.training


def test_score() -> None:
    backbone = create_backbone("resnet_nano", {}, num_classes=3, in_chans=1, img_size=8)
    images, labels = torch.randn(7, 1, 8, 8), torch.arange(7) % 3
    logits, _ = predict_logits(backbone, [(images, labels)])
    found = score(backbone, zip(images.split(4), labels.split(4), strict=True))
    assert found.accuracy == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    assert found.loss == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)
    assert found.is_finite and not Score(0.9, math.nan).is_finite and not Score(0.9, math.inf).is_finite


def test_any_score_beats_none() -> None:
    assert Best()[:2] < (0.0, -1e30)
