"""Why a model does well or badly: what it looks at, how far, what its layers hold, how like another model it is.

Everything here measures a model on images and changes neither. `diagnose.diagnose` does it all for a run.
"""

from smallvit.diagnosis.attended import locality
from smallvit.diagnosis.attention import attention_maps, head_token_looks, looks, rollout, rollout_looks
from smallvit.diagnosis.cka import cka, feature_cka
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
