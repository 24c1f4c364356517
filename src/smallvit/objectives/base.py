"""What an objective and an auxiliary loss are, and how they are found.

An objective owns its loss and its extra heads, never the backbone. A new one is a module in this folder with a
final subclass that names itself, lists its options and declares its curves; the first line of the module is its line of
help. Nothing else has to change.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor, nn

import smallvit.objectives
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages
from smallvit.data.preparation import Preparation
from smallvit.data.split import Split
from smallvit.errors import UsageError, nearest
from smallvit.evaluation.metrics import Score
from smallvit.evaluation.predictor import Predictor
from smallvit.mistakes import NO_FLAGS, mistakes_in_words
from smallvit.models.features import Backbone
from smallvit.planning.choices import Choices
from smallvit.recipe import DataSpec, Recipe, Section, resolved
from smallvit.runs.curves import CurvePanel, DeclaredCurves
from smallvit.types import Batch, Context, Loss, Seen, View


class TaskInfo(NamedTuple):
    """What an objective may want to know before it builds its heads."""

    num_classes: int
    num_images: int  # rows of the whole ImageSet
    img_size: int
    train_rows: Tensor | None = None  # those of the training part; None: all
    class_names: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()  # images of each class in the training part
    mean: tuple[float, ...] = (0.0,)  # of each channel: what images were normalised with
    std: tuple[float, ...] = (1.0,)

    @classmethod
    def of(cls, images: ImageSet, split: Split, data: DataSpec) -> TaskInfo:
        num_classes = len(images.class_names)
        counts_K = torch.bincount(images.labels_N[split.train], minlength=num_classes).tolist()
        return cls(
            num_classes, len(images), resolved(data.img_size), split.train, tuple(images.class_names), tuple(counts_K),
            resolved(data.mean), resolved(data.std),
        )  # fmt: skip

    @property
    def num_trained(self) -> int:
        """Images of the training part: the instances of self-supervised methods."""
        return self.num_images if self.train_rows is None else len(self.train_rows)


class EvalData(NamedTuple):
    """The images that a model is judged by: those it was trained on, and those held out (maybe none)."""

    images: DeviceImages
    preparation: Preparation
    num_classes: int  # 1: there are no labels
    train_rows: Tensor
    held_out: Tensor
    progress: float  # of training: 0 to 1

    def predictor(self, backbone: Backbone) -> Predictor:
        return Predictor(backbone, self.preparation)


class Shown(NamedTuple):
    """Pictures that an objective wants in the report: rows of N images, each as K pictures side by side."""

    title: str
    words: str
    columns: tuple[str, ...]  # what each of the K is
    pixels_NKCSS: Tensor  # uint8


Answers = tuple[Tensor, Tensor]  # logits (N, K) and labels (N) of the images held out


class LossModule(nn.Module):
    """Abstract. What objectives and auxiliary losses have in common: a name, options, curves, and something to tell."""

    name: ClassVar[str]
    Options: ClassVar[type[Section]]
    curves: ClassVar[tuple[CurvePanel, ...]] = ()  # of its parts, beside those that every run has

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__()

    @classmethod
    def resolve(cls, options: Any, task: TaskInfo, choices: Choices) -> None:
        """Before anything is built: choose what is `auto` among the options; what cannot be is refused."""

    def notes(self, choices: Choices, epochs: int) -> None:
        """Once it is built: record the options that the user should hear of, now that the model is known."""


class Objective(LossModule):
    """Abstract. Supervised training uses the model's own classifier; others bring heads of their own."""

    classifies: ClassVar[bool] = False  # trains the model's own classifier; without it the model has none
    needs_labels: ClassVar[bool] = False
    whole_grids: ClassVar[bool] = True  # it has the grids of whole images, which auxiliary losses look at
    judged_by: ClassVar[str]  # what gives the answers
    views: tuple[View, ...]  # of every epoch, where `views_at` does not say otherwise

    def views_at(self, epoch: int, epochs: int) -> tuple[View, ...]:
        """The views of an epoch in a run of so many. What crops are may change while training runs."""
        return self.views

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def after_step(self, backbone: Backbone, ctx: Context) -> None:
        """Called after the optimizer moved: where moving teachers follow."""

    def judge(self, backbone: Backbone, exam: EvalData) -> Score | None:
        """How good the model is so far; None where nothing can be said."""
        raise NotImplementedError(f"{type(self).__name__} has no judge")

    def answers(self, backbone: Backbone, exam: EvalData) -> Answers:
        """What the finished model says about the images held out."""
        raise NotImplementedError(f"{type(self).__name__} gives no answers")

    def shown(self, backbone: Backbone, exam: EvalData) -> Shown | None:
        """Pictures of what the finished model does, where there is something to be seen."""
        return None

    @staticmethod
    def judged_images(trained: int, held_out: int) -> int:
        """How many images one `judge` looks at, for the clock of a budget."""
        return held_out


class Auxiliary(LossModule):
    """Abstract. A loss beside the objective, computed from what the objective saw and from its features.

    The backbone is there for what stands on the features (`classify`, `normed`); a loss never changes it.
    """

    objective_share: float = 1.0  # of the objective's own loss that is left beside this one
    learned_from: tuple[Path, ...] = ()  # models that it learns from: what they have seen, this run has seen

    def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} has no forward")


Kind = TypeVar("Kind", Objective, Auxiliary)


def objectives() -> dict[str, type[Objective]]:
    return _by_name(Objective)


def auxiliaries() -> dict[str, type[Auxiliary]]:
    return _by_name(Auxiliary)


def _by_name(kind: type[Kind]) -> dict[str, type[Kind]]:
    """In the order of their files, whichever of them was imported first."""
    for module in pkgutil.iter_modules(smallvit.objectives.__path__):
        importlib.import_module(f"smallvit.objectives.{module.name}")
    return {cls.name: cls for cls in sorted(_below(kind), key=lambda cls: cls.__module__) if "name" in vars(cls)}


def _below(kind: type[Kind]) -> Iterator[type[Kind]]:
    for cls in kind.__subclasses__():
        yield cls
        yield from _below(cls)


def options_of(
    kind: Mapping[str, type[Objective] | type[Auxiliary]], name: str, given: Mapping[str, Any], key: str,
    flags: Mapping[str, str] = NO_FLAGS,
) -> Section:  # fmt: skip
    """The named part's options with defaults filled in; unknown names and keys are usage errors."""
    if name not in kind:
        raise UsageError(f"unknown {key} {name!r}: {nearest(name, kind) if kind else 'there is none'}")
    try:
        return kind[name].Options.model_validate(dict(given))
    except ValidationError as error:
        inside = f"{key}.{name}." if key == "aux" else f"{key}."
        mistakes = mistakes_in_words(error, kind[name].Options, given, inside=inside, flags=flags)
        raise UsageError(f"{key} {name}: {mistakes}") from None


def all_options(recipe: Recipe, flags: Mapping[str, str] = NO_FLAGS) -> dict[str, Any]:
    """The recipe's sections of objective and auxiliary losses with their defaults filled in.

    What cannot be is refused, by the flag that gave it where there was one.
    """
    name, given = recipe.objective.name, recipe.objective.options
    objective = options_of(objectives(), name, given, "objective", flags)
    losses = {name: options_of(auxiliaries(), name, given, "aux", flags) for name, given in recipe.aux.items()}
    if losses and not objectives()[name].whole_grids:
        raise UsageError(
            f"aux {', '.join(losses)}: with {name} the model sees parts of images, and an auxiliary loss needs whole ones; "
            "leave it out, or take another method"
        )
    return {
        "objective": {"name": name, **objective.model_dump()},
        "aux": {name: options.model_dump() for name, options in losses.items()},
    }


def declared_curves(recipe: Recipe) -> DeclaredCurves:
    """What the losses of a run want drawn in its report."""
    losses = auxiliaries()
    aux = tuple(panel for name in recipe.aux for panel in losses[name].curves)
    return DeclaredCurves(objectives()[recipe.objective.name].curves, aux)
