"""Which settings of each rival are tried before the contest: six of each, the same for every set.

The networks have two more in bf16, which ours takes by itself where the processor is faster with it. The best on the
images to tune on is taken, for every set by itself.
"""

from __future__ import annotations

Settings = dict[str, float | int | str]

TRIES: dict[str, list[Settings]] = {
    "cnn": [
        {},  # as described in its file
        {"lr": 1e-3},
        {"lr": 4e-3},
        {"crop": "image", "flip_test": 1},
        {"width": 24, "flip_test": 1},
        {"batch": 32, "flip_test": 1},
        {"crop": "image", "flip_test": 1, "bf16": 1},
        {"batch": 32, "flip_test": 1, "bf16": 1},
    ],
    "airbench": [
        {"muon_lr": 0.06},
        {"muon_lr": 0.12},
        {"muon_lr": 0.24},
        {"muon_lr": 0.0, "sgd_lr": 0.2},
        {"muon_lr": 0.12, "width": 48},
        {"muon_lr": 0.12, "shift": 4},
        {"muon_lr": 0.12, "width": 48, "bf16": 1},
        {"muon_lr": 0.12, "width": 64, "bf16": 1},
    ],
    "timm_resnet18": [
        {"stem": "cifar"},
        {"stem": "half"},
        {"stem": "half", "augment": "light"},
        {"stem": "imagenet"},
        {"stem": "imagenet", "augment": "light"},
        {"stem": "half", "augment": "light", "lr": 3e-3},
        {"stem": "imagenet", "augment": "light", "bf16": 1},
        {"stem": "half", "augment": "light", "lr": 3e-3, "bf16": 1},
    ],
    "hog_svm": [
        {"c": 5e-4},
        {"c": 5e-3},
        {"c": 5e-5},
        {"c": 5e-4, "mirrored": 1},
        {"c": 5e-4, "cells": 4},
        {"c": 5e-4, "colour": 0},
    ],
    "timm_deit_tiny": [
        {"cells": 8},
        {"cells": 8, "augment": "light"},
        {"cells": 4},
        {"cells": 4, "augment": "light"},
        {"cells": 4, "augment": "light", "lr": 5e-4},
        {"cells": 4, "augment": "light", "batch": 32, "lr": 5e-4},
        {"cells": 4, "augment": "light", "bf16": 1},
        {"cells": 4, "augment": "light", "batch": 32, "lr": 5e-4, "bf16": 1},
    ],
    "lightly_simclr": [
        {"share": 0.5},
        {"share": 0.25},
        {"share": 0.75},
        {"share": 0.5, "temperature": 0.5},
        {"share": 0.5, "min_scale": 0.08},
        {"share": 0.5, "backbone": "resnet18", "lr": 1e-3},
    ],
}
