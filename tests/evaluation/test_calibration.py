"""Calibration error by hand, the temperature that undoes a known one, and the interval of balanced accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smallvit.evaluation.calibration import BINS, LIMITS, calibration, fit_temperature, reliability
from smallvit.evaluation.classes import is_unbalanced, worst_classes
from smallvit.evaluation.metrics import summary


def honest(n: int, K: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose labels are drawn from their own probabilities."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn((n, K), generator=draw)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=draw)[:, 0]


def test_the_error_is_the_mean_gap_of_bins_of_equal_mass() -> None:
    logits, labels = honest(157)
    found = reliability(logits, labels)
    sure, answer = logits.double().softmax(1).max(1)
    order = np.argsort(sure.numpy(), kind="stable")
    right = (answer == labels).double().numpy()[order]
    gaps = [
        abs(a.mean() - b.mean()) * len(a)
        for a, b in zip(np.array_split(sure.numpy()[order], BINS), np.array_split(right, BINS), strict=True)
    ]
    assert found["ece"] == pytest.approx(sum(gaps) / 157)
    assert [entry["n"] for entry in found["bins"]] == [11] * 7 + [10] * 8


def test_an_honest_model_shows_the_error_that_is_expected_of_one() -> None:
    found = [reliability(*honest(400, seed=seed)) for seed in range(20)]
    mean, expected = (np.mean([one[key] for one in found]) for key in ("ece", "ece_if_perfect"))
    assert mean == pytest.approx(expected, rel=0.15)
    logits, labels = honest(400)
    assert reliability(5 * logits, labels)["ece"] > 2 * expected


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_the_temperature_is_found_again(true: float) -> None:
    logits, labels = honest(20_000)
    assert fit_temperature(logits * true, labels) == pytest.approx(true, rel=0.05)


def test_it_is_fitted_on_validation_images_and_never_on_those_that_are_judged() -> None:
    logits, labels = honest(1000)
    found = {"test": (logits, labels), "val": (3 * logits[:500], labels[:500])}
    measured = calibration(found, "test")
    assert measured["temperature"] == pytest.approx(3, rel=0.2)
    assert measured["fitted_on"] == {"part": "val", "n": 500}
    assert measured["after"]["ece"] > measured["before"]["ece"]  # the test part was honest already
    alone = calibration({"val": found["val"]}, "val")
    assert alone["temperature"] == measured["temperature"] and "after" not in alone, "nothing else to judge it by"
    none = calibration({"test": found["test"]}, "test")
    assert "temperature" not in none and none["not_fitted"] == "there is no validation part to fit it on"


def test_images_that_cannot_tell_give_no_temperature() -> None:
    logits, labels = torch.eye(3).repeat(20, 1), torch.arange(3).repeat(20)
    right = calibration({"val": (logits, labels)}, "val")
    assert "temperature" not in right and "60 validation images do not say how sure to be" in right["not_fitted"]
    wrong = calibration({"val": (logits, labels.roll(1))}, "val")
    assert "temperature" not in wrong and "hardly any" in wrong["not_fitted"]
    few = calibration({"val": (logits[:49], labels[:49])}, "val")
    assert few["not_fitted"] == "49 validation images are too few, it takes 50"


def test_few_images_and_perfect_answers() -> None:
    logits = 10 * torch.eye(3)
    found = reliability(logits, torch.arange(3))
    assert sum(entry["n"] for entry in found["bins"]) == 3 and 0 <= found["ece"] < 0.01
    assert fit_temperature(logits, torch.arange(3)) == pytest.approx(LIMITS[0], abs=1e-3)


def test_a_summary_knows_balance_and_the_worst_classes() -> None:
    labels = torch.tensor([0] * 8 + [1] * 2 + [2] * 5)
    answers = torch.tensor([0] * 8 + [0, 1] + [0] * 5)
    logits = torch.nn.functional.one_hot(answers, 4).float()
    found = summary(logits, labels, ("a", "b", "c", "never seen"))
    assert found["balanced_accuracy"] == pytest.approx((1 + 0.5 + 0) / 3)
    low, high = found["balanced_interval"]
    assert low < 0.5 < high
    assert is_unbalanced(found)
    assert [row["name"] for row in worst_classes(found, 2)] == ["c", "b"]
    assert not is_unbalanced(summary(logits[8:], torch.tensor([0, 1, 0, 1, 0, 1, 1]), ("a", "b", "c", "d")))
