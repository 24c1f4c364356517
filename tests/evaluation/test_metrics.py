from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from smallvit.evaluation.metrics import Score, score, summary, worst_mistakes
from smallvit.evaluation.statistics import wilson
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


def test_score() -> None:
    found = score(LOGITS, LABELS)
    assert found.accuracy == pytest.approx(float((LOGITS.argmax(1) == LABELS).double().mean()))
    assert found.loss == pytest.approx(float(F.cross_entropy(LOGITS, LABELS)), rel=1e-5)
    assert found.is_finite and not Score(0.9, math.nan).is_finite and not Score(0.9, math.inf).is_finite


def test_any_score_beats_none() -> None:
    assert Best()[:2] < (0.0, -1e30)
