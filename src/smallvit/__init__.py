"""smallvit: train vision transformers from scratch on small image sets, and see why they fail or work.

The public names are imported when they are first used, so that `import smallvit` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smallvit.api import Prediction, evaluate, make_recipe, predict, report, resume, train, train_seeds
    from smallvit.demo import demo
    from smallvit.errors import SmallvitError, UsageError
    from smallvit.recipe import Recipe
    from smallvit.run import Run

__version__ = "0.1.0"
__all__ = [
    "Prediction",
    "Recipe",
    "Run",
    "SmallvitError",
    "UsageError",
    "demo",
    "evaluate",
    "make_recipe",
    "predict",
    "report",
    "resume",
    "train",
    "train_seeds",
]

_HOME = {"Recipe": "recipe", "Run": "run", "SmallvitError": "errors", "UsageError": "errors", "demo": "demo"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'smallvit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"smallvit.{_HOME.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
