"""The whole answer as one module: uint8 squares in, probabilities out. This is what is written, in whatever format.

Inside: the centre is cut out and normalised, the model looks at it in every way that counts (mirrored, shifted), the
answers are averaged and divided by the temperature; several models are averaged. Outside: how a file becomes a square.
The same as `Predictor.probabilities`, in a form that can be traced; whether it is, is measured on every export.

B images, C channels, S side, L looks, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from smallvit.data.preparation import Preparation
from smallvit.evaluation.ensemble import Ensemble
from smallvit.evaluation.predictor import Predictor


class OneAnswer(nn.Module):
    """Of one model."""

    gain_C11: Tensor
    shift_C11: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.model = predictor.backbone.model
        self.preparation = predictor.preparation
        self.temperature = temperature_of(predictor) or 1.0
        augmenter = predictor.preparation.augmenter
        self.register_buffer("gain_C11", augmenter.gain_C11)
        self.register_buffer("shift_C11", augmenter.shift_C11)

    def forward(self, squares_BCSS: Tensor) -> Tensor:
        size = self.preparation.img_size
        edge = (self.preparation.cache_size - size) // 2
        centre_BCSS = squares_BCSS[..., edge : edge + size, edge : edge + size]
        return self.looked_at(centre_BCSS.float() * self.gain_C11 + self.shift_C11)

    def looked_at(self, images_BCSS: Tensor) -> Tensor:
        """(B, K) of normalised images. All looks are one batch: the model is traced, and stored, once."""
        looks = self.preparation.looks(images_BCSS)
        logits_LBK = self.model(torch.cat(looks)).float().unflatten(0, (len(looks), -1))
        return (logits_LBK.mean(0) / self.temperature).softmax(1)


class Answer(nn.Module):
    """Of one model, or the mean of several."""

    def __init__(self, members: Sequence[Predictor]) -> None:
        super().__init__()
        self.members = nn.ModuleList(map(OneAnswer, members))

    def forward(self, squares_BCSS: Tensor) -> Tensor:
        first_BK, *others = [member(squares_BCSS) for member in self.members]
        return sum(others, start=first_BK) / len(self.members)


def temperature_of(predictor: Predictor) -> float | None:
    """The one that `smallvit predict` uses, where it uses one."""
    return predictor.temperature if predictor.calibrated else None


def members_of(predictor: Predictor | Ensemble) -> tuple[Predictor, ...]:
    return predictor.members if isinstance(predictor, Ensemble) else (predictor,)


def about(predictor: Predictor | Ensemble) -> dict[str, Any]:
    """What must be known outside: the classes in their order, and what a square is."""
    p = predictor.preparation
    return {
        "class_names": list(predictor.class_names),
        "size": p.cache_size,
        "channels": p.in_chans,
        "fit": p.fit,
        "white": p.white,
    }


def trace(predictor: Predictor | Ensemble) -> torch.export.ExportedProgram:
    """The answer as a graph that takes any number of images."""
    answer = Answer(members_of(predictor)).eval()
    example_BCSS = blank(predictor.preparation, 3)  # 0 and 1 would be taken for constants
    with torch.no_grad():
        return torch.export.export(answer, (example_BCSS,), dynamic_shapes=({0: torch.export.Dim("images")},))


def blank(preparation: Preparation, count: int) -> Tensor:
    side = preparation.cache_size
    return torch.zeros((count, preparation.in_chans, side, side), dtype=torch.uint8)
