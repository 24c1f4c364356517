"""How much of its arithmetic does DHVT turn into speed, beside a plain ViT?

    OMP_NUM_THREADS=1 python benchmarks/train_step.py [--batch 64] [--rounds 15] [--quick]

One training step (forward, backward, AdamW) of DHVT-T and of timm's DeiT-T, both with patch 4 at 32 px. Small
convolutions and BatchNorm are little arithmetic and much memory traffic, so the figure is images/s times
multiply-adds per image, relative to DeiT-T: 1.0 means that the convolutions cost no more than what they compute.

DHVT runs three times: as smallvit has it, and with its feed-forward in two other layouts (the same numbers come out).
All take turns within each round, in one process and on one thread, so that a busy machine slows all of them; medians
of processor time over the rounds. About 4 minutes; --quick takes seconds and its figures mean little.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import smallvit.models  # noqa: F401  (registers DHVT with timm)
from smallvit.models.architectures.dhvt_parts import DynamicAggregationFeedForward

CLASSES, SIZE = 100, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="two rounds of batch 8")
    args = parser.parse_args()
    batch, rounds = (8, 2) if args.quick else (args.batch, args.rounds)
    torch.set_num_threads(1)
    models = contenders()
    macs = {name: multiply_adds(model) for name, model in models.items()}
    seconds = take_turns({name: training_step(model, batch) for name, model in models.items()}, rounds)
    print(
        f"{batch} images of {SIZE} px, one thread, medians of {rounds} rounds, processor time, torch {torch.__version__}"
    )
    report(macs, seconds, batch)


def contenders() -> dict[str, nn.Module]:
    deit = timm.create_model("deit_tiny_patch16_224", img_size=SIZE, patch_size=4, num_classes=CLASSES)
    dhvt = [timm.create_model("dhvt_tiny_patch4_32", num_classes=CLASSES) for _ in range(3)]
    for block in dhvt[1].blocks:
        block.mlp = ConvolutionalDaff(block.mlp, torch.channels_last)
    for block in dhvt[2].blocks:
        block.mlp = ConvolutionalDaff(block.mlp, torch.contiguous_format)
    return {
        "DeiT-T (timm)": deit,
        "DHVT-T (smallvit)": dhvt[0],
        "  1x1 as convolutions, channels last": dhvt[1],
        "  1x1 as convolutions, channels first": dhvt[2],
    }


class ConvolutionalDaff(nn.Module):
    """smallvit's DAFF on B D H W grids in a chosen memory layout, with nothing but convolutions."""

    def __init__(self, daff: DynamicAggregationFeedForward, layout: torch.memory_format) -> None:
        super().__init__()
        self.daff = daff
        self.layout = layout

    def forward(self, x_BND: Tensor, grid: tuple[int, int]) -> Tensor:
        daff = self.daff
        cls_B1D, patches_BLD = x_BND.split((1, x_BND.shape[1] - 1), dim=1)
        patches_BDHW = patches_BLD.transpose(1, 2).unflatten(2, grid).contiguous(memory_format=self.layout)
        s_BEHW = F.gelu(self._convolve(patches_BDHW, daff.conv1, daff.bn1))
        mixed_BEHW = F.gelu(self._convolve(s_BEHW, daff.conv2, daff.bn2)) + s_BEHW
        patches_BLD = self._convolve(mixed_BEHW, daff.conv3, daff.bn3).flatten(2).transpose(1, 2)
        weight_B1D = daff.excitation(F.gelu(daff.compress(patches_BLD.mean(1, keepdim=True))))
        return torch.cat([cls_B1D * weight_B1D, patches_BLD], dim=1)

    def _convolve(self, x_BCHW: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm1d) -> Tensor:
        y_BCHW = F.conv2d(x_BCHW, conv.weight, conv.bias, padding=conv.padding, groups=conv.groups)
        return F.batch_norm(
            y_BCHW, norm.running_mean, norm.running_var, norm.weight, norm.bias, self.training, eps=norm.eps
        )


def multiply_adds(model: nn.Module) -> float:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(1, 3, SIZE, SIZE))
    return counter.get_total_flops() / 2


def training_step(model: nn.Module, batch: int) -> Callable[[], None]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
    images_BCHW = torch.randn(batch, 3, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    labels_B = torch.randint(0, CLASSES, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images_BCHW), labels_B).backward()
        optimizer.step()

    return step


def take_turns(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_number in range(rounds + 1):
        for name, step in steps.items():
            started = time.process_time()
            step()
            if round_number > 0:  # the first one warms up
                seconds[name].append(time.process_time() - started)
    return seconds


def report(macs: dict[str, float], seconds: dict[str, list[float]], batch: int) -> None:
    base = next(iter(seconds))
    # Ratios are taken within a round, where both sides met the same machine.
    print(f"| {'model':37} | M multiply-adds | ms per step | images/s | relative |")
    print(f"|{'-' * 39}|{'-' * 16}:|{'-' * 12}:|{'-' * 9}:|{'-' * 9}:|")
    for name, taken in seconds.items():
        ratios = [macs[name] / macs[base] * b / t for b, t in zip(seconds[base], taken, strict=True)]
        ms = 1000 * statistics.median(taken)
        print(
            f"| {name:37} | {macs[name] / 1e6:15.1f} | {ms:11.0f} | {1000 * batch / ms:8.1f} | {statistics.median(ratios):8.2f} |"
        )


if __name__ == "__main__":
    main()
