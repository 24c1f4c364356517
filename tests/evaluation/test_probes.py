"""k-NN, the linear probe, the signs of a collapse, and `smallvit probe`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import smallvit
from helpers import run_here
from smallvit import Run
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import read_tensors, write_tensors
from smallvit.evaluation.probes import (
    Frozen,
    collapse_signs,
    effective_rank,
    knn_probe,
    knn_votes,
    linear_probe,
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def clouds(n: int, seed: int = 0, noise: float = 0.3) -> Frozen:
    """Three classes around three directions of eight."""
    labels = torch.arange(n) % 3
    return Frozen(4 * F.one_hot(labels, 8).float() + noise * numbers(n, 8, seed=seed), labels)


# ---- probes --------------------------------------------------------------------------------------------


def test_votes_by_hand() -> None:
    bank = Frozen(torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.6, 0.8]]), torch.tensor([0, 1, 1]))
    votes = knn_votes(bank, torch.tensor([[3.0, 0.0]]), num_classes=3, k=2)
    far = math.exp((0.6 - 1) / 0.07)
    assert votes[0].tolist() == pytest.approx([1 / (1 + far), far / (1 + far), 0.0])
    assert knn_votes(bank, torch.tensor([[3.0, 0.0]]), 3, k=50).sum() == pytest.approx(1), "k is the bank at most"


def test_votes_do_not_depend_on_lengths_or_overflow() -> None:
    bank, asked = clouds(60), numbers(9, 8, seed=5)
    votes = knn_votes(bank, asked, 3)
    torch.testing.assert_close(knn_votes(bank, 1e4 * asked, 3), votes)
    assert votes.isfinite().all() and votes.shape == (9, 3)


def test_both_probes_find_what_is_there_and_only_that() -> None:
    train, val, test = clouds(90), clouds(30, seed=1), clouds(60, seed=2)
    for entry in (knn_probe(train, test, 3), linear_probe(train, val, test)):
        assert entry["accuracy"] == 1.0 and entry["n"] == 60 and entry["interval"][0] > 0.9
    nothing = [
        Frozen(numbers(len(part.labels_N), 8, seed=9 + number), part.labels_N)
        for number, part in enumerate((train, val, test))
    ]
    for entry in (knn_probe(nothing[0], nothing[2], 3), linear_probe(*nothing)):
        assert entry["accuracy"] < 0.65


def test_the_strength_of_the_linear_probe_is_chosen_on_the_validation_part() -> None:
    train, val, test = clouds(90), clouds(30, seed=1), clouds(60, seed=2)
    assert "C = 0.01, chosen on the validation part" in linear_probe(train, val, test)["why"]
    assert "C = 1, not chosen" in linear_probe(train, None, test)["why"]


# ---- collapse ------------------------------------------------------------------------------------------


def test_signs_of_features_that_are_spread_evenly() -> None:
    signs = collapse_signs(numbers(4000, 16))
    assert signs.spread == pytest.approx(1, abs=0.01) and signs.effective_rank == pytest.approx(16, abs=0.2)


def test_effective_rank_counts_directions() -> None:
    wide = numbers(400, 10)
    assert effective_rank(wide) == pytest.approx(10, rel=0.05)
    assert effective_rank(wide) == collapse_signs(wide).effective_rank
    assert effective_rank(100 * wide) == pytest.approx(effective_rank(wide)), "length does not count"
    assert effective_rank(wide[:, :3] @ numbers(3, 10, seed=1)) < 3.001
    one_in_four = [*[[1.0, 0.0], [-1.0, 0.0]] * 9, [0.0, 1.0], [0.0, -1.0]]
    shares = torch.tensor([3.0, 1.0]) / 4  # 18 and 2 images: squares 18 and 2, singular values 3 to 1
    assert effective_rank(torch.tensor(one_in_four)) == pytest.approx(float(torch.special.entr(shares).sum().exp()))


def test_signs_of_a_collapse() -> None:
    alike = collapse_signs(numbers(1, 16) + 1e-4 * numbers(200, 16, seed=1))
    assert alike.spread < 0.001 and alike.is_finite
    line = collapse_signs(numbers(1, 16) + numbers(200, 1, seed=1) * numbers(1, 16, seed=2))
    assert line.spread > 0.3 and line.effective_rank < 2.5  # unit vectors of a line lie on an arc
    same = collapse_signs(torch.ones(50, 4))
    assert same.spread == pytest.approx(0, abs=1e-6) and same.effective_rank == 0
    assert not collapse_signs(torch.full((5, 4), math.nan)).is_finite


# ---- the command ---------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"model": "vit_pico", "per_class": 6, "epochs": 1, "threads": 1, "show_progress": False}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return smallvit.train("digits", out=tmp_path_factory.mktemp("probed") / "run", **SMALL)


def test_probing_a_run(trained: Run) -> None:
    found = smallvit.probe(trained.path)
    assert found["part"] == "test" and found["floors"].keys() == {"majority", "knn", "logistic"}
    assert found["knn"]["n"] == trained.results["parts"]["test"]["n"]
    assert 0.1 < found["knn"]["accuracy"] < 1 and found["linear"]["interval"][0] < found["linear"]["accuracy"]
    assert json.loads((trained.path / "probe.json").read_text())["knn"]["accuracy"] == found["knn"]["accuracy"]
    assert smallvit.probe(trained.path, linear=False).keys() == {"part", "knn", "floors"}


def test_features_are_taken_once_for_each_model(trained: Run) -> None:
    kept = trained.path / "features.safetensors"
    first = smallvit.probe(trained.path, linear=False)
    tensors, header = read_tensors(kept)
    assert tensors["test"].shape == (first["knn"]["n"], 48)
    write_tensors(kept, {name: numbers(*tensor.shape) for name, tensor in tensors.items()}, header)
    assert smallvit.probe(trained.path, linear=False)["knn"]["accuracy"] < 0.2, "the kept features were not used"
    write_tensors(kept, tensors, {"model": "another"})
    assert smallvit.probe(trained.path, linear=False) == first


def test_the_command(trained: Run) -> None:
    shown = run_here("probe", trained.path)
    assert shown.status == 0, shown.err
    assert all(word in shown.out for word in ("k-NN on features", "linear probe", "majority class", "L-BFGS"))
    only = run_here("probe", trained.path, "--knn", "--json")
    assert json.loads(only.out).keys() == {"part", "knn", "floors"}


def test_a_run_with_nothing_to_judge_by_is_refused(tmp_path: Path) -> None:
    run = smallvit.train("digits", out=tmp_path / "run", val="none", test="none", **SMALL)
    with pytest.raises(UsageError, match="test or validation part"):
        smallvit.probe(run.path)
