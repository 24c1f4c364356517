"""What an objective and an auxiliary loss are, and how they are found.

An objective owns its loss and its extra heads, never the backbone. A new one is a module in this folder with a
final subclass that names itself, lists its options and declares its curves; the first line of the module is its line of
help. Nothing else has to change.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import ValidationError
from torch import Tensor, nn

import smallvit.objectives
from smallvit.data.loader import DeviceImages
from smallvit.errors import UsageError, nearest
from smallvit.evaluation.metrics import Score
from smallvit.explain import NO_FLAGS, explain
from smallvit.models.features import Backbone
from smallvit.recipe import Recipe, Section
from smallvit.runs.curves import CurvePanel, DeclaredCurves
from smallvit.types import Batch, Context, Features, Loss, View


class TaskInfo(NamedTuple):
    """What an objective may want to know before it builds its heads."""

    num_classes: int
    num_images: int  # rows of the whole ImageSet
    img_size: int
    epochs: int
    train_rows: Tensor | None = None  # those of the training part; None: all

    @property
    def num_trained(self) -> int:
        """Images of the training part: the instances of self-supervised methods."""
        return self.num_images if self.train_rows is None else len(self.train_rows)


class EvalData(NamedTuple):
    """The images that a model is judged by: those it was trained on, and those held out (maybe none)."""

    images: DeviceImages
    img_size: int
    num_classes: int  # 1: there are no labels
    train_rows: Tensor
    held_out: Tensor
    progress: float  # of training: 0 to 1

    def plain(self, rows: Tensor) -> Any:
        return self.images.plain(rows, self.img_size)


Answers = tuple[Tensor, Tensor]  # logits (N, K) and labels (N) of the images held out


class LossModule(nn.Module):
    """Abstract. What objectives and auxiliary losses have in common: a name, options, curves, and something to tell."""

    name: ClassVar[str]
    Options: ClassVar[type[Section]]
    curves: ClassVar[tuple[CurvePanel, ...]] = ()  # of its parts, beside those that every run has

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__()

    def notes(self, epochs: int) -> dict[str, tuple[Any, str]]:
        """Options that the user should hear of in this run, now that the model is known: key -> value, why."""
        return {}


class Objective(LossModule):
    """Abstract. Supervised training uses the model's own classifier; others bring heads of their own."""

    classifies: ClassVar[bool] = False  # trains the model's own classifier; without it the model has none
    needs_labels: ClassVar[bool] = False
    judged_by: ClassVar[str]  # what gives the answers
    views: tuple[View, ...]

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

    @staticmethod
    def judged_images(trained: int, held_out: int) -> int:
        """How many images one `judge` looks at, for the clock of a budget."""
        return held_out

    @classmethod
    def choices(cls, options: Any, setting: TaskInfo) -> dict[str, tuple[Any, str]]:
        """What `auto` among the options becomes, and why; what cannot be is refused."""
        return {}


class Auxiliary(LossModule):
    """Abstract. A loss beside the objective, computed from the features the objective already has."""

    def forward(self, features: Features, batch: Batch, ctx: Context) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} has no forward")


Kind = TypeVar("Kind", Objective, Auxiliary)


def objectives() -> dict[str, type[Objective]]:
    return _found(Objective)


def auxiliaries() -> dict[str, type[Auxiliary]]:
    return _found(Auxiliary)


def _found(kind: type[Kind]) -> dict[str, type[Kind]]:
    for module in pkgutil.iter_modules(smallvit.objectives.__path__):
        importlib.import_module(f"smallvit.objectives.{module.name}")
    return {cls.name: cls for cls in _below(kind) if "name" in vars(cls)}


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
        mistakes = explain(error, kind[name].Options, given, inside=inside, flags=flags)
        raise UsageError(f"{key} {name}: {mistakes}") from None


def all_options(recipe: Recipe, flags: Mapping[str, str] = NO_FLAGS) -> dict[str, Any]:
    """The recipe's sections of objective and auxiliary losses with their defaults filled in.

    What cannot be is refused, by the flag that gave it where there was one.
    """
    name, given = recipe.objective.name, recipe.objective.options
    objective = options_of(objectives(), name, given, "objective", flags)
    losses = {name: options_of(auxiliaries(), name, given, "aux", flags) for name, given in recipe.aux.items()}
    return {
        "objective": {"name": name, **objective.model_dump()},
        "aux": {name: options.model_dump() for name, options in losses.items()},
    }


def declared_curves(recipe: Recipe) -> DeclaredCurves:
    """What the losses of a run want drawn in its report."""
    losses = auxiliaries()
    aux = tuple(panel for name in recipe.aux for panel in losses[name].curves)
    return DeclaredCurves(objectives()[recipe.objective.name].curves, aux)
