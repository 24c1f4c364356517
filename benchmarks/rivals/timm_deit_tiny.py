"""timm's DeiT-Tiny in timm's pipeline; `cells` is how many patches an image is wide."""

from __future__ import annotations

import timm
from entry import enter
from timm_pipeline import run


def main() -> None:
    entry = enter(__doc__, cells=8, lr=1e-3, decay=0.05, batch=64, augment="usual", drop_path=0.1, bf16=0)
    settings = entry.settings
    model = timm.create_model(
        "deit_tiny_patch16_224", num_classes=entry.classes, img_size=entry.side,
        patch_size=entry.side // settings["cells"], drop_path_rate=settings["drop_path"],
    )  # fmt: skip
    run(entry, model)


if __name__ == "__main__":
    main()
