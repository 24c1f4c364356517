"""Does `smallvit predict` label as many images a second as timm's inference loop, and what does ONNX give beside it?

    python benchmarks/predict.py [--images 384] [--rounds 7] [--out FILE]

JPEG files of 400 x 300 pixels, and models of 32 px (--size) that were trained for one epoch on a few of them. Three sides take turns in each
round, so that a busy machine slows all of them; every one begins with a stored model and a folder, and ends with labels and probabilities:

- smallvit: `smallvit.predict(RUN, FOLDER)`, all that the command does but for starting Python;
- timm: what its inference script does, with its default of 2 workers and batches of 64 (--batch; create_dataset, create_loader, inference
  mode), and the same model, `run.model()`. Where the run averages the image and its mirror image, so does this side: as many passes;
- ONNX: the exported file in onnxruntime, its squares read as smallvit reads them.

Images per second by the clock, with all cores; the ratio is formed within each round, its mean is that of its logarithm. Beside it the ratio by
processor time, worker processes included: a machine that has other work to do moves it less. Some minutes.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import PIL
import timm
import torch
from PIL import Image
from timm.data import create_dataset, create_loader, resolve_data_config

import smallvit
from input_pipeline import texture
from smallvit.evaluation.statistics import mean_interval
from smallvit.runs.prediction import IMAGES_AT_ONCE, named_images, read_ahead

MODELS = ["conv_nano", "vit_nano"]
Side = Callable[[], int]


class Speed(NamedTuple):
    """Images per second."""

    clock: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--size", type=int, default=32, help="of the models")
    parser.add_argument("--batch", type=int, default=IMAGES_AT_ONCE, help="timm's")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    ratios = [f"{pair}, {by}" for pair in ("smallvit / timm", "ONNX / smallvit") for by in ("clock", "processor time")]
    lines = [f"| model | passes | smallvit | timm | ONNX | {' | '.join(ratios)} |", "|---|" + "---:|" * 8]
    with tempfile.TemporaryDirectory() as folder:
        photos = write_photos(Path(folder) / "photos", args.images)
        for name in args.models:
            run = smallvit.train(
                photos,
                model=name,
                img_size=args.size,
                epochs=1,
                per_class=8,
                threads=1,
                out=Path(folder) / name,
                show_progress=False,
            )
            lines.append(row(name, run, measure(sides(run, photos, args.batch), args.rounds, args.images)))
            print("\n".join(lines), flush=True)
    if args.out:
        args.out.write_text(
            f"# Labelling files, {datetime.date.today()}\n\n{conditions(args)}\n\n" + "\n".join(lines) + "\n"
        )


def write_photos(folder: Path, count: int) -> Path:
    for number in range(count):
        file = folder / ("cat" if number % 2 else "dog") / f"{number:04d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(texture(300, 400, number)).save(file, quality=90)
    return folder


def sides(run: smallvit.Run, photos: Path, batch: int) -> dict[str, Side]:
    return {"smallvit": ours(run, photos), "timm": theirs(run, photos, batch), "ONNX": onnx(run, photos)}


def ours(run: smallvit.Run, photos: Path) -> Side:
    return lambda: len(smallvit.predict(run.path, photos))


def theirs(run: smallvit.Run, photos: Path, batch: int) -> Side:
    flips = run.transform.flips

    def label() -> int:
        model = run.model()
        config = resolve_data_config({}, model=model)
        dataset = create_dataset(root=str(photos), name="")
        loader = create_loader(
            dataset, batch_size=batch, use_prefetcher=True, num_workers=2, device=torch.device("cpu"), **config
        )
        labels, probabilities = [], []
        with torch.inference_mode():
            for images, _ in loader:
                logits = (model(images) + model(images.flip(3))) / 2 if flips else model(images)
                best = logits.softmax(-1).topk(1)
                labels.append(best.indices.numpy())
                probabilities.append(best.values.numpy())
        return len(np.concatenate(labels))

    return label


def onnx(run: smallvit.Run, photos: Path) -> Side:
    made = run.export("onnx")
    preparation = run.transform

    def label() -> int:
        session = onnxruntime.InferenceSession(str(made.path / "model.onnx"))
        named, done = list(named_images(photos, preparation.in_chans)), 0
        for some in read_ahead(preparation, named):
            squares = np.stack([square.numpy() for _, square in some if isinstance(square, torch.Tensor)])
            done += len(session.run(None, {"images": squares})[0].argmax(1))
        return done

    return label


def measure(sides: dict[str, Side], rounds: int, images: int) -> dict[str, list[Speed]]:
    """Of each round, after one to warm up."""
    speeds: dict[str, list[Speed]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, label in sides.items():
            started, before = time.perf_counter(), sum(os.times()[:4])
            assert label() == images
            gc.collect()  # worker processes end, and their time is counted
            if number:
                speeds[name].append(
                    Speed(images / (time.perf_counter() - started), images / (sum(os.times()[:4]) - before))
                )
    return speeds


def row(name: str, run: smallvit.Run, speeds: dict[str, list[Speed]]) -> str:
    cells = [f"{statistics.median(speed.clock for speed in speeds[side]):.0f}" for side in ("smallvit", "timm", "ONNX")]
    for above, below in (("smallvit", "timm"), ("ONNX", "smallvit")):
        pairs = list(zip(speeds[above], speeds[below], strict=True))
        cells += [ratio([(a.clock, b.clock) for a, b in pairs]), ratio([(a.processor, b.processor) for a, b in pairs])]
    return f"| `{name}` | {2 if run.transform.flips else 1} | " + " | ".join(cells) + " |"


def ratio(pairs: list[tuple[float, float]]) -> str:
    mean, low, high = (math.exp(number) for number in mean_interval([math.log(a / b) for a, b in pairs]))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def conditions(args: argparse.Namespace) -> str:
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return (
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, timm {timm.__version__}, onnxruntime "
        f"{onnxruntime.__version__}, Pillow {PIL.__version__}; {args.images} JPEG files of 400 x 300, models of {args.size} px, batches of "
        f"{IMAGES_AT_ONCE}, timm {args.batch} with 2 workers; medians of images per second and means of the ratio with a 95 % t-interval over "
        f"{args.rounds} rounds; {load}."
    )


if __name__ == "__main__":
    main()
