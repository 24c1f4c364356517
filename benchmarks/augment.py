"""How quick is the batch augmentation beside torchvision's transforms, one image at a time?

    OMP_NUM_THREADS=1 python benchmarks/augment.py [--size 32] [--batch 128] [--rounds 30]

Both sides do the same work on the same uint8 images, in one process and on one thread, taking turns within
each round so that a busy machine slows both; medians over the rounds, of processor time. About a minute.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms as tv

from smallvit.data.augment import Augmenter
from smallvit.recipe import AugmentSpec

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
COLOUR: dict[str, Any] = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    images_BCHW = torch.randint(0, 256, (args.batch, 3, args.size, args.size), dtype=torch.uint8)
    # A training process has long freed tensors of this size, after which the C library keeps memory between
    # calls; without it every call pays for fresh pages.
    torch.zeros(6_000_000)
    print(f"{args.batch} images of {args.size} px, one thread, medians of {args.rounds} rounds")
    for name, (spec, transform) in pairs(args.size).items():
        report(name, ours(spec, images_BCHW, args.size), theirs(transform, images_BCHW), args.rounds)


def pairs(size: int) -> dict[str, tuple[AugmentSpec, tv.Compose]]:
    """The same augmentation twice: as our recipe and as torchvision transforms."""
    finish = [tv.ToTensor(), tv.Normalize(MEAN, STD)]
    jitter = tv.RandomApply([tv.ColorJitter(**COLOUR)], p=0.8)
    erase = tv.RandomErasing(p=0.25, scale=(0.02, 0.33), ratio=(0.3, 3.3), value="random")
    padded = [tv.RandomCrop(size, padding=round(size / 8)), tv.RandomHorizontalFlip()]
    resized = [tv.RandomResizedCrop(size, scale=(0.35, 1.0)), tv.RandomHorizontalFlip(), jitter]
    return {
        "padded crop, flip": (AugmentSpec(crop="pad", flip=0.5), tv.Compose([*padded, *finish])),
        "resized crop, flip, colour, erase": (
            AugmentSpec(crop="resized", flip=0.5, erase=0.25, **COLOUR),
            tv.Compose([*resized, *finish, erase]),
        ),
    }


def ours(spec: AugmentSpec, images_BCHW: Tensor, size: int) -> Callable[[int], Tensor]:
    augment = Augmenter(spec, MEAN, STD)
    positions_B = torch.arange(len(images_BCHW))
    return lambda key: augment(images_BCHW, size, key, positions_B)


def theirs(transform: tv.Compose, images_BCHW: Tensor) -> Callable[[int], Tensor]:
    # The PIL images are made beforehand: a torchvision dataset pays for that too, but it is not augmentation.
    pictures = [Image.fromarray(image_HWC.numpy()) for image_HWC in images_BCHW.permute(0, 2, 3, 1)]
    return lambda key: torch.stack([transform(picture) for picture in pictures])


def report(name: str, our_call: Callable[[int], Tensor], their_call: Callable[[int], Tensor], rounds: int) -> None:
    calls = {"smallvit": our_call, "torchvision": their_call}
    seconds: dict[str, list[float]] = {side: [] for side in calls}
    for key in range(rounds + 2):
        for side, call in calls.items():
            started = time.process_time()
            call(key)
            seconds[side].append(time.process_time() - started)
    ms = {side: 1000 * statistics.median(taken[2:]) for side, taken in seconds.items()}  # two to warm up
    ratio = ms["torchvision"] / ms["smallvit"]
    print(f"{name:34} smallvit {ms['smallvit']:6.2f} ms  torchvision {ms['torchvision']:7.2f} ms  {ratio:5.1f}x")


if __name__ == "__main__":
    main()
