"""A small network after the ideas of airbench, the record runs on CIFAR-10, sized for minutes of one processor core.

A first layer of fixed filters that whiten the training patches (principal components and their negatives), three
blocks of two convolutions that start as partial identities, BatchNorm without scales, scaled logits; Muon or SGD with
Nesterov momentum and a triangular rate, high rates for biases, slow weights that pull the fast ones back (lookahead),
flips that alternate from epoch to epoch, label smoothing, and the mirror image in the prediction.
"""

from __future__ import annotations

import torch
from cnn import padded_crop
from entry import (
    FINISH_SECONDS,
    Clock,
    Entry,
    enter,
    in_bf16,
    normalised,
    parameters_of,
    predict,
    shuffled_batches,
    time_to_predict,
    with_flips,
)
from torch import Tensor, nn
from torch.nn import functional as F

COMPONENTS = 12  # each gives two filters
PATCHES = 20_000
LOOKAHEAD_STEPS = 5
MOMENTUM, MUON_MOMENTUM = 0.85, 0.6
BIAS_RATE = 16.0  # times the rate of the other weights
PEAK = 0.2  # share of the time at which the rate is highest


class Block(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        for conv in (self.first, self.second):
            nn.init.dirac_(conv.weight.data[: conv.in_channels])
        for norm in self.norms:
            norm.weight.requires_grad_(False)

    def forward(self, cells_BCHW: Tensor) -> Tensor:
        cells_BCHW = F.gelu(self.norms[0](F.max_pool2d(self.first(cells_BCHW), 2)))
        return F.gelu(self.norms[1](self.second(cells_BCHW)))


class Whitening(nn.Conv2d):
    """Filters from the training patches, fixed; at 64 px they are 4 px wide with stride 2, else 2 px with stride 1."""

    def __init__(self, images: Tensor) -> None:
        size = 4 if images.shape[2] >= 64 else 2
        super().__init__(3, 2 * COMPONENTS, size, stride=size // 2)
        few = images[torch.randperm(len(images))[:500]]
        patches_NP = F.unfold(few, size, stride=size).transpose(1, 2).reshape(-1, 3 * size * size)
        patches_NP = patches_NP[torch.randperm(len(patches_NP))[:PATCHES]]
        values_P, vectors_PP = torch.linalg.eigh(torch.cov(patches_NP.T))
        scaled = (vectors_PP / (values_P + 5e-4).sqrt()).T.flip(0)[:COMPONENTS].reshape(-1, 3, size, size)
        self.weight.data.copy_(torch.cat([scaled, -scaled]))
        self.weight.requires_grad_(False)
        nn.init.zeros_(self.bias)


class Network(nn.Module):
    def __init__(self, images: Tensor, classes: int, width: int) -> None:
        super().__init__()
        widths = (width, 2 * width, 4 * width)
        self.whiten = Whitening(images)
        self.blocks = nn.Sequential(*map(Block, (2 * COMPONENTS, *widths), widths))
        self.head = nn.Linear(widths[-1], classes, bias=False)
        self.scale = 1 / 9

    def forward(self, images_BCHW: Tensor) -> Tensor:
        cells_BCHW = self.blocks(F.gelu(self.whiten(images_BCHW)))
        return self.head(cells_BCHW.amax((2, 3))) * self.scale


class Muon(torch.optim.Optimizer):
    """Steps along the nearest orthogonal matrix of the momentum, for filters of fixed norm."""

    def __init__(self, filters: list[nn.Parameter], lr: float) -> None:
        super().__init__(filters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.mul_(MUON_MOMENTUM).add_(p.grad)
                ahead = p.grad.add(momentum, alpha=MUON_MOMENTUM)
                p.mul_(len(p) ** 0.5 / p.norm())
                p.add_(orthogonal(ahead.reshape(len(p), -1)).view_as(p), alpha=-group["lr"])


def orthogonal(matrix: Tensor) -> Tensor:
    """Three steps of a quintic Newton-Schulz iteration: singular values come near one, vectors stay."""
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(3):
        square = x @ x.T
        x = 3.4445 * x + (2.0315 * square @ square - 4.775 * square) @ x
    return x


def optimizers(model: Network, settings: dict[str, float]) -> list[torch.optim.Optimizer]:
    filters = [conv.weight for block in model.blocks for conv in (block.first, block.second)]
    biases = [model.whiten.bias, *(norm.bias for block in model.blocks for norm in block.norms)]
    rate, decay = settings["sgd_lr"], settings["decay"]
    muon = settings["muon_lr"] > 0
    groups = [
        {"params": [model.head.weight] + ([] if muon else filters), "lr": rate, "weight_decay": decay / rate},
        {"params": biases, "lr": BIAS_RATE * rate, "weight_decay": decay / rate / BIAS_RATE},
    ]
    sgd = torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True)
    return [sgd, Muon(filters, settings["muon_lr"])] if muon else [sgd]


class Lookahead:
    """Slow weights: an average of the fast ones, which start again from it every few steps."""

    def __init__(self, model: nn.Module) -> None:
        self.fast = [value for value in model.state_dict().values() if value.is_floating_point()]
        self.slow = [value.clone() for value in self.fast]

    def update(self, keep: float) -> None:
        for slow, fast in zip(self.slow, self.fast, strict=True):
            slow.lerp_(fast, 1 - keep)
            fast.copy_(slow)


def train(entry: Entry, model: Network, images: Tensor, end: float) -> float:
    settings, labels = entry.settings, torch.from_numpy(entry.y_train).long()
    used = optimizers(model, settings)
    peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in used]
    first_flip_N = torch.rand(len(images)) < 0.5
    batches, lookahead, seen = shuffled_batches(len(images), settings["batch"]), Lookahead(model), 0
    for number, share in enumerate(Clock(end).steps(), start=1):
        epoch, rows_B = next(batches)
        batch = padded_crop(images[rows_B], settings["shift"] * entry.side // 32, each=True)
        if entry.mirrors:
            flipped_B = first_flip_N[rows_B] ^ bool(epoch % 2)
            batch = torch.where(flipped_B[:, None, None, None], batch.flip(3), batch)
        loss = F.cross_entropy(
            model(batch.contiguous(memory_format=torch.channels_last)), labels[rows_B], label_smoothing=0.2
        )
        height = 0.2 + 0.8 * share / PEAK if share < PEAK else (1 - share) / (1 - PEAK)
        for optimizer, own in zip(used, peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, own, strict=True):
                group["lr"] = peak * height
        seen += len(rows_B)
        model.zero_grad()
        loss.backward()
        for optimizer in used:
            optimizer.step()
        if number % LOOKAHEAD_STEPS == 0:
            lookahead.update(0.95**LOOKAHEAD_STEPS * share**3)
    lookahead.update(1.0)
    return seen / len(images)


def main() -> None:
    entry = enter(__doc__, muon_lr=0.12, sgd_lr=0.1, decay=2e-4, batch=64, width=32, shift=2, bf16=0)
    images, test = normalised(entry)
    model = Network(images, entry.classes, entry.settings["width"]).to(memory_format=torch.channels_last)
    model = in_bf16(model) if entry.settings["bf16"] else model
    logits = with_flips(model) if entry.mirrors else model
    end = entry.seconds - FINISH_SECONDS - time_to_predict(model, logits, test)
    epochs = train(entry, model, images, end)
    entry.finish(predict(model, logits, test), epochs, parameters_of(model))


if __name__ == "__main__":
    main()
