"""A whole diagnosis of a small run: what is measured, what is stored, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from smallvit import Run
from smallvit.diagnosis.diagnose import diagnose
from smallvit.errors import RunError, UsageError
from smallvit.models.features import Backbone

Trained = Callable[[str], Run]


def test_a_vit_against_another_run(trained: Trained) -> None:
    run = trained("vit_pico")
    before = {file.name: file.read_bytes() for file in run.path.iterdir() if file.is_file()}
    stale = run.path / "findings" / "old.json"
    stale.parent.mkdir(exist_ok=True)
    stale.write_text("{}")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    found = {finding.name: finding for finding in diagnose(run.path, trained("resnet_nano").path, images=48)}
    assert torch.equal(torch.get_rng_state(), state)
    assert {
        "fit", "tokens", "locality", "attention", "heads", "positions", "feature_maps", "neighbours", "rank",
        "self_similarity", "similarity", "pictures", "head_offsets",
    } == set(found)  # fmt: skip
    assert not stale.exists()
    for name, finding in found.items():
        stored = json.loads((run.path / "findings" / f"{name}.json").read_text())
        assert stored["verdict"] == finding.verdict and stored["numbers"] == pytest.approx(finding.numbers)
        arrays = load_file(run.path / "findings" / f"{name}.safetensors")
        assert set(arrays) == set(finding.arrays)
    assert {name: (run.path / name).read_bytes() for name in before} == before
    similarity = found["similarity"]
    assert similarity.labels["other"] == ["resnet_nano"]
    assert similarity.arrays["cka"].shape == tuple(len(similarity.labels[key]) for key in ("rows", "columns"))
    assert np.isfinite(similarity.arrays["cka"]).all()
    assert (similarity.arrays["low"] <= similarity.arrays["high"]).all()
    assert found["attention"].arrays["looks.0"].shape == (6, 3, 4, 4)
    assert found["pictures"].arrays["pixels"].shape == (6, 1, 8, 8)
    assert found["feature_maps"].arrays["channels.0"].shape == (6, 4, 4, 4)


def test_shown_are_images_that_it_is_surely_right_and_surely_wrong_about(trained: Trained) -> None:
    run = trained("vit_pico")
    shown = next(one for one in diagnose(run.path, images=10_000) if one.name == "pictures").labels
    stored = load_file(run.path / "predictions.safetensors")
    sure, answers = stored["probabilities"].max(1), stored["probabilities"].argmax(1)
    for right, place in ((True, slice(0, 3)), (False, slice(3, 6))):
        kind = (answers == stored["labels"]) == right
        surest = np.argsort(np.where(kind, -sure, 1))[:3]
        assert shown["true"][place] == [str(label) for label in stored["labels"][surest]]
        assert shown["predicted"][place] == [str(answer) for answer in answers[surest]]


def test_every_image_is_predicted_once(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifier answers for the images judged and for those of training; what it says is shown and counted."""
    seen: list[int] = []
    classify = Backbone.classify
    monkeypatch.setattr(
        Backbone, "classify", lambda self, pooled: (seen.append(len(pooled)), classify(self, pooled))[1]
    )
    diagnose(trained("vit_pico").path, images=20)
    tried = [2, 2]  # made-up images that a model is tried with when it is built: this one, and the untrained
    assert sorted(seen) == sorted([*tried, 20, 20])


def test_findings_come_by_weight_and_again_the_same(trained: Trained) -> None:
    run = trained("dhvt_pico")
    found = diagnose(run.path, images=16)
    weights = [finding.weight for finding in found]
    assert weights == sorted(weights, reverse=True)
    assert all(bool(finding.verdict) == (finding.weight > 0) for finding in found)
    assert "head_tokens.0" in next(one for one in found if one.name == "attention").arrays
    again = diagnose(run.path, images=16)
    assert [(one.name, one.verdict, one.numbers) for one in found] == [(one.name, one.verdict, one.numbers) for one in again]  # fmt: skip


def test_a_cnn_and_a_model_by_name(trained: Trained) -> None:
    found = {finding.name: finding for finding in diagnose(trained("resnet_nano").path, "vit_pico", images=16)}
    assert "attention" not in found and "locality" not in found
    assert found["similarity"].labels["other"] == ["vit_pico (untrained)"]
    assert found["feature_maps"].labels["layers"][0] == "conv1"


def test_refusals(trained: Trained, tmp_path: Path) -> None:
    run = trained("vit_pico")
    with pytest.raises(UsageError, match="at least 8"):
        diagnose(run.path, images=3)
    with pytest.raises(RunError, match="is not a run folder"):
        diagnose(tmp_path)
    with pytest.raises(UsageError, match="unknown model 'resnt_nano'"):
        diagnose(run.path, "resnt_nano", images=16)
    with pytest.raises(RunError, match="is not a run folder"):
        diagnose(run.path, tmp_path, images=16)
    with pytest.raises(UsageError, match="it is the run itself"):
        diagnose(run.path, run.path, images=16)
