"""Run folders made up of plausible numbers, written as training writes them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from smallvit import Run

HOSTILE = ["<script>alert(1)</script>", '$x_1$ & "quotes"', "'><img src=x onerror=alert(2)>", "日本語 " * 12]
DIGITS = [str(digit) for digit in range(10)]


def interval(right: float, n: int) -> list[float]:
    """Wilson's 95% interval of a share."""
    share, z = right / n, 1.96
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return [max(0.0, centre - reach), min(1.0, centre + reach)]


def part_result(
    names: list[str], n: int, accuracy: float, rng: np.random.Generator, uneven: bool = False
) -> dict[str, Any]:
    """A result whose numbers agree with each other: all follow from one confusion matrix."""
    K = len(names)
    sizes = [max(1, n // K // (1 + 3 * (row % 2) * uneven)) for row in range(K)]
    confusion_KK = np.zeros((K, K), dtype=int)
    for row in range(K):
        wrong = rng.dirichlet(np.full(K, 0.3)) * (1 - np.eye(K)[row]) + 1e-9
        right = float(np.clip(accuracy + rng.normal(0, 0.04), 0.05, 0.995))
        confusion_KK[row] = rng.multinomial(sizes[row], right * np.eye(K)[row] + (1 - right) * wrong / wrong.sum())
    right_K = confusion_KK.diagonal()
    n = sum(sizes)
    return {
        "n": n,
        "accuracy": right_K.sum() / n,
        "interval": interval(right_K.sum(), n),
        "loss": 0.21,
        "balanced_accuracy": float(np.mean(right_K / sizes)),
        "balanced_interval": [0.8, 0.99],
        "macro_f1": 0.91,
        "macro_f1_interval": [0.85, 0.95],
        "auroc": 0.98,
        "auroc_interval": [0.97, 0.99],
        "per_class": [
            {"name": name, "n": each, "accuracy": right / each, "interval": interval(right, each)}
            for name, right, each in zip(names, right_K.tolist(), sizes, strict=True)
        ],
        "confusion": confusion_KK.tolist(),
    }


def calibration(accuracy: float, n: int, temperature: float | None) -> dict[str, Any]:
    """Too sure by up to 10 points, and half as much after the temperature."""

    def entry(gap: float) -> dict[str, Any]:
        sure = [min(0.99, accuracy - 0.3 + 0.03 * place) for place in range(15)]
        bins = [{"n": n // 15, "confidence": one, "accuracy": max(0.0, one - gap)} for one in sure]
        return {"ece": gap, "ece_if_perfect": 0.02, "loss": 0.3 + gap, "bins": bins}

    found = {"part": "test", "bins": "15 bins of equal mass", "before": entry(0.1)}
    after = {"temperature": temperature, "fitted_on": {"part": "val", "n": 150}, "after": entry(0.05)}
    return found | (after if temperature else {})


def floor(label: str, accuracy: float, n: int) -> dict[str, Any]:
    return {"label": label, "accuracy": accuracy, "interval": interval(accuracy * n, n), "why": ""}


def course(epochs: int, per_epoch: int, accuracy: float, val: bool, rng: np.random.Generator) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    steps = epochs * per_epoch
    for step in range(1, steps + 1):
        done, epoch = step / steps, (step - 1) // per_epoch
        loss = 2.3 * math.exp(-5 * done) + 0.08 + abs(rng.normal(0, 0.06))
        lr = 1e-3 * (min(1, 20 * done) * (1 + math.cos(math.pi * done)) / 2)
        if step % 4 == 0:
            train = {"kind": "train", "epoch": epoch, "step": step, "steps": steps, "loss": loss, "lr": lr}
            records.append(
                train | {"parts": {"ce": loss}, "grad_norm": 2.0, "images_per_second": 480.0, "seconds": 1.0}
            )
        if step % per_epoch == 0:
            now = accuracy * (1 - 0.85 * math.exp(-6 * done)) + rng.normal(0, 0.004)
            seen = {"val_loss": 2.2 * math.exp(-4 * done) + 0.25, "val_accuracy": now} if val else {}
            records.append(
                {
                    "kind": "epoch",
                    "epoch": epoch,
                    "step": step,
                    "train_loss": loss,
                    "best": True,
                    "seconds": 1.0,
                }
                | seen
            )
    return records


def drawings(labels: list[int], channels: int, side: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Discs, rings and bars: enough to tell classes apart by eye."""
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    images = []
    for label in labels:
        turn = label * 0.7
        radius = np.hypot(x + 0.3 * math.cos(turn), y + 0.3 * math.sin(turn))
        shape = np.where(label % 2, np.abs(radius - 0.5) < 0.15, radius < 0.2 + 0.05 * (label % 7))
        tint = 0.5 + 0.5 * np.cos(turn + np.arange(channels))[:, None, None] if channels == 3 else np.ones((1, 1, 1))
        images.append(255 * np.clip(0.85 * shape * tint + rng.normal(0.06, 0.04, (channels, side, side)), 0, 1))
    return np.array(images, dtype=np.uint8).reshape(-1, channels, side, side)


def fabricate(
    path: Path,
    model: str = "vit_nano",
    seed: int = 0,
    names: list[str] | None = None,
    accuracy: float = 0.94,
    floors: tuple[float, ...] = (0.11, 0.885, 0.86),
    val: bool = True,
    part: str = "test",
    images: bool = True,
    channels: int = 1,
    side: int = 28,
    epochs: int = 40,
    skipped: int = 2,
    uneven: bool = False,
    old: bool = False,
) -> Run:
    """A finished run folder at `path`, as training would leave it; an `old` one lacks what 0.1.0 did not write."""
    names = DIGITS if names is None else names
    rng = np.random.default_rng([seed, len(model)])
    n = max(1500, 10 * len(names))
    result = part_result(names, n, accuracy, rng, uneven)
    labels = ("majority class", "k-NN on pixels", "logistic regression on pixels")
    resolved = {
        "data": {
            "source": "photos/",
            "val": 0.15,
            "test": "test",
            "split_seed": 0,
            "img_size": side,
            "in_chans": channels,
        },
        "model": {"name": model, "drop_path": 0.05, "kwargs": {"patch_size": 4}},
        "objective": {"name": "supervised"},
        "aux": {},
        "augment": {"crop": "pad", "flip": 0.0, "scale": [0.35, 1.0]},
        "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.05, "betas": [0.9, 0.999]},
        "epochs": epochs,
        "batch_size": 64,
        "seed": seed,
    }
    recipe = {
        "asked": {"data": {"source": "photos/"}, "model": {"name": model}, "seed": seed, "epochs": "auto"},
        "resolved": resolved,
        "choices": [
            {"key": "batch_size", "value": 64, "why": "1,000 training images: about 16 steps an epoch"},
            {
                "key": "epochs",
                "value": epochs,
                "why": "the budget of 3 minutes, measured at 480 images a second",
            },
            {"key": "optimizer.lr", "value": 0.001, "why": "the usual start for AdamW at this batch size"},
        ],
        "command": f"smallvit train photos/ --model {model} --seed {seed}",
    }
    env = {
        "smallvit": "0.1.0",
        "python": "3.11.7",
        "torch": "2.9.0",
        "platform": "Linux x86_64",
        "cores": 2,
        "device": "cpu",
    }
    sizes = {"train": 1000, "val": 150, "test": result["n"]} if val else {"train": 1150, "test": result["n"]}
    split = {
        "class_names": names,
        "parts": {
            name: {
                "n": size,
                "how": "made up",
                "counts": [row["n"] for row in result["per_class"]],
                "rows": list(range(10_000 * place, 10_000 * place + size)),
            }
            for place, (name, size) in enumerate(sizes.items())
        },
        "source": "photos/",
        "skipped": [{"file": f"photos/{names[0]}/broken_{i}.png", "why": "not an image"} for i in range(skipped)],
    }
    wrong = [(int(rng.integers(len(names))), int(rng.integers(len(names)))) for _ in range(20)]
    results = {
        "evaluated_part": part,
        "parts": {part: result},
        "floors": {label: floor(label, share, n) for label, share in zip(labels, floors, strict=False)},
        "weights": {
            "which": "best" if val else "last",
            "ema": False,
            "epoch": max(1, epochs - 3) if val else epochs,
        },
        "timing": {"train_seconds": 91.3, "total_seconds": 120.0},
        "model": {"name": model, "parameters": 205_000, "grid": [7, 7]},
        "mistakes": [
            {
                "file": f"photos/{names[true]}/image_{i:05d}.png",
                "true": names[true],
                "predicted": names[guess],
                "probability": 0.99 - 0.01 * i,
                "true_probability": 0.005,
            }
            for i, (true, guess) in enumerate(wrong)
        ],
        "examples": [{"label": names[i % len(names)], "file": f"photos/{i}.png"} for i in range(20)],
    }
    if old:
        for name in ("balanced_interval", "macro_f1", "macro_f1_interval", "auroc", "auroc_interval"):
            del result[name]
    else:
        results["calibration"] = calibration(accuracy, n, 1.7 if val else None)
    path.mkdir(parents=True)
    run_files = {"recipe.json": recipe, "env.json": env, "split.json": split, "results.json": results}
    for name, tree in run_files.items():
        (path / name).write_text(json.dumps(tree))
    lines = course(epochs, 16, accuracy, val, rng)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if images:
        examples = drawings([i % len(names) for i in range(20)], channels, side, np.random.default_rng(0))
        mistakes = drawings([true for true, _ in wrong], channels, side, rng)
        save_file({"examples": examples, "mistakes": mistakes}, path / "images.safetensors")
    return Run(path)
