"""Why a model does well or badly: what it looks at, how far, what its layers hold, how like another model it is.

Everything here measures a model on images and changes neither. `diagnose.diagnose` does it all for a run. The names below
are imported when they are first used: the report reads what measurements/ declares, and needs no torch for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smallvit.diagnosis.alignment import cka, feature_cka
    from smallvit.diagnosis.attended import locality
    from smallvit.diagnosis.attention import attention_maps, head_token_looks, looks, rollout, rollout_looks
    from smallvit.diagnosis.featuremaps import feature_maps

__all__ = [
    "attention_maps",
    "cka",
    "feature_cka",
    "feature_maps",
    "head_token_looks",
    "locality",
    "looks",
    "rollout",
    "rollout_looks",
]

# No module here has one of these names: a module that was imported would win over a lazy name.
_HOME = {"cka": "alignment", "feature_cka": "alignment", "feature_maps": "featuremaps", "locality": "attended"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'smallvit.diagnosis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"smallvit.diagnosis.{_HOME.get(name, 'attention')}"), name)


def __dir__() -> list[str]:
    return [*__all__]
