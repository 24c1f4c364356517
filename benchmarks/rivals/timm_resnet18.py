"""timm's ResNet-18 in timm's pipeline, with a stem for small images.

`stem` is cifar (3x3, stride 1, no pooling), half (3x3, stride 2, no pooling) or imagenet (as it comes: 7x7, stride 2,
and a pooling). At 64 px each of the first two has twice the stride.
"""

from __future__ import annotations

import timm
from entry import Entry, enter
from timm_pipeline import run
from torch import nn


def resnet18(entry: Entry, stem: str) -> nn.Module:
    model = timm.create_model("resnet18", num_classes=entry.classes)
    if stem != "imagenet":
        stride = {"cifar": 1, "half": 2}[stem] * (2 if entry.side >= 64 else 1)
        model.conv1 = nn.Conv2d(3, 64, 3, min(stride, 2), 1, bias=False)
        model.maxpool = nn.MaxPool2d(3, 2, 1) if stride == 4 else nn.Identity()
    return model


def main() -> None:
    entry = enter(__doc__, stem="half", lr=1e-3, decay=0.05, batch=64, augment="usual", bf16=0)
    run(entry, resnet18(entry, entry.settings["stem"]))


if __name__ == "__main__":
    main()
