"""With very many classes answers are judged some rows at a time; it must not show."""

from __future__ import annotations

import pytest
import torch

from smallvit.evaluation import blocks, measures
from smallvit.evaluation.calibration import calibration
from smallvit.evaluation.metrics import summary, worst_mistakes

NAMES = tuple("abcdefg")


@pytest.mark.parametrize("most", [1, 7 * 30, 7 * 64])  # a row, blocks that do not divide 120 rows, and some that do
def test_blocks_change_nothing(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    labels_N = torch.randint(7, (120,), generator=draw)
    logits_NK = torch.randn(120, 7, generator=draw) + 2 * torch.eye(7)[labels_N]
    answers = {"test": (logits_NK, labels_N), "val": (logits_NK[:90], labels_N[:90])}
    whole = (summary(logits_NK, labels_N, NAMES), calibration(answers, "test"))
    worst = worst_mistakes(logits_NK, labels_N, 10).tolist()

    monkeypatch.setattr(blocks, "MOST_NUMBERS", most)
    monkeypatch.setattr(measures, "MOST_TURNED", most)
    in_blocks = (summary(logits_NK, labels_N, NAMES), calibration(answers, "test"))

    assert in_blocks[0] == whole[0]
    assert in_blocks[1].pop("before")["loss"] == pytest.approx(whole[1].pop("before")["loss"], rel=1e-12)
    after, whole_after = in_blocks[1].pop("after"), whole[1].pop("after")
    assert after.pop("loss") == pytest.approx(whole_after.pop("loss"), rel=1e-12) and after == whole_after
    assert in_blocks[1] == whole[1]
    assert worst_mistakes(logits_NK, labels_N, 10).tolist() == worst
