"""What an objective and an auxiliary loss are, and how they are found.

An objective owns its loss and its extra heads, never the backbone. A new one is a module in this folder with a
final subclass that names itself and lists its options; nothing else has to change.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import ValidationError
from torch import nn

import smallvit.objectives
from smallvit.errors import UsageError, nearest
from smallvit.models.features import Backbone
from smallvit.recipe import Section, explain
from smallvit.types import Batch, Context, Features, Loss, View


class Setting(NamedTuple):
    """What an objective may want to know before it builds its heads."""

    num_classes: int
    num_images: int  # rows of the whole ImageSet: an instance head has one output for each
    img_size: int
    epochs: int


class Objective(nn.Module):
    """Abstract. Supervised training uses the model's own classifier; others bring heads of their own."""

    name: ClassVar[str]
    Options: ClassVar[type[Section]]
    views: tuple[View, ...]

    def __init__(self, backbone: Backbone, options: Any, setting: Setting) -> None:
        super().__init__()

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def after_step(self, backbone: Backbone, ctx: Context) -> None:
        """Called after the optimizer moved: where moving teachers follow."""


class Auxiliary(nn.Module):
    """Abstract. A loss beside the objective, computed from the features the objective already has."""

    name: ClassVar[str]
    Options: ClassVar[type[Section]]

    def __init__(self, backbone: Backbone, options: Any, setting: Setting) -> None:
        super().__init__()

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
    return {cls.name: cls for cls in kind.__subclasses__()}


def options_of(
    kind: Mapping[str, type[Objective] | type[Auxiliary]], name: str, given: Mapping[str, Any], key: str
) -> Section:
    """The named part's options with defaults filled in; unknown names and keys are usage errors."""
    if name not in kind:
        raise UsageError(f"unknown {key} {name!r}: {nearest(name, kind) if kind else 'there is none'}")
    try:
        return kind[name].Options.model_validate(dict(given))
    except ValidationError as error:
        raise UsageError(f"{key} {name}: {explain(error, kind[name].Options)}") from None
