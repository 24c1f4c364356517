"""smallvit: train vision transformers from scratch on small image sets, and see why they fail or work.

The public names are imported when they are first used, so that `import smallvit` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smallvit.api import (
        Explanation,
        Export,
        Group,
        Prediction,
        Run,
        compare,
        curve,
        diagnose,
        embed,
        evaluate,
        explain,
        export,
        make_recipe,
        nearest,
        predict,
        predict_proba,
        pretrain,
        probe,
        report_study,
        resume,
        run_study,
        train,
        train_longer,
        train_seeds,
        tune,
    )
    from smallvit.api import report as write_report
    from smallvit.checking.check import CheckReport, check
    from smallvit.demo import demo as run_demo
    from smallvit.doctor.doctor import doctor as run_doctor
    from smallvit.errors import SmallvitError, UsageError
    from smallvit.recipe import Recipe
    from smallvit.serving.app import app

__version__ = "0.2.0"
__all__ = [
    "CheckReport",
    "Explanation",
    "Export",
    "Group",
    "Prediction",
    "Recipe",
    "Run",
    "SmallvitError",
    "UsageError",
    "app",
    "check",
    "compare",
    "curve",
    "diagnose",
    "embed",
    "evaluate",
    "explain",
    "export",
    "make_recipe",
    "nearest",
    "predict",
    "predict_proba",
    "pretrain",
    "probe",
    "report_study",
    "resume",
    "run_demo",
    "run_doctor",
    "run_study",
    "train",
    "train_longer",
    "train_seeds",
    "tune",
    "write_report",
]

# Where a name is not its own in api.py. `demo`, `doctor` and `report` are modules too, and a module wins over a lazy name.
_HOME = {
    "CheckReport": ("checking.check", "CheckReport"),
    "Recipe": ("recipe", "Recipe"),
    "SmallvitError": ("errors", "SmallvitError"),
    "UsageError": ("errors", "UsageError"),
    "app": ("serving.app", "app"),
    "check": ("checking.check", "check"),
    "run_demo": ("demo", "demo"),
    "run_doctor": ("doctor.doctor", "doctor"),
    "write_report": ("api", "report"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'smallvit' has no attribute {name!r}")
    module, attribute = _HOME.get(name, ("api", name))
    return getattr(importlib.import_module(f"smallvit.{module}"), attribute)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
