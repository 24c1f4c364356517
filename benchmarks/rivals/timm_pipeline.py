"""timm's own pipeline around one of its models, cut to the time: what timm_resnet18.py and timm_deit_tiny.py share.

timm's transforms on single images (RandAugment, random erasing), Mixup and CutMix, AdamW, and its cosine schedule,
which is stepped by elapsed time. `light` leaves crops of at least a third of the area and flips only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from entry import FINISH_SECONDS, Clock, Entry, in_bf16, parameters_of, predict, time_to_predict
from PIL import Image
from timm.data import Mixup, auto_augment, create_loader
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import Tensor, nn
from torch.utils.data import Dataset

TICKS = 1000  # of the schedule
USUAL = {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25, "re_mode": "pixel"}
LIGHT = {"scale": (0.35, 1.0)}


def posterized(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    """RandAugment asks for no bits at all now and then: Pillow used to make a black image of that, and 13 refuses it."""
    return auto_augment.posterize(image, bits) if bits else Image.new(image.mode, image.size)


auto_augment.NAME_TO_OP["PosterizeIncreasing"] = posterized


class PilImages(Dataset[Any]):
    """Images as timm's transforms take them; its loader sets `transform`."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images = [Image.fromarray(image) for image in images]
        self.labels, self.transform = labels.tolist(), None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        image = self.images[row]
        return (self.transform(image) if self.transform else image), self.labels[row]


def loader_of(entry: Entry, training: bool) -> Any:
    pixels_P3 = entry.x_train.reshape(-1, 3) / 255
    images, labels = (entry.x_train, entry.y_train) if training else (entry.x_test, entry.y_test)
    augment = {} if not training else LIGHT if entry.settings["augment"] == "light" else USUAL
    return create_loader(
        PilImages(images, labels), (3, entry.side, entry.side), entry.settings["batch"], is_training=training,
        use_prefetcher=False, num_workers=0, persistent_workers=False, device=torch.device("cpu"), crop_pct=1.0,
        mean=pixels_P3.mean(0).tolist(), std=pixels_P3.std(0).tolist(), interpolation="bicubic",
        hflip=0.5 if entry.mirrors else 0.0, **augment,
    )  # fmt: skip


def mixing(entry: Entry) -> Mixup:
    light = entry.settings["augment"] == "light"
    return Mixup(
        mixup_alpha=0.0 if light else 0.8, cutmix_alpha=0.0 if light else 1.0, label_smoothing=0.1,
        num_classes=entry.classes, prob=0.0 if light else 1.0,
    )  # fmt: skip


def run(entry: Entry, model: nn.Module) -> None:
    settings = entry.settings
    model = in_bf16(model) if settings["bf16"] else model
    test = torch.cat([images for images, _ in loader_of(entry, training=False)])
    optimizer = create_optimizer_v2(model, "adamw", lr=settings["lr"], weight_decay=settings["decay"])
    schedule = CosineLRScheduler(optimizer, TICKS, warmup_t=TICKS // 20, warmup_lr_init=1e-6, warmup_prefix=True)
    mix, measure, seen = mixing(entry), SoftTargetCrossEntropy(), 0
    end = entry.seconds - FINISH_SECONDS - time_to_predict(model, model, test)
    batches = endless(loader_of(entry, training=True))
    for share in Clock(end).steps():
        schedule.step(int(share * TICKS))
        images, targets = mix(*next(batches))
        loss = measure(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += len(images)
    entry.finish(predict(model, model, test), seen / len(entry.y_train), parameters_of(model))


def endless(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader
