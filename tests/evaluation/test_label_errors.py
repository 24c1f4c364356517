"""Planted wrong labels of real digits are found; the formula, by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from helpers import PROJECT
from smallvit.evaluation.label_errors import may_doubt, suspected_labels


def test_by_hand() -> None:
    probabilities = torch.tensor(
        [[0.9, 0.1, 0.0], [0.7, 0.2, 0.1], [0.2, 0.8, 0.0], [0.85, 0.15, 0.0], [0.6, 0.4, 0.0]]
    )
    labels = torch.tensor([0, 0, 1, 1, 1])  # thresholds: 0.8 and 0.45; no image is labelled 2
    places, said, margin = suspected_labels(probabilities, labels)
    assert places.tolist() == [3] and said.tolist() == [0]  # the last one is of class 0 with 0.6 only
    assert margin.tolist() == pytest.approx([0.7])


def test_the_surest_come_first() -> None:
    probabilities = torch.tensor([[0.95, 0.05], [0.9, 0.1], [0.99, 0.01], [0.05, 0.95], [0.02, 0.98]])
    places, said, _ = suspected_labels(probabilities, torch.tensor([0, 1, 1, 1, 1]))
    assert places.tolist() == [2] and said.tolist() == [0]
    assert suspected_labels(probabilities, torch.tensor([0, 0, 0, 1, 1])).places.tolist() == []


def test_planted_labels_of_real_digits_are_found() -> None:
    digits, draw = load_digits(), np.random.default_rng(0)
    labels = digits.target.copy()
    planted = draw.permutation(len(labels))[: len(labels) // 20]
    labels[planted] = (labels[planted] + draw.integers(1, 10, len(planted))) % 10
    model, folds = KNeighborsClassifier(20, weights="distance"), StratifiedKFold(5, shuffle=True, random_state=0)
    probabilities = cross_val_predict(model, digits.data, labels, cv=folds, method="predict_proba")
    found = suspected_labels(torch.from_numpy(probabilities), torch.from_numpy(labels)).places.numpy()
    hits = np.isin(found, planted)
    assert hits.mean() > 0.9 and hits.sum() / len(planted) > 0.75  # precision and recall
    assert hits[: len(planted) // 2].all()  # the surest half are all planted


def test_what_the_docs_say_is_what_was_measured() -> None:
    stored = json.loads((PROJECT / "docs" / "results" / "label-errors.json").read_text(encoding="utf-8"))
    page = (PROJECT / "docs" / "folds.md").read_text(encoding="utf-8")
    for key in ("precision", "recall"):
        assert f"{key} {100 * stored[key]:.0f} %" in page
    assert stored["precision"] == stored["found"] / stored["suspected"]


def test_one_answer_for_unbalanced_classes_doubts_nothing() -> None:
    assert may_doubt({"accuracy": 0.81, "balanced_accuracy": 0.82}) and may_doubt({"accuracy": 0.81})
    assert not may_doubt({"accuracy": 0.9, "balanced_accuracy": 0.5}), "it says that all are of the large class"
