"""How time and memory of an epoch grow: with images, image size, depth, classes, processes, and runs at once.

    OMP_NUM_THREADS=1 python benchmarks/scaling.py [--store docs/results/scaling.json] [--only images,depth]

Every point is a process of its own (or several), on images drawn here, with one thread and fp32; it goes on with the points
that are not stored yet. Processor and wall seconds of a step are means of some steps after the first two; an epoch is as many
as it has. Memory is the most that the process ever had (VmHWM), beside what planning foresaw. On a machine that does other work,
compare points of one kind, by processor time. `benchmarks/scaling_chart.py` draws it and prints the table.

Images are 1k to 100k, in memory, and streamed from JPEG files; patches have 4 px at every image size; one run by 1 and 2 processes
as torchrun starts them; 1, 2 and 4 runs beside each other.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

import smallvit
from smallvit.console import quiet
from smallvit.planning.plan import prepare
from smallvit.runs.atomic import write_text
from smallvit.training.loop import train
from smallvit.training.together import join, leave

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "docs" / "results" / "scaling.json"
STEPS, SKIPPED = 12, 2  # of a point; those after the first few count
PIECE = 100  # files of a folder come from so many different pictures, so that drawing them takes no time


class Point(NamedTuple):
    """One measurement: what differs from the point in the middle."""

    kind: str
    value: int
    images: int = 4_000
    size: int = 32
    depth: int = 4
    classes: int = 10
    processes: int = 1
    at_once: int = 1
    streamed: bool = False

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.value}{'/streamed' if self.streamed else ''}"


def points() -> Iterator[Point]:
    for images in (1_000, 10_000, 100_000):
        yield Point("images", images, images=images)
    for images in (1_000, 10_000, 100_000):
        yield Point("images", images, images=images, streamed=True)
    for size in (16, 32, 64):
        yield Point("size", size, size=size, images=1_000)
    for depth in (2, 4, 8):
        yield Point("depth", depth, depth=depth)
    for classes in (10, 100, 1_000):
        yield Point("classes", classes, classes=classes)
    for processes in (1, 2):
        yield Point("processes", processes, processes=processes, depth=8)
    for at_once in (1, 2, 4):
        yield Point("at once", at_once, at_once=at_once)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    given = parser.parse_args()
    record = json.loads(given.store.read_text(encoding="utf-8")) if given.store.is_file() else {"points": {}}
    record["machine"] = {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    wanted = [point for point in points() if not given.only or point.kind in given.only.split(",")]
    for number, point in enumerate(wanted, 1):
        if point.key not in record["points"]:
            print(f"{number} of {len(wanted)}: {point.key}", flush=True)
            record["points"][point.key] = {**point._asdict(), **several(point)}
            write_text(given.store, json.dumps(record, indent=1) + "\n")


def several(point: Point) -> dict[str, Any]:
    """The processes of a point, started together, each with a copy of what is imported; means, and the wall time of all."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as place, fork.Pool(point.at_once * point.processes, maxtasksperchild=1) as pool:
        data = make_images(Path(place), point)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        common = {"SMALLVIT_CACHE": str(Path(place) / "cache"), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(point.processes)]
        environs = [{**common, **rank, "WORLD_SIZE": str(point.processes)} for rank in ranks * point.at_once]
        began = time.monotonic()
        found = pool.starmap(measure, [(point, data, environ) for environ in environs], chunksize=1)
    together = {name: round(sum(one[name] for one in found) / len(found), 5) for name in found[0]}
    return {**together, "wall_seconds_in_all": round(time.monotonic() - began, 2), "load": os.getloadavg()[0]}


def make_images(place: Path, point: Point) -> Path:
    """Noise; as an .npz file, or, streamed, as a folder of JPEG files that are links to a few."""
    draw = np.random.default_rng(0)
    labels = np.arange(point.images) % point.classes
    if not point.streamed:
        pixels = draw.integers(0, 255, (point.images, point.size, point.size, 3), dtype=np.uint8)
        np.savez(place / "drawn.npz", x_train=pixels, y_train=labels, x_test=pixels[:64], y_test=labels[:64])
        return place / "drawn.npz"
    pictures = []
    for number in range(PIECE):
        path = place / "pictures" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (point.size, point.size, 3), dtype=np.uint8)).save(path)
        pictures.append(path)
    for number, label in enumerate(labels):
        folder = place / "folder" / f"class{label:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        os.link(pictures[number % PIECE], folder / f"{number}.jpg")
    return place / "folder"


def measure(point: Point, data: Path, environ: dict[str, str]) -> dict[str, float]:
    """In a process of its own: plan a run, then take its first steps."""
    os.environ.update(environ)
    torch.set_num_threads(1)
    began, used = time.monotonic(), time.process_time()
    recipe = smallvit.make_recipe(
        data=str(data), model="vit_nano", epochs=1_000, batch_size=64, threads=1, precision="fp32",
        img_size=point.size, val="none", test="none" if point.streamed else None,
        settings={"model.kwargs.depth": point.depth, "model.kwargs.patch_size": 4, "data.cache_limit_gb": 0 if point.streamed else 8},
    )  # fmt: skip
    world = join()
    with quiet():
        prepared = prepare(recipe, with_floors=False)
    start = {"start_seconds": time.monotonic() - began, "start_cpu_seconds": time.process_time() - used}
    t = prepared.training
    t.world = world
    wall, cpu = [], []
    before = time.monotonic(), time.process_time()
    for tick in train(t):
        now = time.monotonic(), time.process_time()
        wall.append(now[0] - before[0])
        cpu.append(now[1] - before[1])
        before = now
        if tick.step == STEPS:
            break
    leave()
    # Streamed images are decoded by threads, whose time is this process's, too.
    step_wall, step_cpu = (sum(times[SKIPPED:]) / len(times[SKIPPED:]) for times in (wall, cpu))
    memory = next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return {
        **start, "step_seconds": step_wall, "step_cpu_seconds": step_cpu, "steps_an_epoch": len(t.loader),
        "epoch_seconds": step_wall * len(t.loader), "epoch_cpu_seconds": step_cpu * len(t.loader),
        "memory_mb": memory / 1000, "expected_mb": (prepared.plan.memory or 0) / 1e6,
    }  # fmt: skip


def processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
