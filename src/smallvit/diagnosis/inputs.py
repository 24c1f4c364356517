"""What measurements look at: a model, the same before training, images of two parts, maybe another model.

What several of them need is computed once, when the first asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor, nn

from smallvit.console import several, warn
from smallvit.diagnosis.attended import Attended, attend
from smallvit.diagnosis.layer_features import layer_vectors
from smallvit.errors import UsageError
from smallvit.models.features import Backbone

PER_BATCH = 64
ATTENDED_PER_BATCH = 16  # images whose attention is in memory at once
FOR_UNTRAINED = 32  # images: an untrained model hardly looks at another place in another image


class Labelled(NamedTuple):
    """Images as the model takes them, their classes, and what it says of them."""

    images_NCHW: Tensor  # on the model's device; all else is on the CPU
    labels_N: Tensor
    logits_NK: Tensor

    def batches(self) -> tuple[Tensor, ...]:
        return self.images_NCHW.split(PER_BATCH)


class Other(NamedTuple):
    """Another model, the same images as that one takes them, and what to call it."""

    model: nn.Module
    images_NCHW: Tensor
    name: str


class Known(NamedTuple):
    """Of the run, beside its model: which part is judged, how many classes there are, the best that pixels alone give, the
    name and the starting weights that it was asked for with, and whether its images were changed strongly.
    """

    part: str
    classes: int
    floor: str = ""
    floor_accuracy: float = 0.0
    model: str = ""
    weights: str = "usual"
    varied: bool = False


@dataclass(frozen=True)
class Inputs:
    backbone: Backbone
    untrained: Backbone
    judged: Labelled
    train: Labelled
    known: Known
    other: Other | None = None

    @property
    def model(self) -> nn.Module:
        return self.backbone.model

    @cached_property
    def attended(self) -> Attended:
        """Its attention: the one pass over the judged images that everything said of attention comes from."""
        attended = attend(self.model, self.judged.images_NCHW.split(ATTENDED_PER_BATCH))
        for reason in _in_few_lines(attended.left_out):
            warn(reason)
        return attended

    @cached_property
    def attended_untrained(self) -> Attended:
        return attend(self.untrained.model, self.judged.images_NCHW[:FOR_UNTRAINED].split(ATTENDED_PER_BATCH))

    @property
    def attends(self) -> bool:
        """Whether any of its layers does, as far as can be seen."""
        try:
            return bool(self.attended.maps or self.attended.left_out)
        except UsageError:
            return False

    @property
    def has_blocks(self) -> bool:
        return callable(getattr(self.model, "forward_intermediates", None))

    @property
    def block_names(self) -> list[str]:
        return [str(info["module"]) for info in getattr(self.model, "feature_info", [])]

    @property
    def unit(self) -> str:
        """What the parts are called whose outputs are looked at: those of a hierarchical model are stages."""
        return "block" if all(name.startswith("block") for name in self.block_names) else "stage"

    @cached_property
    def judged_vectors(self) -> dict[str, Tensor]:
        """(N, D) of every block or stage, for the judged images."""
        return layer_vectors(self.model, self.judged.batches())

    @cached_property
    def train_vectors(self) -> dict[str, Tensor]:
        return layer_vectors(self.model, self.train.batches())


def _in_few_lines(left_out: dict[str, str]) -> list[str]:
    """The first layer of those that are left out for the same reason, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for layer, reason in left_out.items():
        kinds.setdefault(reason.replace(layer, ""), []).append(reason)
    return [
        f"{first}: it is left out" + (f", like {several(len(more), 'other')} of its kind" if more else "")
        for first, *more in kinds.values()
    ]
