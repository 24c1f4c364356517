"""The floors' classifiers give scikit-learn's answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from smallvit.evaluation import simple
from smallvit.evaluation.simple import logistic_answers, neighbours_answers

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(300, 12)).astype(np.float32)
LABELS = np.array([2, 5, 7])[X[:, :3].argmax(1)]  # classes need not be numbered without gaps
X += 0.5 * DRAW.normal(size=X.shape).astype(np.float32)
KNOWN, ASKED = slice(0, 200), slice(200, 300)


def given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.from_numpy(X[KNOWN]), torch.from_numpy(LABELS[KNOWN]), torch.from_numpy(X[ASKED])


@pytest.mark.parametrize("k", [1, 5, 200])
@pytest.mark.parametrize("numbers", [2**24, 2400])  # all at once, and one or two rows at a time
def test_neighbours_vote_as_in_scikit_learn(k: int, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simple, "rows_at_once", lambda size: max(1, numbers // size))
    x, labels, asked = given()
    asked = torch.cat([asked, x[:20]])  # and some that are known: nothing but these counts
    theirs = KNeighborsClassifier(k, weights="distance").fit(x.numpy(), labels.numpy()).predict(asked.numpy())
    assert neighbours_answers(x, labels, asked, k).tolist() == theirs.tolist()


@pytest.mark.parametrize("strength", [0.01, 0.1, 10.0])
def test_regression_ends_where_that_of_scikit_learn_does(strength: float) -> None:
    x, labels, asked = given()
    theirs = LogisticRegression(C=strength, max_iter=500).fit(x.numpy(), labels.numpy()).predict(asked.numpy())
    ours = logistic_answers(x, labels, asked, strength, 500).numpy()
    assert (ours == theirs).mean() >= 0.99
    assert (ours == LABELS[ASKED]).mean() > 0.5
    assert (logistic_answers(x, labels, asked, strength, 1).numpy() != theirs).any(), "rounds count"
