"""Whether a change of the code left every result as it was: digests of some twenty tiny runs.

    python benchmarks/digests.py --write before.json       with the old code
    python benchmarks/digests.py --check before.json       with the new one

Each case is a few commands, run as a user would, on the digits that come with scikit-learn. What is digested is all
that training decides: the tensors of model.safetensors, and metrics.jsonl without its times. Digests hold for one
machine and one torch; the file says which.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

SMALL = "digits --per-class 8 --batch-size 8 --epochs 2 --threads 1 --quiet"
TIMES = ("seconds", "images_per_second")

# A case is a list of commands; OUT is its folder. Those that stop on purpose have the status behind them.
TRAIN: dict[str, str] = {
    "vit": "--model vit_pico --drop-path 0.1 --mixup 0.8 --cutmix 1.0 --set ema=0.99",
    "vit-spt-lsa": "--model vit_pico --set model.kwargs.spt=true --set model.kwargs.lsa=true --class-weights auto",
    "dhvt": "--model dhvt_pico --aux drloc --mixup 0.8",
    "dhvt-balanced": "--model dhvt_pico --balanced --set augment.repeats=2 --set augment.trivial=true",
    "cvt": "--model cvt_nano --img-size 16 --aux drloc --set aux.drloc.loss=cbr",
    "t2t": "--model t2t_nano --img-size 16 --set augment.randaugment=2",
    "swin": "--model swin_nano --img-size 16 --aux drloc --set aux.drloc.norm=after",
    "swin-scales": "--model swin_nano --img-size 32 --aux drloc --set aux.drloc.multiscale=true",
    "cct": "--model cct_7_3x1_32 --img-size 16 --in-chans 3",
    "resnet": "--model resnet_nano --set optimizer.name=sgd --lr 0.05 --set augment.crop=resized --val none",
    "timm": "--model convnext_atto --img-size 32",
    "default": "--img-size 16 --precision fp32 --set augment.brightness=0.4",
    "hybrid": "--model hybrid_nano --img-size 16 --precision bf16",
}
PRETRAIN = ("idmm", "simclr", "supcon", "mocov2", "mocov3", "dino")


def cases() -> dict[str, list[str]]:
    made = {name: [f"train {SMALL} {flags} --out OUT/run"] for name, flags in TRAIN.items()}
    for method in PRETRAIN:
        extra = " --aux drloc" if method in ("idmm", "dino") else ""
        made[method] = [
            f"pretrain {SMALL} --img-size 16 --model vit_pico --method {method} --out OUT/first{extra}",
            f"train {SMALL} --img-size 16 --init OUT/first --model vit_pico --out OUT/second",
        ]
    made["seeds"] = [f"train {SMALL} --model vit_pico --seeds 2 --jobs 1 --out OUT/group"]
    made["folds"] = [f"train {SMALL} --model vit_pico --folds 2 --jobs 1 --out OUT/group"]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="store the digests of the code as it is")
    parser.add_argument("--check", type=Path, help="compare with stored ones; status 1 where any differs")
    parser.add_argument("--only", nargs="*", help="these cases alone")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    chosen = {name: lines for name, lines in cases().items() if not given.only or name in given.only}
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(given.jobs) as pool:
        folders = [Path(place) / name for name in chosen]
        digests = dict(zip(chosen, pool.map(run_case, folders, chosen.values()), strict=True))
    machine = {"torch": torch.__version__, "processor": processor(), "python": platform.python_version()}
    if given.write:
        given.write.write_text(json.dumps({"machine": machine, "digests": digests}, indent=1) + "\n")
    if given.check:
        sys.exit(differences(json.loads(given.check.read_text()), machine, digests))


def run_case(folder: Path, lines: list[str]) -> dict[str, dict[str, str]]:
    folder.mkdir()
    for line in lines:
        words = [word.replace("OUT", str(folder)) for word in line.split()]
        done = subprocess.run(
            [sys.executable, "-m", "smallvit", *words], capture_output=True, text=True, check=False, env=environment()
        )
        if done.returncode:
            sys.exit(f"smallvit {' '.join(words)}\n{done.stderr[-2000:]}")
    print(folder.name, file=sys.stderr, flush=True)
    runs = sorted(path.parent for path in folder.rglob("model.safetensors"))
    return {str(run.relative_to(folder)): {"model": tensors_of(run), "metrics": metrics_of(run)} for run in runs}


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def tensors_of(run: Path) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(load_file(run / "model.safetensors").items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def metrics_of(run: Path) -> str:
    total = hashlib.sha256()
    for record in records_of(run):
        total.update(json.dumps(record, sort_keys=True).encode())
    return total.hexdigest()[:16]


def records_of(run: Path) -> Iterator[dict[str, Any]]:
    for line in (run / "metrics.jsonl").read_text().splitlines():
        yield {key: value for key, value in json.loads(line).items() if key not in TIMES}


def processor() -> str:
    names = [line.split(":")[1].strip() for line in cpuinfo() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.is_file() else []


def differences(stored: dict[str, Any], machine: dict[str, str], digests: dict[str, Any]) -> int:
    if stored["machine"] != machine:
        print(f"stored on {stored['machine']}, run on {machine}: other last bits are no wonder")
    changed = [name for name, digest in digests.items() if digest != stored["digests"].get(name)]
    print(f"{len(digests) - len(changed)} of {len(digests)} cases as before", *changed)
    return int(bool(changed))


if __name__ == "__main__":
    main()
