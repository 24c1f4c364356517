"""SimCLR with lightly's transform, projection head and loss for a share of the time, then training on the labels.

The backbone is that of cnn.py, or timm's ResNet-18 with the stem of timm_resnet18.py. Both stages take the whole
network; the second is that of cnn.py.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from cnn import backbone, train
from entry import (
    FINISH_SECONDS,
    Clock,
    Entry,
    enter,
    normalised,
    parameters_of,
    predict,
    set_rate,
    shuffled_batches,
    time_to_predict,
    warm_cosine,
    with_flips,
)
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from PIL import Image
from timm_resnet18 import resnet18
from torch import Tensor, nn


def make_backbone(entry: Entry) -> tuple[nn.Module, int]:
    if entry.settings["backbone"] == "cnn":
        return backbone(entry.side, 16), 128
    model: Any = resnet18(entry, "half")
    model.reset_classifier(0)
    return model, model.num_features


def transform_of(entry: Entry) -> SimCLRTransform:
    """Without blur, as SimCLR has it for small images; digits are not mirrored."""
    pixels_P3 = entry.x_train.reshape(-1, 3) / 255
    return SimCLRTransform(
        input_size=entry.side, cj_strength=0.5, gaussian_blur=0.0, hf_prob=0.5 if entry.mirrors else 0.0,
        min_scale=entry.settings["min_scale"],
        normalize={"mean": pixels_P3.mean(0).tolist(), "std": pixels_P3.std(0).tolist()},
    )  # fmt: skip


def pretrain(entry: Entry, model: nn.Module, features: int, end: float) -> float:
    settings, transform = entry.settings, transform_of(entry)
    head, measure = SimCLRProjectionHead(features, features, 64), NTXentLoss(settings["temperature"])
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], settings["lr"], weight_decay=1e-4)
    images, seen = [Image.fromarray(image) for image in entry.x_train], 0
    batches = shuffled_batches(len(images), 128)
    for share in Clock(end).steps():
        _, rows_B = next(batches)
        views: list[tuple[Tensor, Tensor]] = [transform(images[row]) for row in rows_B.tolist()]
        both = torch.stack([pair[side] for side in (0, 1) for pair in views])
        set_rate(optimizer, settings["lr"] * warm_cosine(share))
        loss = measure(*head(model(both.contiguous(memory_format=torch.channels_last))).chunk(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(rows_B)
    return seen / len(images)


def main() -> None:
    entry = enter(
        __doc__, backbone="cnn", share=0.5, lr=2e-3, temperature=0.2, min_scale=0.2, decay=0.05, batch=64,
        smoothing=0.1, crop="image", flip_test=1,
    )  # fmt: skip
    images, test = normalised(entry)
    body, features = make_backbone(entry)
    model = nn.Sequential(body, nn.Linear(features, entry.classes))
    logits = with_flips(model) if entry.settings["flip_test"] and entry.mirrors else model
    end = entry.seconds - FINISH_SECONDS - time_to_predict(model, logits, test)
    now = time.process_time()
    epochs = pretrain(entry, body, features, now + entry.settings["share"] * (end - now))
    epochs += train(entry, model, images, end)
    entry.finish(predict(model, logits, test), epochs, parameters_of(model))


if __name__ == "__main__":
    main()
