"""What stands below the help of each command: a few lines to be copied."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("smallvit demo", "smallvit demo --quick"),
    "doctor": ("smallvit doctor", "smallvit doctor --json"),
    "check": ("smallvit check photos/", "smallvit check photos/ --fast --json"),
    "train": (
        "smallvit train photos/",
        "smallvit train photos/ --budget 20m --explain",
        "smallvit train photos/ --model deit_tiny --img-size 64 --epochs 100",
        "smallvit train photos/ --folds 5 --jobs 2",
        "smallvit train --continue runs/a --epochs 50",
    ),
    "pretrain": ("smallvit pretrain photos/ --method simclr --out runs/ssl", "smallvit train photos/ --init runs/ssl"),
    "tune": ("smallvit tune photos/ --budget 2h --out runs/tuned",),
    "curve": ("smallvit curve photos/ --budget 20m", "smallvit curve photos/ --shares 0.1,0.3,1 --seeds 3 --jobs 2"),
    "probe": ("smallvit probe runs/ssl --knn",),
    "resume": ("smallvit resume runs/a", "smallvit resume runs/a --data moved/photos/"),
    "evaluate": ("smallvit evaluate runs/a", "smallvit evaluate runs/a --part val --json", "smallvit evaluate runs/a --data other/", "smallvit evaluate runs/a --reject 0.05"),
    "predict": ("smallvit predict runs/a new.jpg", "smallvit predict runs/a new/ --csv labels.csv --top 3", "smallvit predict runs/a new/ --nearest 3"),
    "app": ("smallvit app runs/a", "smallvit app runs/a --port 8000 --no-browser"),
    "embed": ("smallvit embed runs/a new/ --npz features.npz",),
    "export": ("smallvit export runs/a --onnx", "smallvit export runs/a --hf model/"),
    "diagnose": ("smallvit diagnose runs/a", "smallvit diagnose runs/a --against resnet_nano"),
    "compare": ("smallvit compare runs/a runs/b", "smallvit compare runs/a runs/b --cka"),
    "report": ("smallvit report runs/a", "smallvit report runs/a runs/b --out both.html"),
    "list": ("smallvit list models", "smallvit list models 'convnext*'", "smallvit list recipes"),
    "recipe show": ("smallvit recipe show lu2022-cifar",),
    "study list": ("smallvit study list",),
    "study show": ("smallvit study show drloc-flowers", "smallvit study show my.toml --scale paper"),
    "study run": ("smallvit study run drloc-flowers --data flowers/ --budget 2h",),
    "study report": ("smallvit study report runs/studies/drloc-flowers-laptop",),
    "study claims": ("smallvit study claims", "smallvit study claims --json"),
    "study queue": ("smallvit study queue", "smallvit study queue --json"),
    "cache list": ("smallvit cache list",),
    "cache clear": ("smallvit cache clear --stale", "smallvit cache clear photos/"),
}  # fmt: skip


def examples(command: str) -> str:
    """As click takes it: the mark keeps it from joining the lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES.get(command, ()))
