"""What a rival needs to enter the contest: its command line, the clock that it is stopped by, and its result.

    python benchmarks/rivals/cnn.py --data set.npz --seconds 240 --seed 0 --out result.json [--set lr=0.004 ...]

The clock is the processor time of the whole process, so the start of Python, imports and reading the images count.
The set is an .npz file with x_train, y_train, x_test, y_test (uint8, N x S x S x 3) and class_names.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FINISH_SECONDS = 2.5  # to write the result and to end Python
PREDICTION_MARGIN = 1.2
PREDICTED_AT_ONCE = 100
WARM_UP = 0.05  # of the training time


@dataclass
class Entry:
    """A set and what was asked."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    class_names: list[str]
    seconds: float
    seed: int
    out: Path
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def side(self) -> int:
        return self.x_train.shape[1]

    @property
    def mirrors(self) -> bool:
        """Whether a mirrored image keeps its class: digits and letters do not."""
        return any(len(name) > 1 for name in self.class_names)

    def finish(self, predictions: Any, epochs: float, parameters: int) -> None:
        """Judge the predictions, once, and write the result."""
        predictions = np.asarray(predictions).astype(int)
        right = int((predictions == self.y_test).sum())
        result = {
            "accuracy": right / len(self.y_test), "correct": right, "n": len(self.y_test), "epochs": round(epochs, 2),
            "parameters": parameters, "settings": self.settings, "cpu_seconds": round(time.process_time(), 1),
            "predictions": predictions.tolist(),
        }  # fmt: skip
        self.out.write_text(json.dumps(result))
        print(f"{right} of {len(self.y_test)} right, {epochs:.1f} epochs, {time.process_time():.1f} s")


def enter(what: str | None, **defaults: Any) -> Entry:
    """Read the command line. `defaults` are the settings that --set may change; they also say its types."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=f"one of {defaults}")
    given = parser.parse_args()
    settings = dict(defaults)
    for pair in given.set:
        key, _, value = pair.partition("=")
        if key not in defaults:
            parser.error(f"--set {pair}: there is no {key}; choose from {', '.join(defaults)}")
        settings[key] = type(defaults[key])(value)
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    np.random.seed(given.seed)  # noqa: NPY002  (timm's and lightly's transforms draw from it)
    with np.load(given.data) as data:
        arrays = [data[key] for key in ("x_train", "y_train", "x_test", "y_test")]
        names = [str(name) for name in data["class_names"]]
    return Entry(*arrays, names, given.seconds, given.seed, given.out, settings)


class Clock:
    """How much of the time for training has passed, 0 to 1; training may be one of several stages."""

    def __init__(self, end: float) -> None:
        self.start, self.end = time.process_time(), end
        self.last, self.longest = self.start, 0.0

    def steps(self) -> Iterator[float]:
        """The share of the time that has passed, before every step, as long as one more step fits."""
        while True:
            now = time.process_time()
            self.longest = 0.0 if self.last == self.start else max(0.9 * self.longest, now - self.last)
            self.last = now
            if now + self.longest >= self.end:
                return
            yield (now - self.start) / (self.end - self.start)


def in_bf16(model: nn.Module) -> nn.Module:
    """The model, multiplying in bf16 where torch's autocast would; its answers are fp32, as a loss needs them."""
    usual = model.forward

    def forward(images: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            answers: Tensor = usual(images)
        return answers.float()

    model.forward = forward  # type: ignore[method-assign]
    return model


def warm_cosine(share: float) -> float:
    """Of the peak rate: a linear warm-up, then a half cosine to zero."""
    if share < WARM_UP:
        return max(share / WARM_UP, 0.01)
    return 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def normalised(entry: Entry) -> tuple[Tensor, Tensor]:
    """Training and test images, N x 3 x S x S, with the training images' mean and deviation of every channel."""
    train, test = (
        torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last).float().div_(255)
        for x in (entry.x_train, entry.x_test)
    )
    mean, deviation = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
    return (train - mean) / deviation, (test - mean) / deviation


def shuffled_batches(count: int, size: int) -> Iterator[tuple[int, Tensor]]:
    """(epoch, rows) for ever; the last rows of an epoch that fill no batch are left out."""
    size, epoch = min(size, count), 0
    while True:
        for rows_B in torch.randperm(count).split(size):
            if len(rows_B) == size:
                yield epoch, rows_B
        epoch += 1


def with_flips(model: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Logits of an image and of its mirror image, together."""
    return lambda images: model(images) + model(images.flip(3))


@torch.inference_mode()
def predict(model: nn.Module, logits: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    model.eval()
    return torch.cat([logits(part).argmax(1) for part in images.split(PREDICTED_AT_ONCE)])


def time_to_predict(model: nn.Module, logits: Callable[[Tensor], Tensor], images: Tensor) -> float:
    """Seconds that `predict` will take, with a margin; the model is left in training mode."""
    few = images[:PREDICTED_AT_ONCE]
    predict(model, logits, few)
    before = time.process_time()
    predict(model, logits, few)
    seconds = (time.process_time() - before) * len(images) / len(few)
    model.train()
    return PREDICTION_MARGIN * seconds


def parameters_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
