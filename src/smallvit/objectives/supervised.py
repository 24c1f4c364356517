"""Cross-entropy on the model's own classifier, with label smoothing, Mixup, CutMix and class weights.

B images, K classes. With smoothing s, the loss of image x under label y is

    CE(x, y) = -(1 - s) log p_y(x) - (s / K) sum_k log p_k(x),

and what is minimised is the plain mean over the batch of

    lam_i w[y_i] CE(x_i, y_i) + (1 - lam_i) w[y_j] CE(x_i, y_j),

where j is the partner that image i was mixed with and lam_i the share it kept (1 without mixing). A class weight thus
multiplies all that its label adds, the smoothing part included, and the mean divides by B, not by the sum of weights
(torch's own `weight` does otherwise in both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from smallvit.console import several
from smallvit.data.mixing import mix
from smallvit.errors import UsageError
from smallvit.evaluation.metrics import Score, score
from smallvit.models.features import Backbone
from smallvit.objectives.base import Answers, EvalData, Objective, TaskInfo
from smallvit.objectives.class_weights import resolve_class_weights
from smallvit.planning.choices import Choices
from smallvit.recipe import Rate, Section, Share
from smallvit.types import Batch, Context, Loss, Seen, View


class SupervisedOptions(Section):
    label_smoothing: Rate = 0.1
    mixup: Annotated[float, Field(ge=0)] = 0.0  # alpha of Beta(alpha, alpha); 0 is off
    cutmix: Annotated[float, Field(ge=0)] = 0.0
    mix_prob: Rate = 1.0
    mix_switch: Rate = 0.5  # share of CutMix where both are on
    mix_alternate: bool = False  # Mixup in the first, third, ... epoch and CutMix in the others, instead of a switch
    mix_per: Literal["batch", "element"] = "element"
    mix_keep_larger: bool = False  # an image keeps the larger share of itself: lam = max(lam, 1 - lam)
    # Growing images: this share of the epochs, the first ones, shows them smaller, at `grow_from` of their side; 0 is off.
    grow: Annotated[float, Field(ge=0, lt=1)] = 0.0
    grow_from: Share = 0.5
    # none | auto | a CSV or JSON file of class,weight; resolved: one number per class, in the order of the classes
    class_weights: tuple[Annotated[float, Field(gt=0)], ...] | str = "none"


class Supervised(Objective):
    name = "supervised"
    Options = SupervisedOptions
    classifies = True
    needs_labels = True
    judged_by = "classifier"
    weights_K: Tensor | None

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.options: SupervisedOptions = options
        self.views = self.small_views = (View(1, setting.img_size),)
        if self.options.grow:
            size = smaller_size(setting.img_size, self.options.grow_from, backbone.final_grid)
            self.small_views = (View(1, size, of=setting.img_size),)
        # They stand in the recipe, so the checkpoint does not hold them.
        self.register_buffer("weights_K", _as_tensor(self.options.class_weights, setting.num_classes), persistent=False)

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        o = self.options
        mixup, cutmix = o.mixup, o.cutmix
        if o.mix_alternate:
            mixup, cutmix = (0.0, cutmix) if ctx.epoch % 2 else (mixup, 0.0)
        mixed = mix(
            batch.views[0], ctx.generator, mixup=mixup, cutmix=cutmix, prob=o.mix_prob, switch=o.mix_switch,
            per=o.mix_per, keep_larger=o.mix_keep_larger,
        )  # fmt: skip
        features = backbone(mixed.images_BCHW)
        logits_BK = backbone.classify(features.pooled_BD)
        own_B = self._loss(logits_BK, batch.labels_B)
        may_mix = bool(mixup or cutmix) and o.mix_prob > 0
        if o.mixup or o.cutmix:
            other_B = self._loss(logits_BK, batch.labels_B[mixed.partner_B])
            own_B = mixed.lam_B * own_B + (1 - mixed.lam_B) * other_B
        total = own_B.mean()
        partners = (mixed.partner_B, mixed.lam_B) if may_mix else (None, None)
        seen = Seen.of(batch, mixed.images_BCHW, features, *partners)
        return Loss(total, {"cross_entropy": total.detach()}, seen)

    @classmethod
    def resolve(cls, options: Any, task: TaskInfo, choices: Choices) -> None:
        resolve_class_weights(options.class_weights, task, choices)

    def views_at(self, epoch: int, epochs: int) -> tuple[View, ...]:
        return self.small_views if epoch < int(self.options.grow * epochs) else self.views

    def notes(self, choices: Choices, epochs: int) -> None:
        grow = self.options.grow
        if grow:
            (small,), (full,) = self.small_views, self.views
            why = f"images of {small.size} px in the first {int(grow * epochs)} of {several(epochs, 'epoch')}, then of {full.size} px"
            choices.record("grow", grow, why)

    def judge(self, backbone: Backbone, exam: EvalData) -> Score | None:
        return score(*self.answers(backbone, exam)) if len(exam.held_out) else None

    def answers(self, backbone: Backbone, exam: EvalData) -> Answers:
        logits_NK = exam.predictor(backbone).logits(exam.images, exam.held_out)
        return logits_NK, exam.images.labels_N.cpu()[exam.held_out]

    def _loss(self, logits_BK: Tensor, labels_B: Tensor) -> Tensor:
        loss_B = F.cross_entropy(logits_BK, labels_B, label_smoothing=self.options.label_smoothing, reduction="none")
        return loss_B if self.weights_K is None else loss_B * self.weights_K[labels_B]


def smaller_size(img_size: int, share: float, grid: Sequence[int]) -> int:
    """About this share of the side, in whole cells of the model's last grid where they divide the image: patches fit."""
    cell = img_size // grid[0] if grid and img_size % grid[0] == 0 else 1
    size = max(1, round(share * img_size / cell)) * cell
    if size >= img_size:
        raise UsageError(
            f"objective.grow_from = {share:g}: the images have {img_size} px and the model's cells {cell}, so that nothing "
            "smaller is that large; give a smaller share, or objective.grow=0"
        )
    return size


def _as_tensor(weights: Sequence[float] | str, num_classes: int) -> Tensor | None:
    if weights == "none":
        return None
    if isinstance(weights, str):
        raise UsageError(f"class_weights = {weights!r}: only a resolved recipe can be trained; it holds the numbers")
    if len(weights) != num_classes:
        raise UsageError(f"class_weights holds {len(weights)} numbers, but there are {num_classes} classes")
    return torch.tensor(weights)
