"""How quick is the whole way from stored images to training batches, beside timm's usual pipeline?

    OMP_NUM_THREADS=1 python benchmarks/input_pipeline.py [--rounds 15] [--out FILE]

The same recipe on both sides: crop, flip, RandAugment (rand-m9-mstd0.5-inc1), erasing, normalising.

- 32 px, padded crops: our loader's batches of 128 from uint8 memory; timm's transform takes the same images one by
  one through Pillow. The loader augments a few batches of small images at a time; one at a time is shown as well.
- 224 px, resized crops: our batches of 32 from the cache of decoded 256 px images; timm decodes JPEG files.

One process and one thread. The two sides take turns within each round, so that a busy machine slows both, and
what is counted is processor time: on a shared machine the longer side would otherwise be interrupted more often.
Medians over the rounds. Half a minute; nothing but temporary images is written, unless --out names a file.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
import timm
import torch
from PIL import Image
from timm.data import create_transform
from timm.data.auto_augment import AugmentOp
from torchvision import transforms as tv

from smallvit.data.augment import Augmenter
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages, Loader
from smallvit.recipe import AugmentSpec
from smallvit.types import View

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
POLICY = "rand-m9-mstd0.5-inc1"


class Side(NamedTuple):
    """`run` is given the number of the round and handles `images` images."""

    images: int
    run: Callable[[int], object]


class Case(NamedTuple):
    name: str
    ours: Side
    theirs: Side
    asked: float | None  # the ratio to reach


class Result(NamedTuple):
    case: Case
    ours: list[float]  # images per second in each round
    theirs: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    # A training process has long freed tensors of this size, after which the C library keeps memory between
    # calls; without it every call pays for fresh pages.
    torch.zeros(7_000_000)
    with tempfile.TemporaryDirectory() as folder:
        cases = [*small_images(), photographs(Path(folder))]
        text = table([measure(case, args.rounds) for case in cases])
    print(text)
    if args.out:
        args.out.write_text(f"# Input pipeline, {datetime.date.today()}\n\n{conditions(args.rounds)}\n\n{text}\n")


# ---- the cases ---------------------------------------------------------------------------------------


def small_images(count: int = 1280, batch_size: int = 128, size: int = 32) -> list[Case]:
    images_NHWC = np.stack([texture(size, size, seed) for seed in range(count)])
    spec = AugmentSpec(crop="pad", flip=0.5, randaugment=2, erase=0.25)
    loader, single = (loader_of(images_NHWC, spec, batch_size, size) for _ in range(2))
    single.together = 1
    # timm always scales its crops; this is how DeiT and DHVT put the padded crop of small images in its place.
    transform = timm_transform(size)
    transform.transforms[0] = tv.RandomCrop(size, padding=size // 8)

    def theirs(number: int) -> object:
        return torch.stack([transform(Image.fromarray(image_HWC)) for image_HWC in images_NHWC[:batch_size]])

    them = Side(batch_size, theirs)
    return [
        Case("32 px, batches of 128 from memory", epoch_of(loader), them, 15),
        Case("the same, one batch at a time", epoch_of(single), them, None),
    ]


def photographs(folder: Path, count: int = 96, batch_size: int = 32, size: int = 224, cached: int = 256) -> Case:
    files, decoded = [], []
    for seed in range(count):
        files.append(folder / f"{seed}.jpg")
        Image.fromarray(texture(300, 400, seed)).save(files[-1], quality=90)
        # What the cache holds: the shorter side fitted, the middle cut out.
        fitted = opened(files[-1]).resize((round(400 * cached / 300), cached), Image.Resampling.BILINEAR)
        left = (fitted.width - cached) // 2
        decoded.append(np.asarray(fitted.crop((left, 0, left + cached, cached))))
    spec = AugmentSpec(crop="resized", scale=(0.08, 1.0), flip=0.5, randaugment=2, erase=0.25)
    loader, transform = loader_of(np.stack(decoded), spec, batch_size, size), timm_transform(size)

    def theirs(number: int) -> object:
        return torch.stack([transform(opened(file)) for file in files[:batch_size]])

    return Case("224 px, batches of 32, cache against JPEG files", epoch_of(loader), Side(batch_size, theirs), 2)


def loader_of(images_NHWC: np.ndarray, spec: AugmentSpec, batch_size: int, size: int) -> Loader:
    images_NCHW = torch.from_numpy(images_NHWC).permute(0, 3, 1, 2).contiguous()
    labels_N = torch.zeros(len(images_NCHW), dtype=torch.int64)
    images = ImageSet(images_NCHW, labels_N, ("any",), {}, (), "made on the spot", "")
    device_images = DeviceImages(images, Augmenter(spec, MEAN, STD), torch.device("cpu"))
    return Loader(device_images, torch.arange(len(images_NCHW)), lambda epoch: (View(1, size),), batch_size, seed=0)


def epoch_of(loader: Loader) -> Side:
    def ours(number: int) -> object:
        for i in range(len(loader)):
            loader.batch(number, i)
        return None

    return Side(len(loader) * loader.batch_size, ours)


def timm_transform(size: int) -> tv.Compose:
    """timm's training transform; bilinear as ours is (bicubic costs it more), erasing with normal noise as ours."""
    transform = create_transform(
        size, is_training=True, auto_augment=POLICY, interpolation="bilinear", re_prob=0.25, re_mode="pixel",
        mean=MEAN, std=STD,
    )  # fmt: skip
    for step in transform.transforms:
        for operation in getattr(step, "ops", ()):
            keep_a_bit(operation)
    return transform


def keep_a_bit(operation: AugmentOp) -> None:
    """timm's strongest Posterize keeps 0 bits, which Pillow 13 refuses with an error in the middle of an epoch."""
    if operation.name == "PosterizeIncreasing":
        posterize = operation.aug_fn
        operation.aug_fn = lambda image, bits, **rest: posterize(image, max(1, bits), **rest)


def opened(file: Path) -> Image.Image:
    with Image.open(file) as photo:
        return photo.convert("RGB")


def texture(height: int, width: int, seed: int) -> np.ndarray:
    """Smooth random colours with a little grain: 400 x 300 pixels of it make a JPEG file of 29 kB."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    return (smooth + rng.integers(-8, 9, smooth.shape)).clip(0, 255).astype(np.uint8)


# ---- measuring and telling ---------------------------------------------------------------------------


def measure(case: Case, rounds: int) -> Result:
    result = Result(case, [], [])
    for number in range(rounds + 2):
        for side, speeds in ((case.ours, result.ours), (case.theirs, result.theirs)):
            started = time.process_time()
            side.run(number)
            speeds.append(side.images / (time.process_time() - started))
    return Result(case, result.ours[2:], result.theirs[2:])  # two to warm up


def table(results: list[Result]) -> str:
    lines = [
        "| images per second | smallvit | timm | ratio | in single rounds | asked |",
        "|---|---|---|---|---|---|",
    ]
    for case, ours, theirs in results:
        us, them = statistics.median(ours), statistics.median(theirs)
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        spread, asked = f"{min(ratios):.1f} to {max(ratios):.1f}", f"{case.asked:g}" if case.asked else ""
        lines.append(f"| {case.name} | {us:,.0f} | {them:,.0f} | {us / them:.1f} | {spread} | {asked} |")
    return "\n".join(lines)


def conditions(rounds: int) -> str:
    versions = f"torch {torch.__version__}, timm {timm.__version__}, Pillow {PIL.__version__}"
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    return f"{platform.machine()}, one thread, {versions}; medians of {rounds} rounds of processor time; {load}."


if __name__ == "__main__":
    main()
