"""Attention by offset: what a head that looks at one neighbour gives, and what starting weights do in a model that runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import smallvit
from smallvit.diagnosis.attended import attend
from smallvit.diagnosis.attention import AttentionMap, Tokens
from smallvit.diagnosis.inputs import Inputs, Known, Labelled
from smallvit.diagnosis.measurements.where_heads_start import WhereHeadsStart, meant
from smallvit.diagnosis.offsets import by_offset, offset_hits
from smallvit.models.features import create_backbone
from smallvit.models.starting_weights import give_weights, neighbours
from smallvit.runs.stored_findings import read_findings


def shifted(offset: tuple[int, int], front: int = 1) -> AttentionMap:
    """One head that looks at one neighbour; cells without it look at all alike."""
    tokens = Tokens(front, (4, 5))
    weights = torch.full((2, 1, 20 + front, 20 + front), 1 / (20 + front))
    cells, theirs = neighbours((4, 5), offset)
    weights[:, :, cells + front] = 0.0
    weights[:, :, cells + front, theirs + front] = 1.0
    return AttentionMap("one", weights, tokens, tokens)


@pytest.mark.parametrize("offset", [(0, 0), (-1, 0), (1, -1)])
@pytest.mark.parametrize("front", [0, 1])
def test_a_head_that_looks_at_one_neighbour(offset: tuple[int, int], front: int) -> None:
    table = by_offset(shifted(offset, front), 2)[0]
    assert table.shape == (5, 5) and table[2 + offset[0], 2 + offset[1]] == 1
    assert table.sum() < 1.5, "the others get what cells at the border give all alike"
    assert offset_hits(shifted(offset, front), [offset]).tolist() == [1.0]
    assert offset_hits(shifted(offset, front), [(1, 1)])[0] < 0.2


@pytest.mark.parametrize(("name", "least", "most"), [("deit_tiny_patch16_224", 0.95, 1.0), ("vit_nano", 0.25, 0.7)])
def test_impulse_weights_in_a_model_that_sees_images(name: str, least: float, most: float) -> None:
    """What the width of its heads allows: 64 numbers for 64 cells, or 16."""
    torch.manual_seed(0)
    backbone = create_backbone(name, {"patch_size": 4, "depth": 2}, num_classes=10, in_chans=3, img_size=32).eval()
    give_weights(backbone.model, "impulse", name)
    first = attend(backbone.model, [torch.randn(8, 3, 32, 32)]).maps[0]
    shares = offset_hits(first, meant(first))
    assert least <= shares.mean() <= most and shares[0] > 0.95
    for head, (row, column) in enumerate(meant(first)):
        assert by_offset(first, 3)[head, 3 + row, 3 + column] > 1.5 / 64, "more than looking at all alike gives"


def test_the_page_shows_heads_before_and_after(tmp_path: Any) -> None:
    flags: dict[str, Any] = {"model": "vit_pico", "epochs": 1, "per_class": 6, "batch_size": 16, "threads": 1}
    run = smallvit.train(
        "digits", out=tmp_path / "run", show_progress=False, settings={"model.weights": "impulse"}, **flags
    )
    run.diagnose(images=8)
    findings = read_findings(run)
    assert findings
    found = findings["head_offsets"]
    assert found.labels["layers"] == ["layer 1", "layer 3", "layer 4", "layer 6"]
    assert found.arrays["start.0"].shape == found.arrays["now.3"].shape == (3, 7, 7)
    assert found.arrays["meant"].tolist() == [[0, 0], [-1, -1], [-1, 0]]
    assert 0 < found.numbers["hits_start"] <= 1 and found.numbers["head_width"] == found.numbers["cells"] == 16
    # The rate of one epoch moves little: the model before training is the one that the run began with.
    assert np.corrcoef(found.arrays["start.0"].ravel(), found.arrays["now.0"].ravel())[0, 1] > 0.8
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Which neighbours heads look at" in page and "Impulse weights mean each head to start" in page
    assert f"of {found.numbers['hits_start']:.0%} of the cells" in page


@pytest.mark.parametrize(("name", "is_shown"), [("resnet_nano", False), ("vit_pico", True)])
def test_usual_weights_mean_nothing_and_cnns_have_no_heads(name: str, is_shown: bool) -> None:
    backbone = create_backbone(name, {}, num_classes=3, in_chans=1, img_size=16).eval()
    judged = Labelled(torch.randn(9, 1, 16, 16), torch.arange(9) % 3, torch.zeros(9, 3))
    found = WhereHeadsStart().measure(Inputs(backbone, backbone, judged, judged, Known("test", classes=3)))
    assert bool(found) == is_shown
    if found:
        assert not found.numbers and "meant" not in found.arrays
        assert np.array_equal(found.arrays["start.0"], found.arrays["now.0"])
