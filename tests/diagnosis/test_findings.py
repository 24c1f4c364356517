"""Sentences are said where the numbers bear them out, and only there."""

from __future__ import annotations

import numpy as np
import pytest
import timm

import smallvit.models  # noqa: F401
from smallvit.diagnosis import findings
from smallvit.diagnosis.measure import mixes_neighbours


def test_under_fitting_and_learning_by_heart() -> None:
    found = findings.fit((54, 100), (52, 100), "test")
    assert "only 54% of its own training images" in found.verdict and "under-fits" in found.verdict
    assert found.weight == pytest.approx(0.784)
    found = findings.fit((99, 100), (60, 100), "test")
    assert "99% of its training images but 60% of the test images" in found.verdict and found.weight > 0.5
    assert findings.fit((97, 100), (94, 100), "test").verdict == ""
    assert findings.fit((9, 10), (7, 10), "test").verdict == "", "ten images bear nothing out"
    assert findings.fit((7, 10), (7, 10), "test").verdict == "", "seven of ten may be eight of ten"


def test_few_tokens() -> None:
    found = findings.tokens((2, 2), 32, attends=True)
    assert "32 px becomes 4 tokens" in found.verdict and "patch_size=8" in found.verdict
    assert findings.tokens((8, 8), 32, attends=True).verdict == ""
    assert findings.tokens((4, 4), 32, attends=False).verdict == ""
    assert "single cell" in findings.tokens((1, 1), 32, attends=False).verdict


def layers(*values: float) -> dict[str, list[np.ndarray]]:
    return {key: [np.array([value, value]) for value in values] for key in ("distance", "entropy", "near")}


@pytest.mark.parametrize(
    ("now", "mixes", "said"),
    [(0.50, False, "no locality was learned"), (0.50, True, ""), (0.45, False, ""), (0.2, False, "learned to look near")],
)  # fmt: skip
def test_locality(now: float, mixes: bool, said: str) -> None:
    found = findings.locality(["a", "b"], layers(now, 0.5), layers(0.51, 0.5), layers(0.52, 0.52), mixes)
    assert said in found.verdict and bool(found.verdict) == bool(said)
    assert found.arrays["distance"].shape == (2, 2) and found.numbers["distance"] == pytest.approx(now)
    assert not said or f"{now:.2f} of the image's width" in found.verdict


def test_what_mixes_neighbours() -> None:
    for name, mixes in (("vit_pico", False), ("dhvt_pico", True), ("t2t_nano", True), ("cvt_nano", True), ("resnet_nano", True)):  # fmt: skip
        assert mixes_neighbours(timm.create_model(name)) == mixes, name
    assert mixes_neighbours(timm.create_model("vit_pico", spt=True))


def test_neighbours_and_rank() -> None:
    names = ["blocks.0", "blocks.1", "blocks.2"]
    worse, collapsed = findings.neighbours(names, [0.5, 0.8, 0.6], 400, [5.0, 4.0, 2.0], [64] * 3, 10)
    assert "80% of the images by the features of blocks.1 and 60%" in worse.verdict
    assert "2.0 directions, where 10 classes need up to 9" in collapsed.verdict
    better, full = findings.neighbours(names, [0.5, 0.6, 0.8], 400, [5.0, 4.0, 8.0], [64] * 3, 10)
    assert better.verdict == full.verdict == ""
    noisy, _ = findings.neighbours(names, [0.5, 0.65, 0.6], 40, [5.0, 4.0, 8.0], [64] * 3, 10)
    assert noisy.verdict == "", "five points of forty images may be chance"


def test_positions_and_heads() -> None:
    assert "no more alike" in findings.positions(np.eye(4), 0.05, 0.0).verdict
    assert findings.positions(np.eye(4), 0.6, 0.0).verdict == ""
    twin = np.array([[1.0, 0.99, 0.1], [0.99, 1.0, 0.1], [0.1, 0.1, 1.0]])
    idle = findings.heads(["a"], [np.array([0.0, 0.4, 0.4])], [twin])
    assert "Of 3 heads, 1 give every token the same and 1 do what another" in idle.verdict
    assert findings.heads(["a"], [np.array([0.3, 0.4, 0.4])], [np.eye(3)]).verdict == ""


def test_similarity() -> None:
    rows, columns = [f"blocks.{number}" for number in range(8)], [f"layer{number}" for number in range(4)]
    like_zhu = np.full((8, 4), 0.4)
    like_zhu[:2, :2], like_zhu[-2:] = 0.8, 0.1
    found = findings.similarity(rows, columns, like_zhu, None, None, rows, "resnet18_32", ["dead"])
    assert "lower half of resnet18_32 (CKA 0.80)" in found.verdict and "(0.10)" in found.verdict
    assert found.numbers["pattern"] == pytest.approx(0.7) and found.labels["constant"] == ["dead"]
    unlike = findings.similarity(rows, columns, np.full((8, 4), 0.1), None, None, rows, "x", [])
    assert "Even the lowest quarter" in unlike.verdict
    assert findings.similarity(rows, columns, np.full((8, 4), 0.6), None, None, rows, "x", []).verdict == ""


def test_blocks_that_repeat_the_one_before() -> None:
    rows = ["stem", "blocks.0", "blocks.1", "blocks.2.act", "blocks.3"]
    same = np.full((5, 5), 0.5)
    same[1:4, 1:4] = 0.995
    found = findings.similarity(rows, rows, same, None, None, [f"blocks.{number}" for number in range(4)], "", [])
    assert found.name == "self_similarity"
    assert "2 of 4 blocks hardly change" in found.verdict and "blocks.1, blocks.2" in found.verdict
    assert findings.similarity(rows, rows, np.eye(5), None, None, rows[1:], "", []).verdict == ""


def test_dead_channels_and_fixed_looks() -> None:
    assert "30% of the channels of b" in findings.dead_channels(["a", "b"], {}, [0.0, 0.3]).verdict
    assert findings.dead_channels(["a", "b"], {}, [0.5, 0.0]).verdict == ""
    assert "same places whatever the image shows" in findings.same_looks(["a", "b"], [0.1, 0.99])[0]
    assert findings.same_looks(["a", "b"], [0.99, 0.1]) == ("", 0.0)
