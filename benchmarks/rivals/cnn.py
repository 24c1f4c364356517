"""A plain convolutional network, as anyone writes it in sixty lines.

3x3 convolutions with BatchNorm and GELU; a stem of 16 channels (stride 2 from 64 px on), then three times: halve the
side, double the width, one residual pair of convolutions; mean pool. AdamW, warm-up and cosine by elapsed time, padded
crop with one offset for a batch, flip, label smoothing. The last weights are judged once.
"""

from __future__ import annotations

import torch
from entry import (
    FINISH_SECONDS,
    Clock,
    Entry,
    enter,
    in_bf16,
    normalised,
    parameters_of,
    predict,
    set_rate,
    shuffled_batches,
    time_to_predict,
    warm_cosine,
    with_flips,
)
from torch import Tensor, nn
from torch.nn import functional as F


def convolution(channels: int, width: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.GELU())


class ResidualPair(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.pair = nn.Sequential(convolution(width, width), convolution(width, width))

    def forward(self, cells_BCHW: Tensor) -> Tensor:
        return cells_BCHW + self.pair(cells_BCHW)


def backbone(side: int, width: int) -> nn.Sequential:
    """Images to a vector of 8 * width."""
    layers: list[nn.Module] = [convolution(3, width, stride=2 if side >= 64 else 1)]
    for _ in range(3):
        layers += [convolution(width, 2 * width, stride=2), ResidualPair(2 * width)]
        width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(memory_format=torch.channels_last)


def padded_crop(images_BCHW: Tensor, pad: int, each: bool) -> Tensor:
    """Crops of the images with a border of zeros: one offset for the batch, or one for each image."""
    side = images_BCHW.shape[2]
    padded = F.pad(images_BCHW, (pad,) * 4)
    if not each:
        top, left = torch.randint(2 * pad + 1, (2,)).tolist()
        return padded[:, :, top : top + side, left : left + side]
    offsets_B2 = torch.randint(2 * pad + 1, (len(padded), 2)).tolist()
    return torch.stack(
        [image[:, top : top + side, left : left + side] for image, (top, left) in zip(padded, offsets_B2, strict=True)]
    )


def flip_some(images_BCHW: Tensor) -> Tensor:
    return torch.where(torch.rand(len(images_BCHW), 1, 1, 1) < 0.5, images_BCHW.flip(3), images_BCHW)


def train(entry: Entry, model: nn.Module, images: Tensor, end: float) -> float:
    """Train until the processor time is `end`; the number of epochs that were made."""
    settings, labels = entry.settings, torch.from_numpy(entry.y_train).long()
    optimizer = torch.optim.AdamW(model.parameters(), settings["lr"], weight_decay=settings["decay"])
    batches, seen = shuffled_batches(len(images), settings["batch"]), 0
    for share in Clock(end).steps():
        _, rows_B = next(batches)
        batch = padded_crop(images[rows_B], entry.side // 8, settings["crop"] == "image")
        batch = flip_some(batch) if entry.mirrors else batch
        set_rate(optimizer, settings["lr"] * warm_cosine(share))
        batch = batch.contiguous(memory_format=torch.channels_last)
        loss = F.cross_entropy(model(batch), labels[rows_B], label_smoothing=settings["smoothing"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(rows_B)
    return seen / len(images)


def main() -> None:
    entry = enter(__doc__, lr=2e-3, decay=0.05, batch=64, width=16, smoothing=0.1, crop="batch", flip_test=0, bf16=0)
    images, test = normalised(entry)
    width = entry.settings["width"]
    model = nn.Sequential(backbone(entry.side, width), nn.Linear(8 * width, entry.classes))
    model = in_bf16(model) if entry.settings["bf16"] else model
    logits = with_flips(model) if entry.settings["flip_test"] and entry.mirrors else model
    end = entry.seconds - FINISH_SECONDS - time_to_predict(model, logits, test)
    epochs = train(entry, model, images, end)
    entry.finish(predict(model, logits, test), epochs, parameters_of(model))


if __name__ == "__main__":
    main()
