"""Does `smallvit predict` label as many images a second as timm's inference loop, and what does ONNX give beside it?

    python benchmarks/predict.py [--images 512] [--rounds 6] [--json FILE] [--without-model]

A model of 32 px (--size) that was trained for one epoch labels a folder of JPEG files, once of photos of 400 x 300 pixels and once of
files that are as large as the model takes them: the first is mostly reading, the second mostly the model. Every side begins
with a stored model and a folder and ends with labels and probabilities; all have batches of 64, one thread for the model, and as many
passes (where the run averages the image and its mirror image, all do):

- smallvit: `smallvit.predict(RUN, FOLDER)`, all that the command does but for starting Python;
- timm: what its inference script does (create_dataset, create_loader, inference mode) with the same model, `run.model()`. Its loader has
  none or two worker processes, and the model its convolutions in either order of memory (--channels-last of that script): all four are
  tried on all images while warming up, and the quickest is measured;
- ONNX: the exported file in onnxruntime, its squares read as smallvit reads them.

They take turns in each round, another one first each time, so that a busy machine slows all of them; each has run at least once before.
Images per second by the clock, and by processor time with that of worker processes, which other work on the machine moves less. The ratio
is formed within each round; its mean is that of its logarithm, with a t-interval over the rounds.

--without-model: smallvit and timm (without workers) on the same files with zeros in place of the model's answers, so that what each adds to
the model's own time can be seen: milliseconds of processor time, the least and the median of the rounds.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import onnxruntime
import PIL
import timm
import torch
from PIL import Image
from timm.data import create_dataset, create_loader, resolve_data_config

import smallvit
from input_pipeline import texture
from smallvit.evaluation.predictor import Predictor
from smallvit.evaluation.statistics import mean_interval
from smallvit.runs.prediction import IMAGES_AT_ONCE, named_images, read_ahead

MODELS = ["conv_nano", "vit_nano"]
PHOTO = (300, 400)
Side = Callable[[], int]  # labels all images, and says how many
Answers = Callable[[torch.Tensor], torch.Tensor]


class Speed(NamedTuple):
    """Images per second."""

    clock: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--size", type=int, default=32, help="of the models")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-model", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        shapes = {"photos": PHOTO, "small": (args.size, args.size)}
        files = {kind: write_files(Path(folder) / kind, args.images, *shape) for kind, shape in shapes.items()}
        for name in args.models:
            run = trained(name, files["photos"], args.size, Path(folder) / name)
            for kind, images in files.items():
                if args.without_model:
                    cases.append({"model": name, "files": list(shapes[kind]), **added(run, images, args)})
                    continue
                cases.append({"model": name, "files": list(shapes[kind]), **measured(run, images, args)})
                print(row(cases[-1]), flush=True)
                if args.json:
                    args.json.write_text(json.dumps({**conditions(args), "cases": cases}, indent=1) + "\n")
    if args.without_model:
        told = json.dumps({**conditions(args), "cases": cases}, indent=1)
        print(told)
        if args.json:
            args.json.write_text(told + "\n")
        return
    print("\n".join([*HEAD, *map(row, cases)]))


def write_files(folder: Path, count: int, height: int, width: int) -> Path:
    for number in range(count):
        file = folder / ("cat" if number % 2 else "dog") / f"{number:04d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(texture(height, width, number)).save(file, quality=90)
    return folder


def trained(name: str, photos: Path, size: int, out: Path) -> smallvit.Run:
    return smallvit.train(
        photos, model=name, img_size=size, epochs=1, per_class=8, threads=1, out=out, show_progress=False
    )


# ---- the sides ---------------------------------------------------------------------------------------


def ours(run: smallvit.Run, images: Path) -> Side:
    return lambda: len(smallvit.predict(run.path, images, threads=1))


def theirs(run: smallvit.Run, images: Path, workers: int, channels_last: bool, answers: Answers | None = None) -> Side:
    flips = run.transform.flips

    def label() -> int:
        model = run.model()
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
        loader = create_loader(
            create_dataset(root=str(images), name=""),
            batch_size=IMAGES_AT_ONCE,
            use_prefetcher=True,
            num_workers=workers,
            device=torch.device("cpu"),
            **resolve_data_config({}, model=model),
        )
        labels, probabilities = [], []
        answer = answers or model
        with torch.inference_mode():
            for squares, _ in loader:
                if channels_last:
                    squares = squares.contiguous(memory_format=torch.channels_last)
                logits = (answer(squares) + answer(squares.flip(3))) / 2 if flips else answer(squares)
                best = logits.softmax(-1).topk(1)
                labels.append(best.indices.numpy())
                probabilities.append(best.values.numpy())
        return len(np.concatenate(labels))

    return label


def onnx(run: smallvit.Run, images: Path) -> Side:
    file = run.path / "export-onnx" / "model.onnx"
    if not file.is_file():
        run.export("onnx", file.parent)
    preparation = run.transform
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1

    def label() -> int:
        session = onnxruntime.InferenceSession(str(file), options)
        named, done = list(named_images(images, preparation.in_chans)), 0
        for some in read_ahead(preparation, named):
            squares = np.stack([square.numpy() for _, square in some if isinstance(square, torch.Tensor)])
            done += len(session.run(None, {"images": squares})[0].argmax(1))
        return done

    return label


# ---- measuring ---------------------------------------------------------------------------------------


def measured(run: smallvit.Run, images: Path, args: argparse.Namespace) -> dict[str, Any]:
    sides = {"smallvit": ours(run, images), "ONNX": onnx(run, images)}
    for side in sides.values():
        speed(side, args.images)
    tried = {}
    for workers, channels_last in product((0, 2), (False, True)):
        tried[workers, channels_last] = speed(theirs(run, images, workers, channels_last), args.images)
    workers, channels_last = max(tried, key=lambda setting: tried[setting].clock)
    sides["timm"] = theirs(run, images, workers, channels_last)
    rounds = []
    for number in range(args.rounds):
        names = list(sides)
        first = number % len(names)
        rounds.append({name: speed(sides[name], args.images)._asdict() for name in names[first:] + names[:first]})
    settings = [{"workers": w, "channels_last": c, **tried[w, c]._asdict()} for w, c in tried]
    return {
        "passes": 2 if run.transform.flips else 1,
        "timm": {"workers": workers, "channels_last": channels_last, "tried": settings},
        "rounds": rounds,
    }


def added(run: smallvit.Run, images: Path, args: argparse.Namespace) -> dict[str, Any]:
    """What each side takes beside the model, in milliseconds of processor time."""
    classes = len(run.classes)
    sides = {
        "smallvit": ours(run, images),
        "timm": theirs(run, images, 0, True, lambda squares: torch.zeros(len(squares), classes)),
    }
    spent: dict[str, list[float]] = {name: [] for name in sides}
    with patch.object(Predictor, "_forward", lambda _, squares, __: torch.zeros(len(squares), classes)):
        for _ in range(args.rounds + 1):
            for name, side in sides.items():
                before = time.process_time()  # finer than what is counted where there are worker processes
                assert side() == args.images
                spent[name].append(1000 * (time.process_time() - before))
    return {
        name: {"least": min(took[1:]), "median": statistics.median(took[1:]), "rounds": took[1:]}
        for name, took in spent.items()
    }


def speed(side: Side, images: int) -> Speed:
    started, before = time.perf_counter(), sum(os.times()[:4])
    assert side() == images
    gc.collect()  # worker processes end, and their time is counted
    return Speed(images / (time.perf_counter() - started), images / (sum(os.times()[:4]) - before))


# ---- telling -----------------------------------------------------------------------------------------

SIDES = ("smallvit", "timm", "ONNX")  # images per second of processor time
PAIRS = [("smallvit", "timm"), ("ONNX", "smallvit")]
HEAD = [
    "| model | files | passes | timm's | smallvit | timm | ONNX | "
    + " | ".join(f"{above} / {below}, {by}" for above, below in PAIRS for by in ("clock", "processor time"))
    + " |",
    "|---|---|---:|---|" + "---:|" * 7,
]


def row(case: dict[str, Any]) -> str:
    height, width = case["files"]
    order = "channels last" if case["timm"]["channels_last"] else "channels first"
    cells = [f"`{case['model']}`", f"{width} x {height}", str(case["passes"])]
    cells.append(f"{case['timm']['workers']} workers, {order}")
    rounds = case["rounds"]
    cells += [f"{statistics.median(one[side]['processor'] for one in rounds):.0f}" for side in SIDES]
    cells += [
        ratio([math.log(one[above][by] / one[below][by]) for one in rounds])
        for above, below in PAIRS
        for by in ("clock", "processor")
    ]
    return f"| {' | '.join(cells)} |"


def ratio(logarithms: list[float]) -> str:
    mean, low, high = (math.exp(number) for number in mean_interval(logarithms))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def conditions(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "date": str(datetime.date.today()),
        "command": f"python benchmarks/predict.py --images {args.images} --rounds {args.rounds} --size {args.size} --models "
        + " ".join(args.models)
        + " --without-model" * args.without_model,
        "machine": {"kind": platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
        "versions": {
            "torch": torch.__version__,
            "timm": timm.__version__,
            "onnxruntime": onnxruntime.__version__,
            "pillow": PIL.__version__,
        },
        "images": args.images,
        "batch": IMAGES_AT_ONCE,
        "size": args.size,
        "of": "images per second",
    }


if __name__ == "__main__":
    main()
