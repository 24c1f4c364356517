"""Balanced accuracy, macro F1 and AUROC: against scikit-learn, a bootstrap, and how often their intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from smallvit.evaluation.classes import MEASURES
from smallvit.evaluation.measures import measured_interval, measures, paired_interval
from smallvit.evaluation.metrics import summary
from smallvit.evaluation.statistics import wilson

Answers = tuple[np.ndarray, np.ndarray]


def answers(counts: list[int], lead: float, draw: np.random.Generator) -> Answers:
    """Probabilities of a made-up model and the labels: `lead` is how much the true class is above the others."""
    labels = np.repeat(np.arange(len(counts)), counts)
    logits = draw.normal(size=(len(labels), len(counts)))
    logits[np.arange(len(labels)), labels] += lead
    raised = np.exp(logits)
    return (raised / raised.sum(1, keepdims=True)).astype(np.float32), labels


def given(correct: list[int], n: list[int]) -> Answers:
    """So many right of each class; what is wrong names another one."""
    labels = np.repeat(np.arange(len(n)), n)
    right = np.concatenate([np.arange(of) < count for count, of in zip(correct, n, strict=True)])
    return np.eye(max(2, len(n)), dtype=np.float32)[np.where(right, labels, (labels + 1) % max(2, len(n)))], labels


def balanced_interval(correct: list[int], n: list[int]) -> tuple[float, float]:
    probabilities, labels = given(correct, n)
    return measured_interval(measures(probabilities, labels)["balanced_accuracy"], labels)


def test_they_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    probabilities, labels = answers([80, 30, 11, 4], 1.2, draw)
    probabilities[:40] = probabilities[0]  # ties
    found, said = measures(probabilities, labels), probabilities.argmax(1)
    assert found["balanced_accuracy"].value == pytest.approx(balanced_accuracy_score(labels, said))
    assert found["macro_f1"].value == pytest.approx(f1_score(labels, said, average="macro"))
    of_class = [roc_auc_score(labels == klass, probabilities[:, klass]) for klass in range(4)]
    assert found["auroc"].value == pytest.approx(np.mean(of_class))
    assert found["auroc"].of_class_K == pytest.approx(of_class)


@pytest.mark.parametrize(("classes", "images"), [(2, 2), (3, 20), (7, 13), (10, 30)])
def test_a_model_with_one_answer_for_all_images_is_judged_like_any_other(classes: int, images: int) -> None:
    labels = torch.arange(classes * images) % classes
    found = summary(torch.zeros(len(labels), classes), labels, tuple(map(str, range(classes))))
    assert found["auroc"] == pytest.approx(0.5)
    low, high = found[MEASURES["auroc"].interval]
    assert 0 <= low <= 0.5 <= high <= 1


def test_classes_without_images_are_left_out() -> None:
    draw = np.random.default_rng(1)
    probabilities, labels = answers([30, 20, 10], 1.0, draw)
    found = measures(probabilities[labels < 2], labels[labels < 2])
    said = probabilities[labels < 2].argmax(1)
    assert found["macro_f1"].value == pytest.approx(
        f1_score(labels[labels < 2], said, labels=[0, 1], average="macro")
    ), "an answer that names the class without images still costs the true one"
    assert "auroc" not in measures(probabilities[labels == 0], labels[labels == 0])


def test_they_vary_as_a_stratified_bootstrap_does() -> None:
    draw = np.random.default_rng(2)
    probabilities, labels = answers([150, 60, 40], 1.5, draw)
    found = measures(probabilities, labels)
    own = [np.flatnonzero(labels == klass) for klass in range(3)]
    drawn: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(300):
        rows = np.concatenate([draw.choice(of_class, len(of_class)) for of_class in own])
        for name, measured in measures(probabilities[rows], labels[rows]).items():
            drawn[name].append(measured.value)
    for name, measured in found.items():
        low, high = measured_interval(measured, labels)
        assert (high - low) / (2 * 1.96) == pytest.approx(np.std(drawn[name]), rel=0.2), name


def test_a_single_class_has_wilsons_interval() -> None:
    assert balanced_interval([27], [30]) == pytest.approx(wilson(27, 30))
    assert balanced_interval([27, 0], [30, 0]) == pytest.approx(wilson(27, 30))
    low, high = balanced_interval([5, 50], [5, 50])
    assert low < 0.97 and high == 1.0, "all right is not certain"


@pytest.mark.parametrize(
    ("n", "share"),
    [([5, 8, 20, 80, 300], [0.6, 0.9, 0.8, 0.99, 0.85]), ([10] * 102, [0.97] * 102), ([4, 50, 200], [0.5, 0.9, 0.99])],
)
def test_the_interval_of_balanced_accuracy_holds_the_truth(n: list[int], share: list[float]) -> None:
    draws = np.random.default_rng(0).binomial(n, share, (500, len(n)))
    pairs = [balanced_interval(correct.tolist(), n) for correct in draws]
    assert 0.9 <= np.mean([low <= np.mean(share) <= high for low, high in pairs]) <= 0.985


@pytest.mark.parametrize(("counts", "lead"), [([60, 30, 10], 1.5), ([20, 20], 3.0), ([100, 100], 0.5)])
def test_the_intervals_hold_the_truth(counts: list[int], lead: float) -> None:
    draw = np.random.default_rng(3)
    truth = {name: m.value for name, m in measures(*answers([300 * n for n in counts], lead, draw)).items()}
    held: dict[str, list[bool]] = {name: [] for name in truth}
    for _ in range(300):
        probabilities, labels = answers(counts, lead, draw)
        for name, measured in measures(probabilities, labels).items():
            low, high = measured_interval(measured, labels)
            held[name].append(low <= truth[name] <= high)
    for name, hits in held.items():
        assert np.mean(hits) >= 0.91, name


def test_images_that_share_a_model_widen_the_interval() -> None:
    draw = np.random.default_rng(4)
    fold = np.arange(500) % 5
    easy, labels = answers([250, 250], 4.0, draw)
    hard, _ = answers([250, 250], 0.8, draw)
    probabilities = np.where((fold < 2)[:, None], easy, hard)
    for name, measured in measures(probabilities, labels).items():
        alone, together = measured_interval(measured, labels), measured_interval(measured, labels, fold)
        assert together[0] < alone[0] - 0.02 and together[1] > alone[1], name
    same, labels = answers([250, 250], 1.5, draw)
    told = summary(torch.from_numpy(same).log(), torch.from_numpy(labels), ("a", "b"), folds_N=fold)
    assert told["balanced_interval"] == pytest.approx(told["interval"], abs=0.02), "equal classes: as accuracy's"


def test_paired_differences_are_narrower_than_two_intervals() -> None:
    draw = np.random.default_rng(5)
    one, labels = answers([150, 50], 1.0, draw)
    raised = one ** (1 + 0.1 * draw.random(one.shape)) * np.exp(0.3 * np.eye(2)[labels])
    other = raised / raised.sum(1, keepdims=True)
    first, second = measures(other, labels), measures(one, labels)
    for name in first:
        low, high = paired_interval(first[name], second[name], labels)
        own = measured_interval(first[name], labels)
        assert low <= first[name].value - second[name].value <= high
        assert high - low < own[1] - own[0], name
        assert paired_interval(first[name], first[name], labels)[1] > 0, "the next image may tell them apart"


def test_a_summary_has_them_all() -> None:
    probabilities, labels = answers([30, 10], 1.0, np.random.default_rng(6))
    told = summary(torch.from_numpy(probabilities).log(), torch.from_numpy(labels), ("a", "b"))
    for name, (_, interval) in MEASURES.items():
        low, high = told[interval]
        assert 0 <= low <= told[name] <= high <= 1
    one = summary(torch.from_numpy(probabilities[:30]).log(), torch.from_numpy(labels[:30]), ("a", "b"))
    assert "auroc" not in one and one["macro_f1"] > 0


def test_the_confusion_of_very_many_classes_is_left_out() -> None:
    """It grows with the square of the classes: 20,000 of them would need 3 GB."""
    labels_N = torch.arange(3000) % 1500
    names = tuple(map(str, range(1500)))
    told = summary(torch.eye(1500)[labels_N], labels_N, names)
    assert told["confusion"] == [] and len(told["per_class"]) == 1500 and told["accuracy"] == 1
