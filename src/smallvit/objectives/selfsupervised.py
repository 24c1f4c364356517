"""What the self-supervised objectives share: no classifier, views that share a forward pass, a k-NN as their judge.

They are judged by what their features are worth: images held out are labelled by their nearest neighbours in the
training part (where there are labels), and the features themselves show a collapse (all images alike).

B images, V crops of each, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from smallvit.evaluation.metrics import Score
from smallvit.evaluation.probes import Frozen, Signs, collapse_signs, extract, knn_votes
from smallvit.models.features import Backbone
from smallvit.objectives.base import Answers, EvalData, Objective, TaskInfo
from smallvit.recipe import Auto, Rate, Section
from smallvit.runs.curves import CurvePanel
from smallvit.types import Features, View

BANK, LOOKED_AT = 5_000, 2_000  # images of a look while training runs: neighbours to choose from, and images judged
LEAST_SPREAD = 0.02
PATIENCE = 0.2  # of the training: before, features may be as alike as initial weights make them


class PretrainingOptions(Section):
    allow_collapse: bool = False  # go on where all features became alike


class MultiCropOptions(PretrainingOptions):
    """Large crops, and small ones of less area beside them. Scales are area shares."""

    large_scale: tuple[Rate, Rate] = (0.14, 1.0)
    small_crops: Annotated[int, Field(ge=0)] = 4  # 0: no multi-crop
    small_scale: tuple[Rate, Rate] = (0.05, 0.4)
    small_size: Annotated[int, Field(ge=4)] | Auto = "auto"  # pixels; auto: as the large ones, which every model takes

    def views(self, large_crops: int, img_size: int) -> tuple[View, ...]:
        large = View(large_crops, img_size, self.large_scale)
        size = img_size if self.small_size == "auto" else self.small_size
        return (large, View(self.small_crops, size, self.small_scale)) if self.small_crops else (large,)


class SelfSupervised(Objective):
    """Abstract."""

    judged_by = "k-NN"
    curves: ClassVar[tuple[CurvePanel, ...]] = (
        CurvePanel(
            "spread",
            "Spread of the features (0: all alike)",
            keys=("spread",),
            spoken="Spread of the normalised features",
        ),
        CurvePanel(
            "rank", "Effective rank of the features", keys=("effective_rank",), spoken="Effective rank of the features"
        ),
    )
    least_rank: ClassVar[float] = 1.5  # below it, and below LEAST_SPREAD, the features say next to nothing
    options: PretrainingOptions

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.options = options

    def judge(self, backbone: Backbone, exam: EvalData) -> Score | None:
        predictor = exam.predictor(backbone)
        bank = extract(predictor, exam.images, thinned(exam.train_rows, BANK))
        signs = collapse_signs(bank.features_ND)
        accuracy = None
        if len(exam.held_out) and exam.num_classes > 1 and signs.is_finite:
            held_out = extract(predictor, exam.images, thinned(exam.held_out, LOOKED_AT))
            answer_N = knn_votes(bank, held_out.features_ND, exam.num_classes).argmax(1)
            accuracy = float((answer_N == held_out.labels_N).double().mean())
        watched = exam.progress >= PATIENCE and not self.options.allow_collapse
        # Two images cannot differ in two directions.
        least_rank = min(self.least_rank, 0.9 * (len(bank.features_ND) - 1))
        collapse = what_collapsed(signs, least_rank) if watched else ""
        return Score(accuracy, None, signs._asdict(), collapse, min(len(exam.held_out), LOOKED_AT))

    def answers(self, backbone: Backbone, exam: EvalData) -> Answers:
        predictor = exam.predictor(backbone)
        bank, held_out = (extract(predictor, exam.images, rows) for rows in (exam.train_rows, exam.held_out))
        return _log_votes(bank, held_out, exam.num_classes), held_out.labels_N

    @staticmethod
    def judged_images(trained: int, held_out: int) -> int:
        return min(trained, BANK) + min(held_out, LOOKED_AT)


def what_collapsed(signs: Signs, least_rank: float) -> str:
    if signs.spread < LEAST_SPREAD:
        return f"the features of all images point the same way (spread {signs.spread:.3g}, 1 would be even)"
    if signs.effective_rank < least_rank:
        return f"the features of all images lie on one line (effective rank {signs.effective_rank:.3g})"
    return ""


def thinned(rows: Tensor, most: int) -> Tensor:
    """Evenly spaced rows: the same at every look."""
    return rows if len(rows) <= most else rows[torch.linspace(0, len(rows) - 1, most).long()]


def _log_votes(bank: Frozen, held_out: Frozen, num_classes: int) -> Tensor:
    """As logits, so that a softmax gives the votes back; a class without votes is not impossible."""
    return knn_votes(bank, held_out.features_ND, num_classes).clamp_min(1e-4).log()


# ---- views -------------------------------------------------------------------------------------------


def forward_views(backbone: nn.Module, views: Sequence[Tensor]) -> list[Features]:
    """The features of each kind of view; kinds of equal size go through the model together."""
    by_place: dict[int, Features] = {}
    for size in dict.fromkeys(view.shape[-1] for view in views):
        places = [place for place, view in enumerate(views) if view.shape[-1] == size]
        together: Features = backbone(torch.cat([views[place] for place in places]))
        counts = [len(views[place]) for place in places]
        pooled = together.pooled_BD.split(counts)
        grids = (
            zip(*(grid.split(counts) for grid in together.grids), strict=True) if together.grids else [()] * len(places)
        )
        for place, own, own_grids in zip(places, pooled, grids, strict=True):
            by_place[place] = Features(own, tuple(own_grids))
    return [by_place[place] for place in range(len(views))]
