"""What an answer hangs on: the fall of its probability when a part is hidden, and nothing left behind in the image."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from smallvit import Run
from smallvit.diagnosis.hiding import hangs_on


@pytest.mark.parametrize("model", ["vit_pico", "resnet_nano"])
def test_it_is_what_the_probability_of_the_answer_loses(trained: Callable[[str], Run], model: str) -> None:
    predictor = trained(model).predictor()
    image_CSS = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    before_CSS = image_CSS.clone()
    falls = hangs_on(predictor, image_CSS, places=4)
    assert falls.shape == (4, 4) and torch.equal(image_CSS, before_CSS)
    hidden_CSS = image_CSS.clone()
    hidden_CSS[:, 2:4, 4:6] = 0  # a quarter of the side around the place in row 1, column 2
    with torch.no_grad():
        sure = predictor.logits_of([torch.stack([image_CSS, hidden_CSS])]).softmax(1)
    answer = int(sure[0].argmax())
    assert float(falls[1, 2]) == pytest.approx(float(sure[0, answer] - sure[1, answer]), abs=1e-6)
